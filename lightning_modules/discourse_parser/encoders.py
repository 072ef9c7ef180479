"""Token encoders of the discourse parser."""

from collections.abc import Sequence
from pathlib import Path

import torch
from pytorch_lightning import LightningModule
from torch import nn

from datamodules.documents import UserError
from datamodules.text.subwords import Subwords, encoder_path
from lightning_modules.networks.low_rank import add_low_rank_changes
from lightning_modules.networks.text_encoder import SmallEncoder, TextEncoder
from lightning_modules.stored import load_weights


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


def load_small_encoder(encoder: nn.Module, folder: Path) -> None:
    """Initialize the small encoder of a parser or segmenter from weights that `parser_training.small_encoder` trained.

    Raises:
        UserError: if it is another encoder, or the folder has no such weights.
    """
    if not isinstance(encoder, SmallEncoder):
        raise UserError(f"model.small_encoder {folder}: is for `encoder: small` alone; leave it out")
    load_weights(Path(folder), encoder, encoder.state_dict())


def is_resumed(model: LightningModule) -> bool:
    """Return whether the trainer resumes a checkpoint, whose weights replace initial ones."""
    return model._trainer is not None and model.trainer.ckpt_path is not None


def multiplies_bfloat16() -> bool:
    """Return whether the processor has instructions for matrix products in bfloat16 (AVX-512)."""
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()  # older versions of PyTorch have no such function
    return bool(capabilities.get("avx512_bf16"))
