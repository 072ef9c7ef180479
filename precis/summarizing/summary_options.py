"""Options of summaries: limits of their length, and how models of Hugging Face read and write. Light to import."""

from bisect import bisect_right
from dataclasses import dataclass, field, fields
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from jsonargparse import Namespace
from jsonargparse.typing import NonNegativeFloat, PositiveInt, restricted_number_type

from datamodules.documents import UserError
from datamodules.text.language import first_words

if TYPE_CHECKING:
    from lightning_modules.summarizer import Summary

Share = restricted_number_type("Share", float, [(">", 0), ("<=", 1)])  # of a document
Options = TypeVar("Options")  # a dataclass
NO_LIMIT = 1_000_000  # words or sentences, more than any summary has
TOKENS_PER_WORD = 1.5  # subwords per word, punctuation included: an estimate; a summary with more words is truncated


@dataclass(frozen=True)
class LengthBudget:
    """Limits of the length of summaries; None for no limit.

    An extractive model selects sentences within the limits. For a generative model the number of decoded tokens is
    limited, and a summary that still exceeds the budget is truncated after the last word or sentence within it.

    Attributes:
        words: maximum number of words of a summary; in scripts without spaces, of characters and marks.
        sentences: maximum number of sentences of a summary.
        ratio: maximum number of words, as a share of the document's words.
        share: maximum number of sentences, as a share of the document's sentences; for extractive models.
        min_score: lowest score of a selected sentence; for extractive models.
    """

    words: PositiveInt | None = None
    sentences: PositiveInt | None = None
    ratio: Share | None = None
    share: Share | None = None
    min_score: NonNegativeFloat | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in vars(self).values())

    def options(self, model: Any) -> dict[str, Any]:
        """Return the options to change in a model's selection or decoding; a `UserError` if it has no such limit."""
        if not self:  # no limit is set
            return {}
        from lightning_modules.extractive.matchsum import MatchSum  # imports torch

        if isinstance(model, MatchSum):
            raise UserError("MatchSum chooses among candidates of fixed lengths; leave the budget out")
        if hasattr(model, "selection"):
            return self.selection_options()
        for name in ("share", "min_score"):
            if getattr(self, name) is not None:
                raise UserError(f"--{name}: {type(model).__name__} selects no sentences; leave it out")
        if self.words is None:  # `ratio` and `sentences` do not change decoding: `cut` applies them afterwards
            return {}
        if hasattr(model, "generator"):  # of Hugging Face; its `max_length` would count the start symbol, too
            minimum, maximum = model.generator.limits
            names = ("min_new_tokens", "max_new_tokens")
        else:
            minimum, maximum = model.decoding.min_length, model.decoding.max_length
            names = ("min_length", "max_length")
        maximum = min(maximum, round(TOKENS_PER_WORD * self.words) + 1)  # an estimate; 1 for the end symbol
        minimum = min(minimum, self.words // 2, maximum - 1)  # // 2: more would force summaries to fill the budget
        return dict(zip(names, (minimum, maximum)))

    def selection_options(self) -> dict[str, Any]:
        """Return the fields of `SelectionOptions` that this budget sets; empty without a budget."""
        if not self:
            return {}
        limits = {"words": self.words, "ratio": self.ratio, "share": self.share, "min_score": self.min_score}
        # In `SelectionOptions`, 0 is no limit. Its default of `k`, 3 sentences, must not limit a budget of words.
        return {name: value or 0 for name, value in limits.items()} | {"k": self.sentences or NO_LIMIT}

    def cut(self, summary: "Summary", document_words: int) -> bool:
        """Cut a summary in place to the budget, for a document of `document_words` words; return whether it changed."""
        limit = self.words or NO_LIMIT
        if self.ratio is not None:
            limit = min(limit, max(1, int(self.ratio * document_words + 1e-3)))  # 1e-3: 0.29 * 100 is a little below 29
        before = summary.sentences
        summary.sentences = sentences = first_words(before[: self.sentences], limit)  # [: None] is all sentences
        if summary.words is not None:  # tokens of a model that copies; `copied` tells which of them are copies
            # A word may be several tokens ("mill." is two), so keep as many characters (no spaces) as the cut text has.
            characters = sum(len(word) for sentence in sentences for word in sentence.split())
            count = bisect_right(list(accumulate(len(token.strip()) for token in summary.words)), characters)
            summary.words = summary.words[:count]
            summary.copied = summary.copied and summary.copied[:count]
        return sentences != before


@dataclass(frozen=True)
class PretrainedOptions:
    """How a pretrained model of Hugging Face reads documents and writes summaries.

    Attributes:
        generation: generation settings that replace those of the model's card, such as --generation.num_beams 8.
        source_prefix: text before each document; by default that of the model's task, such as `summarize: ` of T5.
        prompt: prompt with {document}, the text or a file; by default it asks chat models for three sentences.
        max_source: maximum number of input tokens; by default as many as the model takes.
        long_documents: truncate after max_source tokens, summarize windows of whole sentences and join their summaries,
            or summarize the joined summaries again (second_pass).
        batch_tokens: maximum number of input tokens in a batch, with padding.
        dtype: data type of the weights.
        device: cpu, cuda, ...; auto uses a GPU if there is one.
        language: ISO code of the language, which divides texts into sentences.
    """

    generation: dict[str, Any] = field(default_factory=dict)
    source_prefix: str | None = None
    prompt: str | None = None
    max_source: int | None = None
    long_documents: Literal["truncate", "windows", "second_pass"] = "windows"
    batch_tokens: PositiveInt = 8192
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str = "auto"
    language: str = "en"


def read_options(kind: type[Options], options: Namespace) -> Options:
    """Return a dataclass of type `kind`, filled with the parsed `options` of a command that its fields name."""
    return kind(**{field.name: options[field.name] for field in fields(kind)})
