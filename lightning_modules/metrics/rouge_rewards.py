"""ROUGE-L of whole batches with the least ado: the reward of self-critical training, on words or on token ids."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from torch import Tensor

from lightning_modules.metrics.rouge_counts import Score, lcs_length, places, score_of
from lightning_modules.metrics.rouge_words import vocabulary


def rouge_l_texts(
    hypotheses: Sequence[str], references: Sequence[str], stem: bool | str = True, tokenizer: str = "rouge"
) -> list[Score]:
    """ROUGE-L of texts, a pair a row; the same scores as `score_many` gives for "rougeL".

    Hypotheses of one reference (samples, the greedy summary) are best put side by side: it is prepared once for all.

    Args:
        hypotheses: N texts.
        references: N texts.
        stem, tokenizer: as in `rouge_scores`.

    Raises:
        ValueError: if the lengths differ, or a reference has no word (with its index).
    """
    words = vocabulary(stem, tokenizer)
    words.bound()
    return _rouge_l(hypotheses, references, words.split, words.__getitem__)


def rouge_l_ids(
    hypothesis_ids: Sequence[Sequence[int]] | Tensor,
    reference_ids: Sequence[Sequence[int]] | Tensor,
    ignore: Collection[int] = (),
) -> list[Score]:
    """ROUGE-L of token ids, a pair a row; hypotheses of one reference are best put side by side.

    Args:
        hypothesis_ids: N lists of ids, or a tensor [N, T].
        reference_ids: N lists of ids, or a tensor [N, T'].
        ignore: ids that are not text (padding, start, end); they are left out on both sides.

    Raises:
        ValueError: if the lengths differ, or a reference has no token left (with its index).
    """
    hypotheses, references = (
        ids.tolist() if isinstance(ids, Tensor) else ids for ids in (hypothesis_ids, reference_ids)
    )
    skipped = frozenset(ignore)
    units = (lambda row: [token for token in row if token not in skipped]) if skipped else list
    return _rouge_l(hypotheses, references, units)


def _rouge_l(
    hypotheses: Sequence[Any],
    references: Sequence[Any],
    units: Callable[[Any], list],
    number: Callable[[Any], int] | None = None,
) -> list[Score]:
    """Scores of each pair. `units` cuts a row; `number` makes integers of its units, one by one as they are needed."""
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses but {len(references)} references")
    scores = []
    previous = None
    for hypothesis, reference in zip(hypotheses, references):
        if reference != previous:
            previous, expected = reference, units(reference)
            if not expected:
                raise ValueError(f"reference {len(scores)} is empty")
            masks, full = places(map(number, expected) if number else expected)
        predicted = units(hypothesis)
        length = lcs_length(map(number, predicted) if number else predicted, masks, full)
        scores.append(score_of(length, len(predicted), len(expected)))
    return scores
