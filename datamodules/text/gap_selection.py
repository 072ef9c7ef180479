"""Gap sentences: those that say most of what the rest of a document says (Zhang et al., ICML 2020, 1912.08777)."""

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from lightning_modules.metrics.rouge_words import vocabulary

Selection = Literal["ind-orig", "ind-uniq", "seq-orig", "seq-uniq", "random", "lead"]
Floats = NDArray[np.float64]


class WordCounts(NamedTuple):
    """How often the words of a document stand in its sentences; an entry is a word in a sentence that has it.

    Attributes:
        sentence: of each entry, [E].
        word: of each entry, below W, [E].
        often: the word in that sentence, [E].
        sentences: their number, words or not.
        total: occurrences of each word in the document, [W].
    """

    sentence: NDArray[np.int64]
    word: NDArray[np.int64]
    often: NDArray[np.int64]
    sentences: int
    total: NDArray[np.int64]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Self:
        """Counts of sentences that are given as words, each an integer."""
        sizes = [len(words) for words in sentences]
        flat = np.fromiter((word for words in sentences for word in words), np.int64, sum(sizes))
        different, words = np.unique(flat, return_inverse=True)
        keys = np.repeat(np.arange(len(sizes)), sizes) * max(1, len(different)) + words
        entries, often = np.unique(keys, return_counts=True)
        sentence, word = np.divmod(entries, max(1, len(different)))
        return cls(sentence, word, often, len(sizes), np.bincount(words, minlength=len(different)))

    def by_sentence(self, entries: NDArray) -> Floats:
        """Sum of a value of each entry, by sentence, [E] -> [N]."""
        return np.bincount(self.sentence, weights=entries, minlength=self.sentences).astype(np.float64)


def gains(counts: WordCounts, inside: NDArray[np.int64], unique: bool) -> Floats:
    """ROUGE-1 F between the sentences chosen so far with one more, and the rest of the document.

    Args:
        counts: of the document.
        inside: occurrences of each word in what is chosen, [W].
        unique: whether a text is the set of its words, or counts them.

    Returns:
        The score with each sentence added, [N]; without meaning for a sentence that is chosen already.
    """
    before = inside[counts.word]                                                     # [E]
    outside = counts.total[counts.word] - before                                     # [E]
    after, left = before + counts.often, outside - counts.often
    if unique:
        shared = ((inside > 0) & (counts.total > inside)).sum()
        hits = shared + counts.by_sentence(((after > 0) & (left > 0)) * 1 - ((before > 0) & (outside > 0)))
        predicted = (inside > 0).sum() + counts.by_sentence(before == 0)
        reference = (counts.total > inside).sum() - counts.by_sentence(left == 0)
    else:
        shared = np.minimum(inside, counts.total - inside).sum()
        hits = shared + counts.by_sentence(np.minimum(after, left) - np.minimum(before, outside))
        predicted = inside.sum() + counts.by_sentence(counts.often)
        reference = counts.total.sum() - predicted
    found = hits > 0
    precision, recall = (np.divide(hits, size, out=np.zeros_like(hits), where=found) for size in (predicted, reference))
    # the harmonic mean as `rouge-score` has it, to the last bit: equal scores are ties there too
    return np.divide(2 * precision * recall, precision + recall, out=np.zeros_like(hits), where=found)


def principal(counts: WordCounts, number: int, unique: bool, greedy: bool, factors: Floats) -> list[int]:
    """The sentences that score best, best first; of equal ones the first.

    Args:
        counts: of the document.
        number: how many, at most all.
        unique: `Uniq`, or `Orig`.
        greedy: `Seq`: one after another, each scored together with those before; or `Ind`: each alone.
        factors: what each score is multiplied by, [N].
    """
    inside = np.zeros_like(counts.total)
    if not greedy:
        return np.argsort(-gains(counts, inside, unique) * factors, kind="stable")[:number].tolist()
    chosen: list[int] = []
    for _ in range(number):
        scores = gains(counts, inside, unique) * factors
        scores[chosen] = -1
        best = int(scores.argmax())
        chosen.append(best)
        entries = counts.sentence == best
        inside[counts.word[entries]] += counts.often[entries]
    return chosen


def select(
    sentences: Sequence[str],
    number: int,
    selection: Selection = "ind-orig",
    noise: float = 0.0,
    rng: random.Random | None = None,
) -> list[int]:
    """The gap sentences of a document (section 3.1): which of its sentences are to be generated.

    `ind` scores each sentence x_i alone by ROUGE-1 F(x_i, D without x_i), `seq` adds one sentence after another by
    ROUGE-1 F(S with x_i, D without both); `orig` counts words as ROUGE does, `uniq` takes each text as a set. Words are
    stemmed; a sentence without words scores 0. `lead` takes the first sentences, `random` any.

    Args:
        sentences: of the document.
        number: how many; all of them if there are fewer.
        selection: see above.
        noise: each score of `ind` and `seq` is multiplied by one plus a number drawn between -noise and noise.
        rng: of all draws; without one they are the same each time.

    Returns:
        Their indices, in the order of the document.

    Raises:
        ValueError: if there is no such selection, the number is negative, or the noise not in [0, 1].
    """
    if selection not in get_args(Selection):
        raise ValueError(f"no gap-sentence selection {selection!r}; there are {', '.join(get_args(Selection))}")
    if number < 0 or not 0 <= noise <= 1:
        raise ValueError(f"number and noise are at least 0, noise at most 1; got {number}, {noise}")
    number, rng = min(number, len(sentences)), rng or random.Random(0)
    if selection == "lead":
        return list(range(number))
    if selection == "random":
        return sorted(rng.sample(range(len(sentences)), number))
    kind, counting = selection.split("-")
    words = vocabulary()
    words.bound()
    counts = WordCounts.of([words.encode(sentence) for sentence in sentences])
    factors = np.array([1 + rng.uniform(-noise, noise) for _ in sentences]) if noise else np.ones(len(sentences))
    return sorted(principal(counts, number, counting == "uniq", kind == "seq", factors))
