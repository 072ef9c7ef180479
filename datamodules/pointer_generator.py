"""Data of the pointer-generator: words, and a vocabulary extended by each document's own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from torch import Tensor

from datamodules.batch import Batch, on_host, pad
from datamodules.corpora.corpus import Corpus
from datamodules.documents import Document
from datamodules.extended_words import corpus_vocabulary, cut, encode_words, target_fields
from datamodules.summarization import SummarizationData
from datamodules.text.vocabulary import PAD, UNK, Vocabulary
from datamodules.text.words import Tokenizer


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


class PointerGeneratorData(SummarizationData):
    """Documents cut to `max_source` words, first references to `max_target` (See et al. 2017: 400 and 100).

    Validation and test score against all references; the loss reads the first one.

    Args:
        vocab_size: V, four special symbols included; a corpus with fewer words fills what it has.
        max_source: words of a document that the encoder reads.
        max_target: tokens of a summary in the loss, end symbol included.
        tokenizer: `words`, or `whitespace` for text that is tokenised already.
        lowercase: fold case.

    The other arguments are those of `SummarizationData`.
    """

    def __init__(
        self,
        corpus: Corpus,
        vocab_size: int = 50_000,
        max_source: int = 400,
        max_target: int = 100,
        tokenizer: Tokenizer = "words",
        lowercase: bool = True,
        **shared: Any,
    ) -> None:
        super().__init__(corpus, **shared)
        if max_source < 1 or max_target < 2:
            raise ValueError(f"data.max_source must be at least 1 and max_target 2; got {max_source}, {max_target}")
        self.vocab_size, self.max_source, self.max_target = vocab_size, max_source, max_target
        self.tokenizer, self.lowercase = tokenizer, lowercase
        self.lengths_now = (max_source, max_target)  # LengthCurriculum lowers these

    def text_settings(self) -> dict[str, Any]:
        return {"size": self.vocab_size, "tokenizer": self.tokenizer, "lowercase": self.lowercase}

    def build_text(self, train: datasets.Dataset) -> Vocabulary:
        return corpus_vocabulary(train, self.vocab_size, self.tokenizer, self.lowercase)

    def load_text(self, folder: Path) -> Vocabulary:
        return Vocabulary.load(folder)

    def feature_settings(self) -> dict[str, Any]:
        return {"vocab_size": self.vocab_size, "max_source": self.max_source, "max_target": self.max_target}

    def encode(self, document: Document) -> dict[str, Any]:
        words: list[str] = []
        for sentence in document.sentences:
            words += self.text.tokenize(sentence)
            if len(words) >= self.max_source:
                break
        return encode_words(self.text, words[: self.max_source], document, self.vocab_size, self.max_target)

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
            **target_fields(targets, self.vocab_size),
        )
