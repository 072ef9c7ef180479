"""Options of the optimizer, with the same names in all models."""

from dataclasses import dataclass
from typing import Literal

Schedule = Literal["linear", "inverse_root", "constant"]


@dataclass(frozen=True)
class OptimizerOptions:
    """Learning rate of a model that fixes everything else; not used if the config names an optimizer."""

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
    """Weight decay of matrices; the discourse parser and segmenter also decay vectors such as biases."""


@dataclass(frozen=True)
class EncoderAdamWOptions(AdamWOptions):
    """Options of AdamW and its schedule with a pretrained encoder; not used if the config names an optimizer."""

    encoder_lr: float = 5e-5
    """Peak learning rate of the pretrained encoder."""
    encoder_warmup_steps: float | None = None
    """Warm-up of the encoder, as `warmup_steps`, which is the default."""
