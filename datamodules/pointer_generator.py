"""Data of the pointer-generator: words, with a vocabulary extended by the OOV words of each document."""

from dataclasses import dataclass
from typing import Any

from datamodules.batch import pad
from datamodules.extended_words import WordsBatch, WordsData, truncate, word_target_fields
from datamodules.text.vocabulary import PAD, UNK


@dataclass
class PointerGeneratorBatch(WordsBatch):
    """Whole documents, `source` [B, S] and `lengths` [B]; see `WordsBatch`."""


class PointerGeneratorData(WordsData):
    """Documents truncated to `max_source` words, first references to `max_target` (See et al. 2017: 400 and 100)."""

    batch_type = PointerGeneratorBatch

    def collate(self, rows: list[dict[str, Any]]) -> PointerGeneratorBatch:
        sources, targets, oov_words = truncate(rows, *self.lengths_now, self.vocab_size)
        extended = pad(sources, PAD)                                                 # [B, S]
        return PointerGeneratorBatch(
            ids=[row["id"] for row in rows],
            references=[row["references"] for row in rows],
            source=extended.masked_fill(extended >= self.vocab_size, UNK),
            source_extended=extended,
            lengths=pad([[len(source)] for source in sources]).squeeze(1),
            oov_words=oov_words,
            **word_target_fields(targets, self.vocab_size),
        )
