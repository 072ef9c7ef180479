"""Groups of arguments of GraphSum."""

from dataclasses import dataclass
from typing import Literal

from lightning_modules.networks.transformer import Norm

Encoder = Literal["graph", "hierarchical", "flat"]


@dataclass(frozen=True)
class GraphSumEncoder:
    """Encoder over tokens and paragraphs; the decoder has the same sizes."""

    kind: Encoder = "graph"
    """`graph`, `hierarchical` or `flat`."""
    checkpoint: str | None = None
    """Name or folder of a pretrained encoder, or `minilm`, which replaces the token layers and reads the concatenated
    paragraphs in overlapping windows. The data needs the same one."""
    frozen: bool = False
    """Do not train the pretrained encoder."""
    pretrained_embeddings: bool = False
    """Initialize the shared embedding with the word embeddings of the checkpoint, except for separators; `hidden_size`
    must be their width."""
    window: int | None = None
    """Number of tokens of the pretrained encoder's windows, special tokens included; by default its number of
    positions (512 for MiniLM and BERT)."""
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
    """Bias of attention scores, -(1 - G)^2 / (2 sigma^2), by the graph G, weights between paragraphs in [0, 1]."""

    sigma: float = 1.0
    """Sigma; the larger, the smaller is the bias."""
    learn_sigma: bool = False
    """Learn sigma, one for each layer."""
    in_encoder: bool = True
    """Bias attention in the encoder."""
    in_decoder: bool = True
    """Bias attention in the decoder."""


@dataclass(frozen=True)
class GraphSumOptimizer:
    """Options of Adam; not used if the config names an optimizer."""

    lr: float = 2.0
    """Factor of the Noam schedule."""
    warmup_steps: int = 8000
    """Number of warm-up steps of the Noam schedule."""
    encoder_lr: float = 1.4e-5
    """Peak learning rate of a pretrained encoder; by default 0.002 x 20,000^-0.5 as in the paper."""
    encoder_warmup_steps: int = 20_000
    """Number of warm-up steps of `encoder_lr`, which then decreases with step^-0.5."""
    sigma_lr: float | None = None
    """Constant learning rate of log sigma; by default the small rate of other parameters."""
