"""Groups of arguments of GraphSum."""

from dataclasses import dataclass
from typing import Literal

from lightning_modules.networks.transformer import Norm

Encoder = Literal["graph", "hierarchical", "flat"]


@dataclass(frozen=True)
class GraphSumEncoder:
    """Encoder over tokens and paragraphs; sizes also are those of the decoder."""

    kind: Encoder = "graph"
    """`graph`, `hierarchical` or `flat`."""
    checkpoint: str | None = None
    """Name or folder of a pretrained encoder, or `minilm`, which replaces the token layers and reads the concatenated
    paragraphs in overlapping windows. The data needs the same one."""
    frozen: bool = False
    """Do not train the pretrained encoder."""
    pretrained_embeddings: bool = False
    """Initialize the shared embedding with the word embeddings of the checkpoint, whose width `hidden_size` has to be.
    The separators are not among them."""
    window: int | None = None
    """Number of tokens of a window, special tokens included; by default its number of positions (512 for MiniLM and
    BERT)."""
    hidden_size: int = 256
    """Width D, even (a multiple of four with paragraph positions)."""
    heads: int = 8
    """Number of attention heads."""
    inner_size: int = 1024
    """Width inside the feed-forward networks."""
    token_layers: int = 6
    """Number of layers within paragraphs (`flat`: over all tokens)."""
    paragraph_layers: int = 2
    """Number of layers over paragraphs."""
    norm: Norm = "pre"
    """`pre` as in the released code, `post` as in the paper."""
    paragraph_positions: bool = True
    """Encode the position of the paragraph in half of the position embedding."""
    multi_head_pooling: bool = True
    """Pool the tokens of a paragraph by attention; otherwise by their mean."""


@dataclass(frozen=True)
class GraphBiasOptions:
    """Bias of attention by the graph G of paragraphs, -(1 - G)^2 / (2 sigma^2)."""

    sigma: float = 1.0
    """Width of the bias."""
    learn_sigma: bool = False
    """Learn sigma, one for each layer."""
    in_encoder: bool = True
    """Bias the encoder."""
    in_decoder: bool = True
    """Bias the decoder."""


@dataclass(frozen=True)
class GraphSumOptimizer:
    """Options of Adam; not used if the config names an optimizer."""

    lr: float = 2.0
    """Factor of the Noam schedule."""
    warmup_steps: int = 8000
    """Number of warm-up steps of the Noam schedule."""
    encoder_lr: float = 1.4e-5
    """Peak learning rate of a pretrained encoder; by default that of the paper, 0.002 x 20,000^-0.5."""
    encoder_warmup_steps: int = 20_000
    """Number of warm-up steps of this rate, which then decreases with step^-0.5."""
    sigma_lr: float | None = None
    """Constant learning rate of log sigma; by default that of other parameters, which is small."""
