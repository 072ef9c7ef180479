"""Samples of a batch that several updates learn from."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_modules.summarizer import Samples


@dataclass
class DrawnSamples:
    """Samples of a batch, with what is computed once for all updates."""

    tokens: Tensor  # the samples, see `Samples`
    lengths: Tensor
    advantage: Tensor  # of each token, 0 in masked samples, [B, K, T]
    log_probs: Tensor  # log P of the tokens under the model that drew them, [B, K, T]
    unmasked: Tensor  # whether a sample carries a gradient, [B, K, 1]
    reference: Tensor | None  # log P of the tokens under the reference model, [B, K, T]; None without `kl`
    values: dict[str, Tensor | float]  # logged values of the samples, by name
    uses: int = 0  # number of updates so far

    @property
    def samples(self) -> Samples:
        """The samples as `Generative.log_probs` reads them."""
        return Samples(self.tokens, self.lengths)

    def to(self, device: torch.device | str) -> "DrawnSamples":
        """Return a copy on a device."""
        parts = vars(self).items()
        return DrawnSamples(**{name: part.to(device) if isinstance(part, Tensor) else part for name, part in parts})


Waiting = dict[tuple[str, ...], DrawnSamples]  # samples with further updates, by the ids of their batch


def waiting_state(waiting: Waiting) -> list[dict[str, Any]]:
    """Return plain values for a checkpoint, those of all ranks, because rank 0 writes the state of every rank."""
    state = [
        {"ids": list(ids)} | asdict(drawn.to("cpu")) | {"values": {k: float(v) for k, v in drawn.values.items()}}
        for ids, drawn in waiting.items()
    ]
    if not torch.distributed.is_initialized():
        return state
    states: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, state)
    return [row for part in states for row in part]


def load_waiting(state: list[dict[str, Any]]) -> Waiting:
    """Return the samples of a checkpoint, by the ids of their batch."""
    return {tuple(row["ids"]): DrawnSamples(**{k: v for k, v in row.items() if k != "ids"}) for row in state}
