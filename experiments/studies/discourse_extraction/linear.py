"""Linear ranker of sentences in closed form: what discourse adds to other inputs, without training noise."""

from collections.abc import Sequence

import torch
from torch import Tensor

from experiments.studies.discourse_extraction.ranker import Inputs, RankingBatch, band_sums, relation_sums
from experiments.studies.discourse_extraction.training import FOLDS, Documents

RIDGE = 100.0


def linear_inputs(batch: RankingBatch, inputs: Inputs, by_relation: bool = False) -> Tensor:
    """Return the inputs of each sentence without the mean of its document, [B, S, F].

    They are vectors and places as `inputs` says and, where the batch has discourse, how much of a nucleus and of a
    satellite a sentence is (`band_sums`), and the logarithms of both; with `by_relation` also how much of each
    relation (`relation_sums`).
    """
    parts = []
    if inputs != "discourse alone":
        parts.append(batch.vectors)
    if inputs == "vectors and places":
        parts.append(batch.places)
    if batch.band is not None:
        sums = band_sums(batch.band)
        parts += [sums, (sums + 0.01).log()]
        if by_relation:
            parts.append(relation_sums(batch.band))
    return _centred(torch.cat(parts, -1), batch.mask)


def _centred(values: Tensor, mask: Tensor) -> Tensor:
    """Subtract the mean over the sentences of a document, [B, S, F]; zero at padding."""
    values = values * mask.unsqueeze(-1)
    means = values.sum(1, keepdim=True) / mask.sum(1).clamp(min=1)[:, None, None]
    return (values - means) * mask.unsqueeze(-1)


def ridge_scores(
    inputs: Inputs, batches: Sequence[RankingBatch], corpus: Documents, by_relation: bool = False
) -> list[Tensor]:
    """Return the scores of the sentences of each document by ridge regression on the documents of the other folds.

    Args:
        inputs: representation of a sentence.
        batches: all documents, with or without discourse.
        corpus: the documents in the same order, with their folds.
        by_relation: as in `linear_inputs`.

    Returns:
        [S] for each document.
    """
    rows, targets = [], []
    for batch in batches:
        centred = _centred(batch.target.unsqueeze(-1), batch.mask).squeeze(-1)
        values = linear_inputs(batch, inputs, by_relation).double()                       # [B, S, F]
        for number, mask in enumerate(batch.mask):
            rows.append(values[number, mask])                                             # [S, F]
            targets.append(centred[number, mask].double())                                # [S]
    scores: list[Tensor] = [torch.empty(0)] * len(rows)
    for fold in range(FOLDS):
        training = [number for number, of_document in enumerate(corpus.folds) if of_document != fold]
        x, y = (torch.cat([values[number] for number in training]) for values in (rows, targets))
        scale = x.square().mean(0).sqrt().clamp(min=1e-9)                                 # [F]
        x = x / scale
        weights = torch.linalg.solve(x.T @ x + RIDGE * torch.eye(x.shape[1], dtype=x.dtype), x.T @ y)
        for number, of_document in enumerate(corpus.folds):
            if of_document == fold:
                scores[number] = (rows[number] / scale) @ weights
    return scores
