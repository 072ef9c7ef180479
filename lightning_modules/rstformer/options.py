"""Groups of arguments of RSTformer."""

from dataclasses import dataclass

from lightning_modules.options import AdamWOptions
from lightning_modules.rstformer.injection import Ablation, Injection
from lightning_modules.rstformer.led import AttentionPath


@dataclass(frozen=True)
class LEDOptions:
    """A LED (Longformer encoder-decoder): sizes, parts to train and implementation."""

    checkpoint: str | None = None
    """Name or folder of a pretrained LED, whose sizes replace those below. The data needs the same one."""
    frozen: bool = False
    """Train the decoder only, such as a new decoder over a pretrained encoder (`led_from_bert`). The encoder, and the
    embedding that it shares with the decoder, then have no dropout."""
    hidden_size: int = 256
    """Width D of a LED without pre-training."""
    heads: int = 4
    """Number of attention heads of encoder and decoder."""
    layers: int = 2
    """Number of encoder layers, and of decoder layers."""
    inner_size: int = 1024
    """Width inside the feed-forward layers."""
    window: int = 256
    """Size of the attention window in tokens, both sides together; even."""
    positions: int = 1024
    """Maximum number of tokens of a document."""
    target_positions: int = 256
    """Maximum number of tokens of a summary."""
    init_std: float = 0.02
    """Standard deviation of initial weights, except for embeddings, which have LED's 0.02. LED uses 0.02 for all, with
    D = 1,024; D^-1/2 is the equivalent for smaller models."""
    lora_rank: int = 0
    """Rank of RST-LoRA adapters, which are trained instead of the LED; discourse then weights their update in the
    encoder instead of the scores. 0 for none. Needs the extra `lora`."""
    lora_alpha: float = 16.0
    """The factor of the update is lora_alpha / lora_rank."""
    attention: AttentionPath = "auto"
    """Implementation: `chunked`, `dense` (for short texts), `fused` (CUDA) or `auto`."""
    checkpoint_activations: bool = False
    """Recompute activations in the backward pass, to save memory."""
    compile_layers: bool = False
    """Compile each layer with `torch.compile`: the first batches take minutes, later ones less time."""


@dataclass(frozen=True)
class InjectionOptions:
    """How discourse, the relations of elementary discourse units (EDUs), enters attention, see `injection.py`."""

    formula: Injection = "log_bias"
    """Formula by which p, the probability of a relation between two EDUs, enters the scores of their tokens."""
    ablation: Ablation = "none"
    """Ablation of discourse, see `RSTformerData`; the data needs the same one."""
    own_edu_neutral: bool = True
    """With `log_bias`, keep the scores of two tokens of the same EDU; false adds beta log(eps)."""
    relations: int = 15
    """Number of relations of the parser."""
    relation_frequency: list[float] | None = None
    """Frequency of each relation, for fewer heads than relations; by default the counts in GUM, whose 15 relations the
    default parser has."""
    learn_weights: bool = False
    """Learn the weights of relations for each head, initialized with one relation per head."""


@dataclass(frozen=True)
class RSTformerOptimizer(AdamWOptions):
    """AdamW, unless the config names an optimizer; no decay of discourse's parameters, no warm-up with `constant`."""

    lr: float = 3e-4
    """Peak learning rate."""
    discourse_rate: float = 10.0
    """Factor of the learning rate for parameters of discourse (beta, weights of relations). Beta is initialized with 0
    and moves by about the learning rate per step, too little in a short fine-tuning."""
