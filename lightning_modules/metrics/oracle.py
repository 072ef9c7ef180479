"""What is to be extracted: greedy oracle summaries, and each sentence's own ROUGE."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from lightning_modules.metrics.rouge_counts import count, score_of
from lightning_modules.metrics.rouge_words import vocabulary

Grams = dict  # n-gram -> how often


class _Target(NamedTuple):
    """A reference: its n-grams, its size, and what each sentence has of them."""

    limits: tuple[Grams, Grams]
    size: int
    found: list[tuple[Grams, Grams]]


def greedy_oracle(
    sentences: Sequence[str], references: Sequence[Sequence[str]], k: int | None = None, stem: bool | str = True
) -> list[int]:
    """The greedy extractive oracle: at each step the sentence that raises ROUGE-1 F + ROUGE-2 F most, while one does.

    Nallapati et al. 2017, with Liu and Lapata's (2019) sum of the two scores. The chosen sentences are scored in the
    document's order, bigrams run over their ends, as in ROUGE; of equals the first is taken. With several references
    the sum is the highest of any one. Only what a sentence adds to the counts is counted, not the whole set anew.

    Args:
        sentences: of the document.
        references: at least one, each a list of sentences.
        k: at most so many sentences; None leaves the number to the score.
        stem: as in `rouge_scores`.

    Returns:
        Indices in the document's order; none if no sentence shares a word with a reference.
    """
    words = vocabulary(stem)
    words.bound()
    encoded = [words.encode(sentence) for sentence in sentences]
    joined = [[word for text in reference for word in words.encode(text)] for reference in references]
    targets = [_target(tokens, encoded) for tokens in joined]
    have: list[tuple[Grams, Grams]] = [({}, {}) for _ in targets]
    hits = [(0, 0) for _ in targets]
    chosen: list[int] = []
    size, best = 0, 0.0
    # a sentence without a word changes nothing, and one with none of a reference's words only lowers the score
    rest = [i for i in range(len(encoded)) if any(target.found[i][0] for target in targets)]
    while rest and (k is None or len(chosen) < k):
        leader = None
        for index in rest:
            borders = _borders(encoded, chosen, index)
            gains = [_gains(target, kept, index, borders) for target, kept in zip(targets, have)]
            total = size + len(encoded[index])
            score = max(
                _f1(one + more, total, target.size, 1) + _f1(two + most, total, target.size, 2)
                for target, (one, two), (more, most) in zip(targets, hits, gains)
            )
            if score > best:
                best, leader = score, (index, borders, gains)
        if leader is None:
            break
        index, borders, gains = leader
        hits = [(one + more, two + most) for (one, two), (more, most) in zip(hits, gains)]
        for target, kept in zip(targets, have):
            _add(target, kept, index, borders)
        size += len(encoded[index])
        chosen.append(index)
        rest.remove(index)
    return sorted(chosen)


def sentence_scores(
    sentences: Sequence[str],
    references: Sequence[Sequence[str]],
    variants: Sequence[str] = ("rouge1", "rouge2"),
    stem: bool | str = True,
) -> list[float]:
    """The mean of some ROUGE F of each sentence alone, in [0, 1]; with several references the best one's.

    Args:
        sentences: or other texts, each scored on its own.
        references: each a list of sentences.
        variants: as in `rouge_scores`.
        stem: the same.
    """
    return text_scores([[sentence] for sentence in sentences], references, variants, stem)


def text_scores(
    texts: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    variants: Sequence[str] = ("rouge1", "rouge2", "rougeL"),
    stem: bool | str = True,
) -> list[float]:
    """The mean of some ROUGE F of each text, a list of sentences, in [0, 1]; with several references the best one's."""
    words = vocabulary(stem)
    words.bound()
    targets = [[words.encode(sentence) for sentence in reference] for reference in references]
    scores = []
    for text in texts:
        encoded = [words.encode(sentence) for sentence in text]
        means = [
            sum(score_of(*counts).fmeasure for counts in count(variants, encoded, target).values()) / len(variants)
            for target in targets
        ]
        scores.append(max(means, default=0.0))
    return scores


def _target(tokens: list[int], encoded: list[list[int]]) -> _Target:
    limits = _counted(tokens), _counted(pairwise(tokens))
    found = [(_counted(s, limits[0].__contains__), _counted(pairwise(s), limits[1].__contains__)) for s in encoded]
    return _Target(limits, len(tokens), found)


def _counted(grams, wanted: Callable | None = None) -> Grams:
    counts: Grams = {}
    for gram in filter(wanted, grams) if wanted else grams:
        counts[gram] = counts.get(gram, 0) + 1
    return counts


def _borders(encoded: list[list[int]], chosen: list[int], index: int) -> list[tuple[tuple[int, int], int]]:
    """Bigrams over sentence ends that come (1) and go (-1) with one more sentence."""
    before = max((i for i in chosen if i < index and encoded[i]), default=None)
    behind = min((i for i in chosen if i > index and encoded[i]), default=None)
    here = encoded[index]
    changes = []
    if before is not None:
        changes.append(((encoded[before][-1], here[0]), 1))
    if behind is not None:
        changes.append(((here[-1], encoded[behind][0]), 1))
    if before is not None and behind is not None:
        changes.append(((encoded[before][-1], encoded[behind][0]), -1))
    return changes


def _gains(target: _Target, have: tuple[Grams, Grams], index: int, borders: list) -> tuple[int, int]:
    """Hits that one more sentence adds: of words, of bigrams."""
    ones, twos = target.found[index]
    changed = twos
    for gram, change in borders:
        if gram in target.limits[1]:
            changed = dict(changed) if changed is twos else changed
            changed[gram] = changed.get(gram, 0) + change
    return _more(have[0], ones, target.limits[0]), _more(have[1], changed, target.limits[1])


def _more(have: Grams, added: Grams, limits: Grams) -> int:
    more = 0
    for gram, times in added.items():
        limit, before = limits[gram], have.get(gram, 0)
        more += min(before + times, limit) - min(before, limit)
    return more


def _add(target: _Target, have: tuple[Grams, Grams], index: int, borders: list) -> None:
    for kept, added in zip(have, target.found[index]):
        for gram, times in added.items():
            kept[gram] = kept.get(gram, 0) + times
    for gram, change in borders:
        if gram in target.limits[1]:
            have[1][gram] = have[1].get(gram, 0) + change


def _f1(hits: int, predicted: int, reference: int, n: int) -> float:
    """F1 of texts of so many words."""
    return 2 * hits / max(predicted + reference - 2 * (n - 1), 1)
