"""Decoder steps that sampling keeps with gradient, so that learning from the samples needs no second forward pass."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_modules.networks.copying import CopyOutputs


class KeptStep(NamedTuple):
    """One step of sampling, for the b documents that were still decoded."""

    documents: Tensor  # their indices in the batch, [b]
    outputs: CopyOutputs  # with gradient, [b, K, ...]
    probabilities: Tensor  # softmax over the permitted words, [b, K, words]
    total: Tensor  # log-sum-exp of their logits, [b, K]


def stack_outputs(steps: Sequence[KeptStep], num_documents: int) -> CopyOutputs:
    """Return the outputs of T steps for all B documents, [B, K, T, ...]; 0 where a document was no longer decoded."""
    stacked = []
    for parts in zip(*(step.outputs for step in steps)):  # for each field, its values in T steps, [b, K, ...] each
        if parts[0] is None:  # the gate, the last field, of a model that does not copy
            break
        zeros = parts[0].new_zeros(num_documents, *parts[0].shape[1:])
        stacked.append(torch.stack([zeros.index_copy(0, step.documents, part) for step, part in zip(steps, parts)], 2))
    return CopyOutputs(*stacked)


def kept_rows(steps: Sequence[KeptStep], start: int, end: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return positions, flat in [B K T], of the tokens of the steps `start` to `end` - 1; their log-sum-exp and P.

    They are the arguments `rows` and `precomputed` of `target_log_probs`, in the order of steps, documents and samples.
    Samples that have ended are included.
    """
    T, K = len(steps), steps[0].total.shape[1]
    part = steps[start:end]
    samples = torch.arange(K, device=steps[0].documents.device)
    rows = [(step.documents.unsqueeze(1) * K + samples) * T + t for t, step in enumerate(part, start)]  # [b, K] each
    totals = torch.cat([step.total.flatten() for step in part])                                  # [N]
    return torch.cat(rows).flatten(), (totals, *(step.probabilities.flatten(0, 1) for step in part))
