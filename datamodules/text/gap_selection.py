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
    """Sparse matrix of the counts of W words in N sentences, with E non-zero entries."""

    sentence: NDArray[np.int64]  # index of the sentence of each entry, [E]
    word: NDArray[np.int64]  # index of the word of each entry, [E]
    occurrences: NDArray[np.int64]  # occurrences of the word in the sentence, [E]
    sentences: int  # number of sentences N, including empty ones
    total: NDArray[np.int64]  # occurrences of each word in the document, [W]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Self:
        """Count the words of each sentence, a list with an integer for each word; entries are in order of sentence."""
        sizes = [len(words) for words in sentences]
        tokens = np.fromiter((word for words in sentences for word in words), np.int64, sum(sizes))
        distinct_words, word_of_token = np.unique(tokens, return_inverse=True)  # [W], and the index in it of each token
        sentence_of_token = np.repeat(np.arange(len(sizes)), sizes)
        # Pairs of sentence and word are counted as single integers: sentence * W + word.
        num_words = max(1, len(distinct_words))  # 1 without words, since `divmod` divides by it
        pairs, occurrences = np.unique(sentence_of_token * num_words + word_of_token, return_counts=True)  # each [E]
        sentence, word = np.divmod(pairs, num_words)
        total = np.bincount(word_of_token, minlength=len(distinct_words))  # in all sentences, [W]
        return cls(sentence=sentence, word=word, occurrences=occurrences, sentences=len(sizes), total=total)

    def by_sentence(self, entries: NDArray) -> Floats:
        """Sum values of entries for each sentence, [E] -> [N]."""
        return np.bincount(self.sentence, weights=entries, minlength=self.sentences).astype(np.float64)


def gains(counts: WordCounts, inside: NDArray[np.int64], unique: bool) -> Floats:
    """Return, for each sentence x, ROUGE-1 F of the selected sentences with x against the rest without x, [N].

    The values of selected sentences have no meaning. Arrays [E] have a value for each entry of the sparse `counts`.

    Args:
        inside: occurrences of each word in the selected sentences, [W].
        unique: whether texts are sets of words instead of multisets.
    """
    # Occurrences of each entry's word in the selection and in the rest, before and after its sentence is selected.
    inside_before = inside[counts.word]  # [E]
    rest_before = counts.total[counts.word] - inside_before  # [E]
    inside_after = inside_before + counts.occurrences
    rest_after = rest_before - counts.occurrences
    # Words if sentence x is selected, [N]: in both texts (`hits`), the selection (`predicted`), the rest (`reference`).
    if unique:
        shared = ((inside > 0) & (counts.total > inside)).sum()  # words in both the selection and the rest
        shared_before = (inside_before > 0) & (rest_before > 0)
        shared_after = (inside_after > 0) & (rest_after > 0)
        hits = shared + counts.by_sentence(shared_after.astype(int) - shared_before)  # 1: now shared, -1: no longer
        predicted = (inside > 0).sum() + counts.by_sentence(inside_before == 0)  # plus words new in x
        reference = (counts.total > inside).sum() - counts.by_sentence(rest_after == 0)  # without those only in x
    else:
        shared = np.minimum(inside, counts.total - inside).sum()  # occurrences in both the selection and the rest
        change = np.minimum(inside_after, rest_after) - np.minimum(inside_before, rest_before)  # [E]
        hits = shared + counts.by_sentence(change)
        predicted = inside.sum() + counts.by_sentence(counts.occurrences)
        reference = counts.total.sum() - predicted
    # F1 as 2 hits / both sizes rounds once, so that equal scores are equal; 2 P R / (P + R) may differ in the last bit.
    return np.divide(2 * hits, predicted + reference, out=np.zeros_like(hits), where=hits > 0)


def principal(counts: WordCounts, number: int, unique: bool, greedy: bool, factors: Floats) -> list[int]:
    """Return the indices of the `number` sentences with the highest `gains`, best first; the earlier one in a tie.

    Args:
        unique: whether texts are sets of words (`uniq` of `select`) instead of multisets (`orig`).
        greedy: whether sentences are selected one by one, each scored with those before (`seq`), or by itself (`ind`).
        factors: factors of the scores, which add noise, [N].
    """
    inside = np.zeros_like(counts.total)  # occurrences of each word in the chosen sentences, [W]
    if not greedy:
        scores = gains(counts, inside, unique) * factors
        return np.argsort(-scores, kind="stable")[:number].tolist()  # stable for ties
    chosen: list[int] = []
    for _ in range(number):
        scores = gains(counts, inside, unique) * factors
        scores[chosen] = -1  # below all others, which are at least 0
        best_sentence = int(scores.argmax())
        chosen.append(best_sentence)
        entries = counts.sentence == best_sentence
        inside[counts.word[entries]] += counts.occurrences[entries]
    return chosen


def select(
    sentences: Sequence[str], number: int, selection: Selection = "ind-orig", noise: float = 0.0,
    rng: random.Random | None = None, language: str = "en",
) -> list[int]:  # fmt: skip
    """Return the indices of the gap sentences of a document, in its order (section 3.1 of Zhang et al. 2020).

    `ind` scores each sentence x_i of the document D by ROUGE-1 F1 against D without x_i; `seq` adds sentences one by
    one to a selection S by ROUGE-1 F1 of S with x_i against the rest of D. `orig` counts words as ROUGE does; `uniq`
    takes texts as sets of words. Words are stemmed. `lead` selects the first sentences, `random` random ones.

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
    number = min(number, len(sentences))
    rng = rng or random.Random(0)
    if selection == "lead":
        return list(range(number))
    if selection == "random":
        return sorted(rng.sample(range(len(sentences)), number))
    order, counting = selection.split("-")  # such as "ind", "orig"
    words = vocabulary(language=language)
    counts = WordCounts.of([words.encode(sentence) for sentence in sentences])
    factors = np.array([1 + rng.uniform(-noise, noise) for _ in sentences]) if noise else np.ones(len(sentences))
    chosen = principal(counts, number, unique=counting == "uniq", greedy=order == "seq", factors=factors)
    return sorted(chosen)
