"""How much of a summary is its own: novel n-grams and sentences, extractive fragments, repetition."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_modules.metrics.rouge_words import vocabulary

ORDERS = (1, 2, 3, 4)

Sentences = Sequence[str]
Encoded = list[list[int]]


class Extraction(NamedTuple):
    """How a summary is cut from its source (Grusky et al. 2018, equations 1 to 3).

    Attributes:
        coverage: share of the summary's words that lie in a fragment of the source, in [0, 1].
        density: mean over the summary's words of the length of their fragment, sum_f |f|^2 / |S|, in words.
        compression: words of the source for each word of the summary.
    """

    coverage: float
    density: float
    compression: float


def novelty(
    summary: Sentences, source: Sentences, orders: Sequence[int] = ORDERS, tokenizer: str = "unicode"
) -> dict[str, float | None]:
    """Shares of a summary's n-grams and sentences that its source lacks (See et al. 2017, section 6.2).

    Every occurrence in the summary counts. N-grams are taken within sentences: one that spans two sentences would be
    new as soon as sentences are dropped. A sentence is new if no sentence of the source has exactly its words.

    Args:
        summary: its sentences.
        source: its sentences.
        orders: the n of the n-grams.
        tokenizer: "unicode" or "rouge"; words are lower-cased and not stemmed, punctuation is dropped.

    Returns:
        "novel_1" (and so on, by order) and "novel_sentences", in [0, 1]; None where the summary has none such.
    """
    encode = vocabulary(stem=False, tokenizer=tokenizer).encode
    return _novelty([encode(sentence) for sentence in summary], [encode(sentence) for sentence in source], orders)


def repetition(
    summary: Sentences, orders: Sequence[int] = ORDERS, tokenizer: str = "unicode"
) -> dict[str, float | None]:
    """Shares of a summary's n-grams and sentences that it has already had (See et al. 2017, figure 4).

    Returns:
        "repeated_1" (and so on, by order) and "repeated_sentences", 1 - distinct / all, in [0, 1); None where the
        summary has none such. N-grams are taken within sentences, and compared over the whole summary.
    """
    encode = vocabulary(stem=False, tokenizer=tokenizer).encode
    return _repetition([encode(sentence) for sentence in summary], orders)


def extraction(summary: Sentences, source: Sentences, tokenizer: str = "unicode") -> Extraction | None:
    """Coverage, density and compression of a summary; None if it has no word."""
    encode = vocabulary(stem=False, tokenizer=tokenizer).encode
    return _extraction([encode(sentence) for sentence in summary], [encode(sentence) for sentence in source])


def fragments(summary: Sequence[Any], source: Sequence[Any]) -> list[tuple[int, int, int]]:
    """Extractive fragments of a summary, greedily from its start (Grusky et al. 2018, figure 2).

    At each word the longest run of the source that starts with it is taken, the first of equals. As in the paper the
    search goes on behind a run, so that a longer one that begins inside a shorter one is missed.

    Args:
        summary, source: tokens.

    Returns:
        Of each fragment its start in the summary, its start in the source and its length.
    """
    places: dict[Any, list[int]] = {}
    for place, token in enumerate(source):
        places.setdefault(token, []).append(place)
    found, start = [], 0
    while start < len(summary):
        longest, best, behind = 0, 0, 0
        for place in places.get(summary[start], ()):
            if place < behind:
                continue
            length = _run(summary, source, start, place)
            behind = place + length
            if length > longest:
                longest, best = length, place
        if longest:
            found.append((start, best, longest))
        start += max(longest, 1)
    return found


class Novelty(Metric):
    """Means over documents of `novelty`, `repetition` and `extraction`.

    A document counts for those measures that it has: a summary of one word has no bigram that could be new. The
    state is a sum and a count a measure, sums in units of 2^-32 as integers: the same in any order of documents.

    Args:
        orders, tokenizer: as in `novelty`.

    Raises:
        ValueError: for an unknown tokenizer.

    Attributes:
        names: of the measures. Shares come x 100; `density` in words, `compression` as a ratio.
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False
    _UNIT = 2**32

    def __init__(self, orders: Sequence[int] = ORDERS, tokenizer: str = "unicode", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.orders, self.tokenizer = tuple(orders), tokenizer
        vocabulary(stem=False, tokenizer=tokenizer)  # an unknown tokenizer is refused here rather than in `update`
        kinds = [*map(str, self.orders), "sentences"]
        shares = [f"{measure}_{kind}" for measure in ("novel", "repeated") for kind in kinds]
        self.names = (*shares, "coverage", "density", "compression")
        for state in ("totals", "documents"):
            self.add_state(state, torch.zeros(len(self.names), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, summaries: Sequence[Sentences], sources: Sequence[Sentences]) -> None:
        """Adds documents: the sentences of the summaries, and of what they summarize.

        Raises:
            ValueError: if the lengths differ.
        """
        if len(summaries) != len(sources):
            raise ValueError(f"{len(summaries)} summaries but {len(sources)} sources")
        words = vocabulary(stem=False, tokenizer=self.tokenizer)
        for summary, source in zip(summaries, sources):
            words.bound()
            summary, source = ([words.encode(sentence) for sentence in text] for text in (summary, source))
            measures = _novelty(summary, source, self.orders) | _repetition(summary, self.orders)
            if cut := _extraction(summary, source):
                measures |= cut._asdict()
            for column, name in enumerate(self.names):
                if (value := measures.get(name)) is not None:
                    self.totals[column] += round(value * self._UNIT)
                    self.documents[column] += 1

    def compute(self) -> dict[str, Tensor]:
        """The mean of each measure, scalars; nan where no document had any."""
        means = {}
        for name, total, documents in zip(self.names, self.totals.tolist(), self.documents.tolist()):
            scale = 1 if name in ("density", "compression") else 100
            mean = scale * total / self._UNIT / documents if documents else float("nan")
            means[name] = torch.tensor(mean, device=self.device)
        return means


def _run(summary: Sequence[Any], source: Sequence[Any], start: int, place: int) -> int:
    """Length of the common run from two places on."""
    length, limit = 1, min(len(summary) - start, len(source) - place)
    while length < limit and summary[start + length] == source[place + length]:
        length += 1
    return length


def _ngrams(sentences: Encoded, n: int) -> list[tuple[int, ...]]:
    return [gram for sentence in sentences for gram in zip(*(sentence[start:] for start in range(n)))]


def _novelty(summary: Encoded, source: Encoded, orders: Sequence[int]) -> dict[str, float | None]:
    shares = {}
    for n in orders:
        known = set(_ngrams(source, n))
        grams = _ngrams(summary, n)
        shares[f"novel_{n}"] = sum(gram not in known for gram in grams) / len(grams) if grams else None
    known = set(map(tuple, source))
    sentences = [tuple(sentence) for sentence in summary if sentence]
    shares["novel_sentences"] = (
        sum(sentence not in known for sentence in sentences) / len(sentences) if sentences else None
    )
    return shares


def _repetition(summary: Encoded, orders: Sequence[int]) -> dict[str, float | None]:
    units = {str(n): _ngrams(summary, n) for n in orders}
    units["sentences"] = [tuple(sentence) for sentence in summary if sentence]
    return {f"repeated_{kind}": 1 - len(set(found)) / len(found) if found else None for kind, found in units.items()}


def _extraction(summary: Encoded, source: Encoded) -> Extraction | None:
    words, others = ([token for sentence in text for token in sentence] for text in (summary, source))
    if not words:
        return None
    lengths = [length for _, _, length in fragments(words, others)]
    squares = sum(length * length for length in lengths)
    return Extraction(sum(lengths) / len(words), squares / len(words), len(others) / len(words))
