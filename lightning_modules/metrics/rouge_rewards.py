"""Fast ROUGE-L of whole batches, on words or token ids: the reward of self-critical training."""

from collections.abc import Callable, Sequence
from typing import Any

from datamodules.text.rouge_counts import Score, lcs_length, position_masks, score_of
from datamodules.text.rouge_words import vocabulary


def rouge_l_texts(
    hypotheses: Sequence[str], references: Sequence[str], stem: bool | str = True, language: str = "en"
) -> list[Score]:
    """Return ROUGE-L of pairs of texts, equal to `score_many` with "rougeL".

    It is faster if the hypotheses of one reference are consecutive, so that the reference is encoded once.

    Raises:
        ValueError: if the lengths differ, or a reference has no word (with its index).
    """
    words = vocabulary(stem, language)
    words.limit_size()
    return _rouge_l(hypotheses, references, words.split, words.__getitem__)


def rouge_l_ids(hypotheses: Sequence[Sequence[int]], references: Sequence[Sequence[int]]) -> list[Score]:
    """Return ROUGE-L of pairs of token ids, otherwise as `rouge_l_texts`.

    Raises:
        ValueError: if the lengths differ, or a reference is empty (with its index).
    """
    return _rouge_l(hypotheses, references, list)


def _rouge_l(
    hypotheses: Sequence[Any],
    references: Sequence[Any],
    units: Callable[[Any], list],
    number: Callable[[Any], int] | None = None,
) -> list[Score]:
    """Return the score of each pair; `units` splits a row into units, and `number` maps units to integers."""
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses but {len(references)} references")
    scores = []
    previous = None
    for hypothesis, reference in zip(hypotheses, references):
        if reference != previous:
            previous, expected = reference, units(reference)
            if not expected:
                raise ValueError(f"reference {len(scores)} is empty")
            masks, full = position_masks(map(number, expected) if number else expected)
        predicted = units(hypothesis)
        length = lcs_length(map(number, predicted) if number else predicted, masks, full)
        scores.append(score_of(length, len(predicted), len(expected)))
    return scores
