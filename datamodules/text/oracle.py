"""Oracle extraction: greedy oracle summaries, and ROUGE of single sentences."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from datamodules.text.rouge_counts import count, score_of
from datamodules.text.rouge_words import vocabulary

Counts = Literal["all", "set"]


def greedy_oracle(
    sentences: Sequence[str], references: Sequence[Sequence[str]], k: int | None = None, stem: bool | str = True,
    counts: Counts = "all", language: str = "en",
) -> list[int]:  # fmt: skip
    """Return the greedy extractive oracle: indices of sentences in the order of the document.

    It adds the sentence that raises ROUGE-1 F + ROUGE-2 F most, and stops when no sentence raises the score, so it is
    empty if no sentence shares a word with a reference. This is the method of Nallapati et al. (2017), with the sum of
    scores from Liu and Lapata (2019). Selected sentences are scored in the order of the document, with bigrams across
    sentences as in ROUGE; ties go to the first sentence. With several references, the best score counts.

    Args:
        references: at least one, each a list of sentences.
        k: maximum number of sentences; None for no limit.
        stem: as in `rouge_scores`.
        counts: `all` counts each occurrence of an n-gram, as ROUGE does; `set` counts each n-gram once, and no bigrams
            across sentences of the document, as PreSumm does for its labels.
    """
    words = vocabulary(stem, language)
    encoded = [words.encode(sentence) for sentence in sentences]  # words as integers
    target_type = _SetTarget if counts == "set" else _Target
    targets = []
    for reference in references:
        targets.append(target_type([word for sentence in reference for word in words.encode(sentence)], encoded))
    chosen: list[int] = []  # indices of sentences, ascending
    best_score = 0.0
    while k is None or len(chosen) < k:
        best_index = None
        for index in range(len(encoded)):
            if index in chosen:
                continue
            score = max((target.score(chosen, index) for target in targets), default=0.0)
            if score > best_score:
                best_score, best_index = score, index
        if best_index is None:  # no sentence raises the score
            break
        for target in targets:
            target.add(chosen, best_index)
        chosen = sorted([*chosen, best_index])
    return chosen


class _Target:
    """A reference (words as integers), and how many of its words and bigrams the chosen `encoded` sentences lack."""

    def __init__(self, reference: list[int], encoded: list[list[int]]) -> None:
        self.encoded = encoded
        self.size = len(reference)
        # occurrences of each n-gram of the reference that are not matched yet; negative if the sentences have more
        self.lacking = (Counter(reference), Counter(pairwise(reference)))
        self.hits = [0, 0]  # number of matched words and bigrams
        self.num_words = 0  # of the chosen sentences

    def score(self, chosen: Sequence[int], index: int) -> float:
        """Return F1 of words plus F1 of bigrams of the sentences `chosen` (ascending indices) and sentence `index`."""
        hits1, hits2 = self._hits_with(self._added(chosen, index))
        size = self.size + self.num_words + len(self.encoded[index])  # number of words of both texts
        return _f1_sum(hits1, size, hits2, size - 2)  # a text of n words has n - 1 bigrams

    def add(self, chosen: Sequence[int], index: int) -> None:
        """Choose sentence `index`, besides those that are chosen already."""
        added = self._added(chosen, index)
        self.hits = self._hits_with(added)
        for lacking, grams in zip(self.lacking, added):
            lacking.subtract(grams)
        self.num_words += len(self.encoded[index])

    def _added(self, chosen: Sequence[int], index: int) -> tuple[Counter, Counter]:
        """Count words and bigrams of the reference that sentence `index` adds; a bigram that it breaks up counts -1."""
        words, bigrams = self.lacking  # their keys are the words and bigrams of the reference
        sentence = self.encoded[index]
        before = [self.encoded[i][-1] for i in chosen if i < index][-1:]  # last word of the chosen sentence before it
        after = [self.encoded[i][0] for i in chosen if i > index][:1]  # first word of the chosen one after it, or empty
        added = Counter(filter(bigrams.__contains__, pairwise([*before, *sentence, *after])))
        added.subtract(filter(bigrams.__contains__, pairwise([*before, *after])))  # the bigram that it breaks up
        return Counter(filter(words.__contains__, sentence)), added

    def _hits_with(self, added: tuple[Counter, Counter]) -> list[int]:
        """Return the numbers of matched words and bigrams, including the `added` ones."""
        hits = []
        for num_hits, lacking, grams in zip(self.hits, self.lacking, added):
            for gram, times in grams.items():
                num_hits += max(lacking[gram], 0) - max(lacking[gram] - times, 0)  # at most what is lacking
            hits.append(num_hits)
        return hits


class _SetTarget:
    """A reference and the chosen sentences as sets of words and of bigrams; arguments and methods as in `_Target`."""

    def __init__(self, reference: list[int], encoded: list[list[int]]) -> None:
        self.reference = _gram_sets(reference)
        self.sentences = [_gram_sets(sentence) for sentence in encoded]
        self.chosen = (set(), set())  # words and bigrams of the chosen sentences

    def score(self, chosen: Sequence[int], index: int) -> float:
        """Return F1 of words plus F1 of bigrams with sentence `index`; `self.chosen` is used instead of `chosen`."""
        words, bigrams = self._chosen_with(index)
        reference_words, reference_bigrams = self.reference
        size1 = len(words) + len(reference_words)
        size2 = len(bigrams) + len(reference_bigrams)
        return _f1_sum(len(words & reference_words), size1, len(bigrams & reference_bigrams), size2)

    def add(self, chosen: Sequence[int], index: int) -> None:
        """Choose sentence `index`."""
        self.chosen = self._chosen_with(index)

    def _chosen_with(self, index: int) -> tuple[set, set]:
        words, bigrams = self.sentences[index]  # added to the words and bigrams of the chosen sentences
        return self.chosen[0] | words, self.chosen[1] | bigrams


def _gram_sets(tokens: Sequence[int]) -> tuple[set, set]:
    """Return the distinct words and bigrams of a text."""
    return set(tokens), set(pairwise(tokens))


def sentence_scores(sentences: Sequence[str], references: Sequence[Sequence[str]], language: str = "en") -> list[float]:
    """Return (ROUGE-1 F + ROUGE-2 F) / 2 of each sentence by itself, in [0, 1], for its best reference."""
    return text_scores([[sentence] for sentence in sentences], references, ("rouge1", "rouge2"), language)


def text_scores(
    texts: Sequence[Sequence[str]], references: Sequence[Sequence[str]],
    variants: Sequence[str] = ("rouge1", "rouge2", "rougeL"), language: str = "en",
) -> list[float]:  # fmt: skip
    """Return the mean ROUGE F over `variants` of each text (a list of sentences) for its best reference, in [0, 1]."""
    words = vocabulary(language=language)
    targets = [[words.encode(sentence) for sentence in reference] for reference in references]
    scores = []
    for text in texts:
        encoded = [words.encode(sentence) for sentence in text]
        best_score = 0.0
        for target in targets:
            fmeasures = [score_of(*counts).fmeasure for counts in count(variants, encoded, target).values()]  # F1
            best_score = max(best_score, sum(fmeasures) / len(variants))
        scores.append(best_score)
    return scores


def _f1_sum(hits1: int, size1: int, hits2: int, size2: int) -> float:
    """Return F1 of words plus F1 of bigrams, each 2 hits / size of both texts; one fraction, so that ties are exact."""
    size1, size2 = max(size1, 1), max(size2, 1)  # at most 0 if both texts are empty, or single words without bigrams
    return 2 * (hits1 * size2 + hits2 * size1) / (size1 * size2)
