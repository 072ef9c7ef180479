"""What extractive models share: the record of a summary whose sentences are the document's, and learning rates."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from lightning_modules.networks.selection import Relations, SelectionOptions, select
from lightning_modules.summarizer import Summary

Schedule = Literal["linear", "inverse_root", "constant"]


@dataclass
class ExtractiveSummary(Summary):
    """A summary made of the document's sentences.

    Attributes:
        positions: which sentences, from 0, in the summary's order.
        sentence_scores: of all sentences of the document, as the model ranks them.
        document: the sentences of the document; neither it nor the attention is part of the record.
        attention: between its sentences, [L, L], where somebody asked for it.
    """

    positions: list[int] = field(default_factory=list)
    sentence_scores: list[float] = field(default_factory=list)
    document: list[str] = field(default_factory=list)
    attention: np.ndarray | None = None

    def record(self) -> dict[str, Any]:
        """A line of predictions.jsonl."""
        return super().record() | {
            "positions": self.positions,
            "sentence_scores": [round(score, 6) for score in self.sentence_scores],
        }


def extract(
    ids: list[str],
    references: list[list[list[str]]],
    documents: list[list[str]],
    scores: Tensor,
    candidates: Tensor,
    relations: Relations | None,
    options: SelectionOptions,
) -> list[ExtractiveSummary]:
    """Summaries of a batch.

    Args:
        ids: of the documents.
        references: their summaries.
        documents: their sentences.
        scores: [B, L].
        candidates: True at sentences that may be selected, [B, L].
        relations: as in `select`.
        options: the same.
    """
    taken = select(scores, candidates, relations, options).tolist()
    summaries = []
    for number, (row, values) in enumerate(zip(taken, scores.tolist())):
        positions = [index for index in row if index >= 0]
        positions = sorted(positions) if options.order == "document" else positions
        sentences = documents[number]
        summaries.append(
            ExtractiveSummary(
                ids[number],
                [sentences[index] for index in positions],
                references[number],
                positions=positions,
                sentence_scores=values[: len(sentences)],
                document=sentences,
            )
        )
    return summaries


def two_rates(
    module: nn.Module,
    encoder: nn.Module,
    encoder_rate: float,
    rate: float,
    schedule: Schedule,
    warm_up: float,
    steps: int,
    weight_decay: float,
    encoder_warm_up: float | None = None,
) -> dict[str, Any]:
    """What `configure_optimizers` returns: AdamW, one rate for a pretrained encoder and one for what is new.

    Args:
        module: all that is trained.
        encoder: the part of it that is pretrained.
        encoder_rate: its peak rate.
        rate: of the rest.
        schedule: `linear`, up over the warm-up and down to 0 over the rest of the training; `inverse_root`, up over the
            warm-up and with step^-0.5 from there on (Vaswani et al. 2017, scaled to the given peak); `constant`.
        warm_up: steps, or the share of all steps if it is below 1.
        steps: of the whole training; `inverse_root` and a warm-up in steps do not depend on it.
        weight_decay: of matrices; vectors such as biases have none.
        encoder_warm_up: the same of the encoder; as the rest if not given.
    """
    inner = {id(parameter) for parameter in encoder.parameters()}
    groups, factors = [], []
    first = warm_up if encoder_warm_up is None else encoder_warm_up
    for chosen, peak, rise in ((True, encoder_rate, first), (False, rate, warm_up)):
        for decayed in (True, False):
            found = _parameters(module.parameters(), inner, chosen, decayed)
            if found:
                groups.append({"params": found, "lr": peak, "weight_decay": weight_decay if decayed else 0.0})
                factors.append(partial(_factor, schedule=schedule, steps=steps, warm_up=rise))
    optimizer = torch.optim.AdamW(groups)
    lr = torch.optim.lr_scheduler.LambdaLR(optimizer, factors)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": lr, "interval": "step"}}


def _factor(step: int, schedule: Schedule, steps: int, warm_up: float) -> float:
    """The share of the peak rate at a step."""
    rise = max(1, round(warm_up * steps if warm_up < 1 else warm_up))
    up = (step + 1) / rise
    if schedule == "constant":
        return min(1.0, up)
    if schedule == "inverse_root":
        return min(up, (rise / (step + 1)) ** 0.5)
    return min(up, max(0.0, (steps - step) / max(1, steps - rise)))


def _parameters(
    parameters: Iterable[nn.Parameter], inner: set[int], chosen: bool, decayed: bool
) -> list[nn.Parameter]:
    return [p for p in parameters if p.requires_grad and (id(p) in inner) == chosen and (p.dim() > 1) == decayed]
