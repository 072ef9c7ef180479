"""Length budgets of `precis summarize`: words, sentences, shares of the document, lowest score."""

from bisect import bisect_right
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt, restricted_number_type

from datamodules.documents import UserError

if TYPE_CHECKING:
    from lightning_modules.summarizer import Summarizer, Summary
    from precis.summarizing.hugging_face import HuggingFaceSummarizer

Share = restricted_number_type("Share", float, [(">", 0), ("<=", 1)])  # of a document
NO_LIMIT = 1_000_000  # sentences
TOKENS_PER_WORD = 1.5  # subwords per word, punctuation included; a summary with more words is truncated


@dataclass(frozen=True)
class LengthBudget:
    """Limits of the length of summaries; None for no limit.

    An extractive model selects sentences within the limits. For a generative model the number of decoded tokens is
    limited, and a summary that still exceeds the budget is truncated after the last word or sentence within it.
    """

    words: int | None = None  # maximum number of words, separated by whitespace
    ratio: float | None = None  # the same, as a share of the words of the document
    sentences: int | None = None  # maximum number of sentences
    share: float | None = None  # the same, as a share of the sentences of the document; of extractive models
    min_score: float | None = None  # lowest score of a selected sentence; of extractive models

    def __bool__(self) -> bool:
        return any(value is not None for value in vars(self).values())

    def options(self, model: "Summarizer | HuggingFaceSummarizer") -> dict[str, Any]:
        """Return the changes of a model's selection or decoding (see `changed_options`).

        Raises:
            UserError: if the model has no such limit.
        """
        if not self:
            return {}
        from lightning_modules.extractive.matchsum import MatchSum  # imports torch

        if isinstance(model, MatchSum):
            raise UserError("MatchSum chooses among candidates of fixed lengths; leave the budget out")
        if hasattr(model, "selection"):
            return self.selection_options()
        for name in ("share", "min_score"):
            if getattr(self, name) is not None:
                raise UserError(f"--{name}: {type(model).__name__} selects no sentences; leave it out")
        if self.words is None:
            return {}
        if hasattr(model, "generator"):  # of Hugging Face, whose `max_length` counts the first symbol, too
            limits: Any = model.generator.limits
            (least, most), names = limits, ("min_new_tokens", "max_new_tokens")
        else:
            (least, most), names = (model.decoding.min_length, model.decoding.max_length), ("min_length", "max_length")
        most = min(most, round(TOKENS_PER_WORD * self.words) + 1)
        return dict(zip(names, (min(least, self.words // 2, most - 1), most)))

    def selection_options(self) -> dict[str, Any]:
        """Return the options of selection that the budget changes in an extractive model; empty without a budget."""
        if not self:
            return {}
        limits = {"words": self.words, "ratio": self.ratio, "share": self.share, "min_score": self.min_score}
        # 0 is no limit
        return {name: value or 0 for name, value in limits.items()} | {"k": self.sentences or NO_LIMIT}

    def cut(self, summary: "Summary", document_words: int) -> bool:
        """Cut a generated summary to the budget; return whether anything was cut off."""
        # the addend makes up for rounding, for example in 0.29 * 100 < 29
        limits = [self.words, None if self.ratio is None else max(1, int(self.ratio * document_words + 1e-3))]
        room = min((limit for limit in limits if limit is not None), default=None)
        before = list(summary.sentences)
        kept: list[str] = []
        for sentence in before[: self.sentences]:
            words = sentence.split()
            if room is not None and len(words) > room:
                kept += [" ".join(words[:room])] if room else []
                break
            kept.append(sentence)
            room = None if room is None else room - len(words)
        summary.sentences = kept
        if summary.words is not None:
            # `words` are tokens, of which detokenized text has all characters: "mill." is one word and two tokens.
            characters = sum(len(word) for sentence in kept for word in sentence.split())
            count = bisect_right(list(accumulate(map(len, summary.words))), characters)
            summary.words = summary.words[:count]
            summary.copied = summary.copied and summary.copied[:count]
        return kept != before


def add_budget_arguments(parser: ArgumentParser) -> None:
    """Add the options of a budget to a command."""
    add = parser.add_argument
    add("--words", type=PositiveInt | None, default=None, help="maximum number of words of a summary")
    add("--sentences", type=PositiveInt | None, default=None, help="maximum number of sentences of a summary")
    add("--ratio", type=Share | None, default=None, help="maximum number of words, as a share of the document's")
    add("--share", type=Share | None, default=None, help="the same for sentences; for extractive models")
    add("--min_score", type=float | None, default=None, help="lowest score of a selected sentence; extractive models")


def read_budget(options: Namespace) -> LengthBudget:
    """Return the budget of a command line."""
    return LengthBudget(**{field.name: options[field.name] for field in fields(LengthBudget)})
