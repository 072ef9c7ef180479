"""Gap sentences, the ones most similar to the rest of a document (Zhang et al., ICML 2020, arXiv 1912.08777)."""

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from datamodules.text.rouge_words import vocabulary

Selection = Literal["ind-orig", "ind-uniq", "seq-orig", "seq-uniq", "random", "lead"]
Floats = NDArray[np.float64]


class WordCounts(NamedTuple):
    """Sparse matrix of word counts by sentence, with E non-zero entries and W words."""

    sentence: NDArray[np.int64]  # index of the sentence of each entry, [E]
    word: NDArray[np.int64]  # index of the word of each entry, [E]
    occurrences: NDArray[np.int64]  # occurrences of the word in the sentence, [E]
    sentences: int  # number of sentences N, including empty ones
    total: NDArray[np.int64]  # occurrences of each word in the document, [W]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Self:
        """Count the words of sentences; each word is an integer."""
        sizes = [len(words) for words in sentences]
        tokens = np.fromiter((word for words in sentences for word in words), np.int64, sum(sizes))
        vocabulary, words = np.unique(tokens, return_inverse=True)
        # Pairs of sentence and word are counted as single integers: sentence * W + word.
        num_words = max(1, len(vocabulary))
        keys = np.repeat(np.arange(len(sizes)), sizes) * num_words + words
        entries, occurrences = np.unique(keys, return_counts=True)
        sentence, word = np.divmod(entries, num_words)
        total = np.bincount(words, minlength=len(vocabulary))
        return cls(sentence=sentence, word=word, occurrences=occurrences, sentences=len(sizes), total=total)

    def by_sentence(self, entries: NDArray) -> Floats:
        """Sum values of entries for each sentence, [E] -> [N]."""
        return np.bincount(self.sentence, weights=entries, minlength=self.sentences).astype(np.float64)


def gains(counts: WordCounts, inside: NDArray[np.int64], unique: bool) -> Floats:
    """Return ROUGE-1 F between the selected sentences plus each other one, and the rest of the document, [N].

    It is meaningless for sentences that are already selected.

    Args:
        inside: occurrences of each word in the selected sentences, [W].
        unique: whether texts are sets of words instead of multisets.
    """
    # Occurrences of each entry's word in the selection and in the rest, before and after its sentence is selected.
    before = inside[counts.word]  # [E]
    outside = counts.total[counts.word] - before  # [E]
    after, left = before + counts.occurrences, outside - counts.occurrences
    if unique:
        shared = ((inside > 0) & (counts.total > inside)).sum()
        hits = shared + counts.by_sentence(((after > 0) & (left > 0)) * 1 - ((before > 0) & (outside > 0)))
        predicted = (inside > 0).sum() + counts.by_sentence(before == 0)
        reference = (counts.total > inside).sum() - counts.by_sentence(left == 0)
    else:
        shared = np.minimum(inside, counts.total - inside).sum()
        hits = shared + counts.by_sentence(np.minimum(after, left) - np.minimum(before, outside))
        predicted = inside.sum() + counts.by_sentence(counts.occurrences)
        reference = counts.total.sum() - predicted
    # Whole numbers and a single rounding, so that equal scores are equal: 2 P R / (P + R) differs in its last bit.
    return np.divide(2 * hits, predicted + reference, out=np.zeros_like(hits), where=hits > 0)


def principal(counts: WordCounts, number: int, unique: bool, greedy: bool, factors: Floats) -> list[int]:
    """Return the sentences with the highest scores, best first; ties go to the earlier sentence.

    Args:
        unique: `Uniq` if true, else `Orig`.
        greedy: `Seq` (one by one, each scored together with the selected ones) if true, else `Ind`.
        factors: factor of each score, [N].
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
        inside[counts.word[entries]] += counts.occurrences[entries]
    return chosen


def select(
    sentences: Sequence[str],
    number: int,
    selection: Selection = "ind-orig",
    noise: float = 0.0,
    rng: random.Random | None = None,
    language: str = "en",
) -> list[int]:
    """Return the indices of the gap sentences of a document, in its order: the targets of pre-training (section 3.1).

    `ind` scores each sentence x_i by ROUGE-1 F(x_i, D without x_i); `seq` adds sentences one by one to S by ROUGE-1
    F(S with x_i, D without both). `orig` counts words as ROUGE does; `uniq` takes texts as sets of words. Words are
    stemmed; a sentence without words scores 0. `lead` selects the first sentences, `random` random ones.

    Args:
        number: number of sentences to select; all if there are fewer.
        noise: each score of `ind` and `seq` is multiplied by 1 + u, u uniform in [-noise, noise].
        rng: random generator; by default one with seed 0.

    Raises:
        ValueError: if the selection does not exist, the number is negative, or the noise is not in [0, 1].
    """
    if selection not in get_args(Selection):
        raise ValueError(f"no gap-sentence selection {selection!r}; choose one of {', '.join(get_args(Selection))}")
    if number < 0 or not 0 <= noise <= 1:
        raise ValueError(f"number and noise must be at least 0 and noise at most 1; got {number}, {noise}")
    number, rng = min(number, len(sentences)), rng or random.Random(0)
    if selection == "lead":
        return list(range(number))
    if selection == "random":
        return sorted(rng.sample(range(len(sentences)), number))
    order, counting = selection.split("-")
    words = vocabulary(language=language)
    words.limit_size()
    counts = WordCounts.of([words.encode(sentence) for sentence in sentences])
    factors = np.array([1 + rng.uniform(-noise, noise) for _ in sentences]) if noise else np.ones(len(sentences))
    chosen = principal(counts, number, unique=counting == "uniq", greedy=order == "seq", factors=factors)
    return sorted(chosen)
