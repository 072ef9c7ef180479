"""What the data of models over a pretrained encoder share: its tokenizer, or one that is trained on the corpus."""

from typing import Any

import datasets

from datamodules.corpora.corpus import Corpus
from datamodules.summarization import SummarizationData, all_texts
from datamodules.text.encoder_text import EncoderText


class EncoderData(SummarizationData):
    """Documents as an encoder's tokens.

    Args:
        vocab_size: tokens of a tokenizer that is trained on the corpus, 260 or more; with `encoder` its tokenizer's
            tokens are at most as many.
        encoder: pretrained encoder whose tokenizer is used, see `BertSum`.

    The other arguments are those of `SummarizationData`.
    """

    text_type = EncoderText

    def __init__(
        self, corpus: Corpus, vocab_size: int = 30_522, encoder: str | None = "minilm", **shared: Any
    ) -> None:
        super().__init__(corpus, **shared)
        self.vocab_size, self.encoder = vocab_size, encoder

    def text_settings(self) -> dict[str, Any]:
        return {"kind": "encoder", "size": self.vocab_size, "encoder": self.encoder}

    def build_text(self, train: datasets.Dataset) -> EncoderText:
        if self.encoder is not None:
            return EncoderText.of_checkpoint(self.encoder)
        return EncoderText.build(all_texts(train), self.vocab_size)
