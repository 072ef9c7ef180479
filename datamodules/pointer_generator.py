"""Data of the pointer-generator: words, with a vocabulary extended by the OOV words of each document."""

from dataclasses import dataclass

from datamodules.extended_words import WordsBatch, WordsData


@dataclass
class PointerGeneratorBatch(WordsBatch):
    """Whole documents, `source` [B, S] and `lengths` [B]; see `WordsBatch`."""


class PointerGeneratorData(WordsData):
    """Documents truncated to `max_source` words, first references to `max_target` (See et al. 2017: 400 and 100)."""

    batch_type = PointerGeneratorBatch
