"""Data of the pointer-generator: words, and a vocabulary extended by each document's own."""

from dataclasses import dataclass
from typing import Any

from datamodules.batch import pad
from datamodules.extended_words import WordsBatch, WordsData, cut, word_target_fields
from datamodules.text.vocabulary import PAD, UNK


@dataclass
class PointerGeneratorBatch(WordsBatch):
    """Whole documents, `source` [B, S] and `lengths` [B]; see `WordsBatch`."""


class PointerGeneratorData(WordsData):
    """Documents cut to `max_source` words, first references to `max_target` (See et al. 2017: 400 and 100)."""

    batch_type = PointerGeneratorBatch

    def collate(self, rows: list[dict[str, Any]]) -> PointerGeneratorBatch:
        sources, targets, added = cut(rows, *self.lengths_now, self.vocab_size)
        extended = pad(sources, PAD)                                                 # [B, S]
        return PointerGeneratorBatch(
            ids=[row["id"] for row in rows],
            references=[row["references"] for row in rows],
            source=extended.masked_fill(extended >= self.vocab_size, UNK),
            source_extended=extended,
            lengths=pad([[len(source)] for source in sources]).squeeze(1),
            added=added,
            **word_target_fields(targets, self.vocab_size),
        )
