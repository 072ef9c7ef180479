"""Options of pretrained models of Hugging Face, for the command line and for Python."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from jsonargparse import Namespace
from jsonargparse.typing import PositiveInt


@dataclass(frozen=True)
class PretrainedOptions:
    """How a pretrained model of Hugging Face reads documents and writes summaries.

    Attributes:
        generation: generation settings that replace those of the model's card, such as --generation.num_beams 8.
        source_prefix: text before each document; by default that of the model's task, such as `summarize: ` of T5.
        prompt: prompt with {document}, the text or a file; by default three sentences for chat models.
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


def read_pretrained_options(options: Namespace) -> PretrainedOptions:
    """Return the options of a pretrained model on a command line."""
    return PretrainedOptions(**{field.name: options[field.name] for field in fields(PretrainedOptions)})
