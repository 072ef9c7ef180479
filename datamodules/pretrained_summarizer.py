"""Data of a sequence-to-sequence Transformer: documents and summaries as subwords."""

from typing import Any

from datamodules.batch import SourceTargetBatch, pad, target_fields
from datamodules.corpora.corpus import Corpus
from datamodules.documents import Document
from datamodules.loading import at_least
from datamodules.text.subword_tokenizer import MaskingTokenizer
from datamodules.tokenizer_data import TokenizerData
from datamodules.truncation import TRUNCATION, count_source, sentences_read, truncate_target


class PretrainedSummarizerData(TokenizerData):
    """Documents truncated to `max_source` subwords, and first references as targets, truncated to `max_target`.

    Validation and test score against all references; the loss reads the first one.

    Args:
        vocab_size: size of a byte-level BPE trained on the corpus, at least 261 (256 bytes and the special symbols);
            with `checkpoint` at least that of its tokenizer.
        checkpoint: name or folder of a pretrained encoder-decoder whose tokenizer is used.
        max_source: maximum number of tokens of a document with special symbols; at most the positions of the model.
        max_target: maximum number of tokens of a summary in the loss, end symbol included.
        source_prefix: text before each document, such as `summarize: ` for T5.
        shared: arguments of `SummarizationData`; `tokenizer_dir` is `RUN/text` to fine-tune the model of a run.
    """

    batch_type = SourceTargetBatch
    tokenizer_type = MaskingTokenizer
    text_kind = "masked subwords"

    def __init__(
        self,
        corpus: Corpus,
        vocab_size: int = 16_000,
        checkpoint: str | None = None,
        max_source: int = 512,
        max_target: int = 128,
        source_prefix: str = "",
        **shared: Any,
    ) -> None:
        super().__init__(corpus, vocab_size, checkpoint, **shared)
        at_least(3, max_source=max_source)  # a token besides special symbols
        at_least(2, max_target=max_target)
        self.max_source = max_source
        self.max_target = max_target
        self.source_prefix = source_prefix

    def feature_settings(self) -> dict[str, Any]:
        prefix = {"source_prefix": self.source_prefix} if self.source_prefix else {}
        return {"max_source": self.max_source, "max_target": self.max_target} | prefix

    @property
    def room(self) -> int:
        """Maximum number of tokens of a document that the encoder reads besides special symbols and prefix."""
        return self.max_source - len(self.tokenizer.opening) - len(self._prefix) - 1  # 1 for the end symbol

    @property
    def _prefix(self) -> list[int]:
        """Ids of `source_prefix`."""
        return self.tokenizer(self.source_prefix)[0] if self.source_prefix else []

    def framed(self, source: list[int], target: list[int]) -> dict[str, Any]:
        """Return the features of the ids of a document and of a summary: both truncated and with special symbols."""
        source_read = source[: self.room]  # the ids that fit besides the prefix and special symbols
        target, counts = truncate_target(target, self.max_target, self.tokenizer.stop)  # `counts` of target tokens
        framed = [*self.tokenizer.opening, *self._prefix, *source_read, self.tokenizer.stop]
        return {
            "source": framed,
            "target": target,
            "length": len(framed),  # by which batches are sorted
            TRUNCATION: {"source_tokens": [len(source_read), len(source)]} | counts,  # numbers read and in total
        }

    def encode(self, document: Document) -> dict[str, Any]:
        ids, offsets = self.tokenizer(document.text)  # offsets are (start, end) in characters
        reference, _ = self.tokenizer(" ".join(document.reference))
        features = self.framed(ids, reference)
        num_read = min(len(ids), self.room)
        features[TRUNCATION] |= count_source(document, num_read, len(ids), sentences_read(document, offsets, num_read))
        return features

    def collate(self, rows: list[dict[str, Any]]) -> SourceTargetBatch:
        sources = [row["source"] for row in rows]
        return SourceTargetBatch(
            ids=[row["id"] for row in rows],
            references=[row["references"] for row in rows],
            source=pad(sources, self.tokenizer.pad),  # [B, S]
            source_mask=pad([[1] * len(source) for source in sources]).bool(),  # True at tokens, [B, S]
            **target_fields([row["target"] for row in rows], self.tokenizer.pad),
        )


PegasusData = PretrainedSummarizerData  # its name in configs of PEGASUS
