"""Oracle extraction: greedy oracle summaries, and ROUGE of single sentences."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from datamodules.text.rouge_counts import count, score_of
from datamodules.text.rouge_words import Vocabulary, vocabulary

Counts = Literal["all", "set"]
Grams = dict  # n-gram -> count


class _Target(NamedTuple):
    """A reference: its n-grams, its size, and the n-grams that each sentence shares with it."""

    limits: tuple[Grams, Grams]  # counts of its words and of its bigrams, to which matches are clipped
    size: int  # number of words
    sentences: list[tuple[Grams, Grams]]  # for each sentence of the document, counts of shared words and bigrams


def greedy_oracle(
    sentences: Sequence[str], references: Sequence[Sequence[str]], k: int | None = None, stem: bool | str = True,
    counts: Counts = "all", language: str = "en",
) -> list[int]:  # fmt: skip
    """Return the greedy extractive oracle: indices of sentences in the order of the document.

    It adds the sentence that raises ROUGE-1 F + ROUGE-2 F most, and stops when no sentence raises the score, so it is
    empty if no sentence shares a word with a reference. The method is that of Nallapati et al. 2017, with the sum of
    scores of Liu and Lapata (2019). Selected sentences are scored in the order of the document, with bigrams across
    sentences as in ROUGE; ties go to the first sentence. With several references, the best score counts.

    Args:
        references: at least one, each a list of sentences.
        k: maximum number of sentences; None for no limit.
        stem: as in `rouge_scores`.
        counts: `all` counts each occurrence of an n-gram, as ROUGE does; `set` counts each n-gram once, and no bigrams
            across sentences of the document, as PreSumm does for its labels.
    """
    if counts == "set":
        return _distinct_oracle(sentences, references, k, vocabulary(stem, language))
    words = vocabulary(stem, language)
    words.limit_size()  # may clear the shared vocabulary, which bounds its memory, but makes earlier integers invalid
    encoded = [words.encode(sentence) for sentence in sentences]
    targets = [_make_target(_join(words, reference), encoded) for reference in references]
    # Counts are updated incrementally. For each reference: counts of words and bigrams in the selected sentences, and
    # their clipped matches.
    selected: list[tuple[Grams, Grams]] = [({}, {}) for _ in targets]
    hits = [(0, 0) for _ in targets]
    chosen: list[int] = []
    num_words = 0  # of the selected sentences
    best_score = 0.0
    # A sentence without words changes nothing, and one that shares no word with a reference only lowers the score.
    remaining = [i for i in range(len(encoded)) if any(target.sentences[i][0] for target in targets)]
    while remaining and (k is None or len(chosen) < k):
        best = None
        for index in remaining:
            borders = _border_bigrams(encoded, chosen, index)
            gains = [_gains(target, grams, index, borders) for target, grams in zip(targets, selected)]
            total = num_words + len(encoded[index])
            score = max(  # a text of n words has n - 1 bigrams, so summary and reference have 2 fewer
                _f1_sum(hits1 + gain1, total + target.size, hits2 + gain2, total + target.size - 2)
                for target, (hits1, hits2), (gain1, gain2) in zip(targets, hits, gains)
            )
            if score > best_score:
                best_score, best = score, (index, borders, gains)
        if best is None:
            break
        index, borders, gains = best
        hits = [(hits1 + gain1, hits2 + gain2) for (hits1, hits2), (gain1, gain2) in zip(hits, gains)]
        for target, grams in zip(targets, selected):
            _add_sentence(target, grams, index, borders)
        num_words += len(encoded[index])
        chosen.append(index)
        remaining.remove(index)
    return sorted(chosen)


def _distinct_oracle(
    sentences: Sequence[str], references: Sequence[Sequence[str]], k: int | None, words: Vocabulary
) -> list[int]:
    """Return the `greedy_oracle` for `counts="set"`: sentence indices, at most `k`, scored by sets of n-grams."""
    words.limit_size()  # may clear the shared vocabulary, which bounds its memory, but makes earlier integers invalid
    targets = [_gram_sets(_join(words, reference)) for reference in references]
    candidates = [_gram_sets(words.encode(sentence)) for sentence in sentences]  # (words, bigrams) of each
    selected: tuple[set, set] = (set(), set())  # words and bigrams of the chosen sentences
    chosen: list[int] = []
    best_score = 0.0
    while k is None or len(chosen) < k:
        best_index = None
        for index, grams in enumerate(candidates):
            if index in chosen:
                continue
            union = [before | added for before, added in zip(selected, grams)]  # words and bigrams with this sentence
            score = max(_set_score(union, target) for target in targets)  # for the best reference
            if score > best_score:
                best_score, best_index = score, index
        if best_index is None:  # no sentence raises the score
            break
        selected = tuple(before | added for before, added in zip(selected, candidates[best_index]))
        chosen.append(best_index)
    return sorted(chosen)


def _join(words: Vocabulary, sentences: Sequence[str]) -> list[int]:
    """Return the integers of the words of all sentences of a reference, in order."""
    return [word for sentence in sentences for word in words.encode(sentence)]


def _gram_sets(tokens: Sequence[int]) -> tuple[set, set]:
    """Return the distinct words and bigrams of a text."""
    return set(tokens), set(pairwise(tokens))


def _set_score(predicted: Sequence[set], reference: Sequence[set]) -> float:
    """Return F1 of words plus F1 of bigrams between two pairs (words, bigrams) of sets."""
    (words, bigrams), (reference_words, reference_bigrams) = predicted, reference
    size1, size2 = len(words) + len(reference_words), len(bigrams) + len(reference_bigrams)
    return _f1_sum(len(words & reference_words), size1, len(bigrams & reference_bigrams), size2)


def sentence_scores(sentences: Sequence[str], references: Sequence[Sequence[str]], language: str = "en") -> list[float]:
    """Return (ROUGE-1 F + ROUGE-2 F) / 2 of each sentence alone, in [0, 1], with the best of the references."""
    return text_scores([[sentence] for sentence in sentences], references, ("rouge1", "rouge2"), language)


def text_scores(
    texts: Sequence[Sequence[str]], references: Sequence[Sequence[str]],
    variants: Sequence[str] = ("rouge1", "rouge2", "rougeL"), language: str = "en",
) -> list[float]:  # fmt: skip
    """Return the mean of several ROUGE F scores, in [0, 1], of each text (sentences) for its best reference."""
    words = vocabulary(language=language)
    words.limit_size()  # may clear the shared vocabulary, which bounds its memory, but makes earlier integers invalid
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


def _make_target(tokens: list[int], encoded: list[list[int]]) -> _Target:
    """Return the `_Target` of a reference with the words `tokens`; `encoded` has the words of document sentences."""
    words, bigrams = _count_grams(tokens), _count_grams(pairwise(tokens))
    shared = []  # counts by sentence; n-grams that the reference lacks never match
    for sentence in encoded:
        shared_words = _count_grams(word for word in sentence if word in words)
        shared_bigrams = _count_grams(bigram for bigram in pairwise(sentence) if bigram in bigrams)
        shared.append((shared_words, shared_bigrams))
    return _Target((words, bigrams), len(tokens), shared)


def _count_grams(grams: Iterable) -> Grams:
    counts: Grams = {}  # a plain loop is faster than `Counter` for short sentences
    for gram in grams:
        counts[gram] = counts.get(gram, 0) + 1
    return counts


def _border_bigrams(encoded: list[list[int]], chosen: list[int], index: int) -> list[tuple[tuple[int, int], int]]:
    """Return (bigram, 1 or -1) for bigrams across sentence ends that sentence `index` would add or break up."""
    previous = max((i for i in chosen if i < index), default=None)  # chosen neighbors, which have words, as `index` has
    following = min((i for i in chosen if i > index), default=None)
    sentence = encoded[index]  # its words, as integers
    changes = []
    if previous is not None:
        changes.append(((encoded[previous][-1], sentence[0]), 1))
    if following is not None:
        changes.append(((sentence[-1], encoded[following][0]), 1))
    if previous is not None and following is not None:
        changes.append(((encoded[previous][-1], encoded[following][0]), -1))
    return changes


def _gains(target: _Target, selected: tuple[Grams, Grams], index: int, borders: list) -> tuple[int, int]:
    """Return how many more words, and bigrams, match with sentence `index`; `borders` are its `_border_bigrams`."""
    words, bigrams = target.sentences[index]  # counts of those that the sentence shares with the reference
    word_limits, bigram_limits = target.limits  # counts in the reference; `selected` has those of the chosen sentences
    borders_in_reference = [(gram, change) for gram, change in borders if gram in bigram_limits]
    if borders_in_reference:
        bigrams = dict(bigrams)  # the counts of the sentence stay as they are for other selections
    for gram, change in borders_in_reference:
        bigrams[gram] = bigrams.get(gram, 0) + change
    return _gain(selected[0], words, word_limits), _gain(selected[1], bigrams, bigram_limits)


def _gain(selected: Grams, added: Grams, limits: Grams) -> int:
    """Return by how much the sum of min(count, limit) over n-grams increases with the added counts."""
    gain = 0
    for gram, times in added.items():
        limit, count = limits[gram], selected.get(gram, 0)
        gain += min(count + times, limit) - min(count, limit)
    return gain


def _add_sentence(target: _Target, selected: tuple[Grams, Grams], index: int, borders: list) -> None:
    """Add n-grams of sentence `index` and its `_border_bigrams` to the counts `selected` (words, bigrams) in place."""
    for counts, added in zip(selected, target.sentences[index]):
        for gram, times in added.items():
            counts[gram] = counts.get(gram, 0) + times
    bigrams, (_, bigrams_of_reference) = selected[1], target.limits  # `limits`: counts of words and bigrams
    for gram, change in borders:
        if gram in bigrams_of_reference:  # other bigrams match nothing
            bigrams[gram] = bigrams.get(gram, 0) + change


def _f1_sum(hits1: int, size1: int, hits2: int, size2: int) -> float:
    """Return F1 of words plus F1 of bigrams, each 2 hits / size of both texts, as one fraction that rounds once."""
    size1, size2 = max(size1, 1), max(size2, 1)  # 0, or below for bigrams, if both texts are empty or single words
    return 2 * (hits1 * size2 + hits2 * size1) / (size1 * size2)
