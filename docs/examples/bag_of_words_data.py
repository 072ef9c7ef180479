"""Data of the bag-of-words baseline: documents and summaries as ids of a vocabulary of words."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from datamodules.batch import Batch, pad
from datamodules.extended_words import WordsData
from datamodules.text.vocabulary import PAD, START, UNK


# --8<-- [start:batch]
@dataclass
class BagOfWordsBatch(Batch):
    """Documents and summaries as ids.

    Attributes:
        source: words of the documents, [B, S].
        source_mask: True at words, [B, S].
        target_input: the start symbol and the summary, [B, T].
        target: the summary and the end symbol, [B, T].
    """

    source: Tensor
    source_mask: Tensor
    target_input: Tensor
    target: Tensor
    # --8<-- [end:batch]


# --8<-- [start:data]
class BagOfWordsData(WordsData):
    """Documents cut to `max_source` words, first references to `max_target`; arguments as in `WordsData`."""

    batch_type = BagOfWordsBatch

    def collate(self, rows: list[dict[str, Any]]) -> BagOfWordsBatch:
        def known(ids: list[int]) -> list[int]:  # ids of V and above are words of the document outside the vocabulary
            return [id if id < self.vocab_size else UNK for id in ids]

        sources = [known(row["source"]) for row in rows]
        targets = [known(row["target"]) for row in rows]
        return BagOfWordsBatch(
            ids=[row["id"] for row in rows],
            references=[row["references"] for row in rows],
            source=pad(sources, PAD),
            source_mask=pad([[1] * len(source) for source in sources]).bool(),
            target_input=pad([[START, *target[:-1]] for target in targets], PAD),  # the previous word at each step
            target=pad(targets, PAD),
        )
    # --8<-- [end:data]
