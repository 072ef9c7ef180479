"""Data of the pointer-generator: words, and a vocabulary extended by each document's own."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from datamodules.batch import Batch, on_host, pad
from datamodules.extended_words import WordsData, cut, word_target_fields
from datamodules.text.vocabulary import PAD, UNK


@dataclass
class PointerGeneratorBatch(Batch):
    """Documents and summaries as ids; id V + k is the k-th word of a document that the vocabulary lacks.

    Attributes:
        source: vocabulary ids, [B, S].
        source_extended: extended ids, [B, S].
        lengths: words of each document, [B], in the host's memory.
        target_input: the start symbol and the summary, UNK where the vocabulary lacks a word, [B, T].
        target: the summary in extended ids and the end symbol, [B, T].
        target_lengths: tokens of each target, [B].
        target_rows: flat positions of the target's real tokens in [B T], [N].
        added: the words that extend the vocabulary, a list a document.
    """

    source: Tensor
    source_extended: Tensor
    lengths: Tensor = on_host()
    target_input: Tensor
    target: Tensor
    target_lengths: Tensor
    target_rows: Tensor
    added: list[list[str]]


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
