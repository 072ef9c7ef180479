"""Base class of DataModules with subword tokenizers, pretrained or trained on the corpus."""

from typing import TYPE_CHECKING, Any, ClassVar

from datamodules.corpora.corpus import Corpus
from datamodules.summarization import SavableTokenizer, SummarizationData, all_texts
from datamodules.text.subword_tokenizer import EncoderTokenizer
from datamodules.text.subwords import is_local
from datamodules.truncation import text_limits

if TYPE_CHECKING:
    import datasets  # imported when documents are read: models only need the types of batches


class TokenizerData(SummarizationData):
    """Base class of DataModules whose `tokenizer_type` is a tokenizer with `of_checkpoint` and `build`.

    Args:
        vocab_size: size of a tokenizer that is trained on the corpus.
        checkpoint: pretrained model whose tokenizer is used, or None to train one.
        shared: arguments of `SummarizationData`.
    """

    tokenizer_type = EncoderTokenizer
    text_kind: ClassVar[str] = "encoder"  # name of this kind of tokenization, in the cache key

    def __init__(self, corpus: Corpus, vocab_size: int, checkpoint: str | None, **shared: Any) -> None:
        super().__init__(corpus, **shared)
        self.vocab_size = vocab_size
        self.checkpoint = checkpoint

    def tokenizer_settings(self) -> dict[str, Any]:
        settings = {"kind": self.text_kind, "size": self.vocab_size, "checkpoint": self.checkpoint}
        if is_local(self.checkpoint):  # the content of a folder may change, unlike a released model
            settings["content"] = self.tokenizer_type.of_checkpoint(self.checkpoint).state()
        return settings

    def truncation_limits(self) -> dict[str, str]:  # count -> the option that limits it, for reports
        return text_limits(getattr(self, "max_source", None), getattr(self, "max_target", None))  # if it has them

    def build_tokenizer(self, train: "datasets.Dataset") -> SavableTokenizer:
        if self.checkpoint is not None:
            return self.tokenizer_type.of_checkpoint(self.checkpoint)
        return self.tokenizer_type.build(all_texts(train), self.vocab_size)
