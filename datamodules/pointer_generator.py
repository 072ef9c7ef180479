"""Data of the pointer-generator: words, with a vocabulary extended by the OOV words of each document."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from datamodules.batch import pad
from datamodules.extended_words import WordsBatch, WordsData
from datamodules.text.vocabulary import PAD


@dataclass
class PointerGeneratorBatch(WordsBatch):
    """Whole documents, `source` [B, S] and `lengths` [B]; see `WordsBatch`."""


class PointerGeneratorData(WordsData):
    """Documents truncated to `max_source` words, first references to `max_target` (See et al. 2017: 400 and 100)."""

    batch_type = PointerGeneratorBatch

    def arrange(self, sources: list[list[int]], rows: list[dict[str, Any]]) -> tuple[Tensor, Tensor]:
        return pad(sources, PAD), torch.tensor([len(source) for source in sources])      # [B, S], [B]
