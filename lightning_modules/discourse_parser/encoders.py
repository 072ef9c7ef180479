"""Token encoders of the discourse parser."""

from collections.abc import Sequence

import torch

from datamodules.text.subwords import Subwords, encoder_path
from lightning_modules.networks.low_rank import add_low_rank_changes
from lightning_modules.networks.text_encoder import TextEncoder


def pretrained_encoder(
    name: str,
    subwords: Subwords,
    layers: Sequence[int],
    window: int,
    frozen: bool = True,
    frozen_layers: int = 0,
    dropout: float | None = None,
    lora_rank: int = 0,
) -> TextEncoder:
    """Build a pretrained encoder; where it is trained, its windows do not overlap in training.

    Args:
        name: `minilm`, or a Hugging Face name or folder.
        subwords: its tokenizer.
        layers: hidden states that are concatenated; 0 is the embedding layer.
        window: number of tokens in a window.
        frozen: do not train the encoder's own weights.
        frozen_layers: number of lowest layers that are not trained, nor are the embeddings; 0 trains all weights.
        dropout: dropout within the encoder; its own by default.
        lora_rank: rank of changes that are trained instead of weight matrices (`low_rank`); 0 for none.

    Raises:
        ValueError: if there are not that many layers.
    """
    encoder = TextEncoder.pretrained(
        encoder_path(name),
        subwords.special,
        layers=layers,
        frozen=frozen and not lora_rank,
        window=window,
        pad_id=subwords.pad_id,
        disjoint=True,
    )
    if frozen_layers and not encoder.frozen:
        encoder.freeze_lowest(frozen_layers)
    if dropout is not None:
        encoder.set_dropout(dropout)
    if lora_rank:
        add_low_rank_changes(encoder.model, lora_rank, alone=frozen)
    return encoder


def multiplies_bfloat16() -> bool:
    """Return whether the processor has instructions for matrix products in bfloat16 (AVX-512)."""
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()  # older versions of PyTorch have no such function
    return bool(capabilities.get("avx512_bf16"))
