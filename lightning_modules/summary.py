"""`Summary`, which every model returns for a document."""

from dataclasses import dataclass, field
from typing import Any

from datamodules.text.language import join_sentences
from lightning_modules.metrics.rouge import rouge_scores

ROUGE_VARIANTS = ("rouge1", "rouge2", "rougeL", "rougeLsum")


@dataclass
class Summary:
    """Summary of one document, with its references and scores."""

    id: str  # of the document
    sentences: list[str]
    references: list[list[str]]  # reference summaries of the document, each a list of sentences
    words: list[str] | None = None  # words of the summary that `copied` refers to
    copied: list[bool] | None = None  # for each word, whether it was copied; None for models that do not copy
    scores: dict[str, float] = field(default_factory=dict)  # F1 x 100 for ROUGE; empty without references
    extra: dict[str, Any] = field(default_factory=dict)  # further values by name that the model adds to the record

    @property
    def text(self) -> str:
        """The sentences, joined by spaces where the script has them."""
        return join_sentences(self.sentences)

    @property
    def copied_words(self) -> list[str]:
        """The words that were copied from the document; empty for models that do not copy."""
        return [word for word, copied in zip(self.words or (), self.copied or ()) if copied]

    def score(self, language: str) -> None:
        """Set `scores`, if a reference is not blank: ROUGE F1 x 100 against the best reference."""
        if any(sentence.strip() for reference in self.references for sentence in reference):
            scores = rouge_scores(self.sentences, self.references, ROUGE_VARIANTS, language=language)
            self.scores = {name: 100 * score.fmeasure for name, score in scores.items()}

    def record(self) -> dict[str, Any]:
        """Return the fields of the summary's line in predictions.jsonl."""
        record = {"id": self.id, "summary": self.sentences, "references": self.references, "scores": self.scores}
        record |= self.extra
        return record | ({"copied": self.copied, "words": self.words} if self.copied is not None else {})
