"""`PretrainedSummarizer`: fine-tuning of any pretrained encoder-decoder, and the base class that PEGASUS shares."""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, GenerationConfig

from datamodules.batch import SourceTargetBatch
from datamodules.documents import UserError
from datamodules.text.subword_tokenizer import MaskingTokenizer
from lightning_modules.decoding.hugging_face import decoding_options
from lightning_modules.decoding.options import DecodingChanges, DecodingOptions
from lightning_modules.networks.adapters import insert_adapters, merged
from lightning_modules.networks.encoder_decoder import EncoderDecoder
from lightning_modules.networks.pretrained import PretrainedEncoderDecoder, save_pretrained
from lightning_modules.options import AdamWOptions, check_truncation
from lightning_modules.schedules import steps_needed, two_rates
from lightning_modules.sequence_to_sequence import SequenceToSequence


def load_encoder_decoder(checkpoint: str) -> PretrainedEncoderDecoder:
    """Return a pretrained encoder-decoder by its name or folder, in training mode."""
    return PretrainedEncoderDecoder(AutoModelForSeq2SeqLM.from_pretrained(checkpoint, dtype=torch.float32).train())


class EncoderDecoderSummarizer(SequenceToSequence):
    """Base class of models whose `network` reads and writes subwords, pretrained or from scratch."""

    batch_type = SourceTargetBatch
    network: EncoderDecoder | PretrainedEncoderDecoder

    def setup(self, stage: str) -> None:
        """Set the tokenizer, and check that no document has more tokens than a pretrained model has positions."""
        super().setup(stage)
        if isinstance(self.network, PretrainedEncoderDecoder):
            check_truncation(getattr(self.trainer, "datamodule", None), self.network.max_positions)

    def set_tokenizer(self, tokenizer: MaskingTokenizer) -> None:
        """Set the tokenizer; a `UserError` if it does not fit `vocab_size` or a pretrained model."""
        super().set_tokenizer(tokenizer)
        if isinstance(self.network, PretrainedEncoderDecoder):
            config = self.network.model.config
            if len(tokenizer) > config.vocab_size:
                problem = f"the tokenizer has {len(tokenizer)} tokens, the pretrained model {config.vocab_size}"
                raise UserError(f"{problem}; leave data.tokenizer_dir out")
            if (tokenizer.pad, tokenizer.stop) != (config.pad_token_id, config.eos_token_id):
                raise UserError(
                    f"<pad> and </s> are {(tokenizer.pad, tokenizer.stop)} in the tokenizer, but differ in the "
                    "pretrained model; leave data.tokenizer_dir out, or give the tokenizer of that model"
                )

    def export(self, folder: Path) -> dict[str, str]:
        """Write a pretrained model and its tokenizer as Hugging Face does; nothing for a model from scratch."""
        if not isinstance(self.network, PretrainedEncoderDecoder):
            return {}
        save_pretrained(folder, merged(self.network.model), self.tokenizer)  # with adapters added to the weights
        return {"encoder.checkpoint": "."}  # the folder itself, see `Summarizer.export`

    @property
    def start(self) -> int:
        """The token that decoding starts with."""
        is_pretrained = isinstance(self.network, PretrainedEncoderDecoder)
        return self.network.start if is_pretrained else self.tokenizer.start

    @property
    def decoder(self) -> EncoderDecoder | PretrainedEncoderDecoder:
        """The network, which has the methods that `SequenceToSequence` calls on a decoder."""
        return self.network

    def forbidden(self, options: DecodingOptions) -> tuple[int, ...]:
        """Return the tokens that are never generated: padding and those that begin texts, except the end symbol."""
        return tuple({self.tokenizer.pad, self.tokenizer.start, *self.tokenizer.opening} - {self.tokenizer.stop})

    def encode(self, batch: SourceTargetBatch) -> tuple[Tensor, Tensor]:
        """Return states of documents [B, S, D], and their mask, True at tokens, [B, S]."""
        return self.network.encode(batch.source, batch.source_mask), batch.source_mask


@dataclass(frozen=True)
class CheckpointOptions:
    """Pretrained encoder-decoder."""

    checkpoint: str
    """Name or folder of a pretrained Hugging Face model, such as facebook/bart-base. The data needs the same one."""
    lora_rank: int = 0
    """Rank of low-rank adapters of queries and values, which are trained instead of the model; 0 for none. Needs the
    extra `lora`."""
    lora_alpha: float = 16.0
    """The factor of the update is lora_alpha / lora_rank."""


class PretrainedSummarizer(EncoderDecoderSummarizer):
    """Pretrained BART, T5, PEGASUS or LED, fine-tuned on summaries (`PretrainedSummarizerData`).

    Loss terms: those of `SequenceToSequence`. The optimizer is AdamW.

    Args:
        encoder: the pretrained model, see `CheckpointOptions`.
        label_smoothing: epsilon of the loss.
        optimizer: options of AdamW.
        decoding: fields of `DecodingOptions` to change. Others are the generation settings that come with the model,
            including those for its task "summarization", if `DecodingOptions` has them.
        val_summaries: number of validation documents summarized at each validation during training; -1 for all.
    """

    def __init__(
        self,
        encoder: CheckpointOptions,
        label_smoothing: float = 0.0,
        optimizer: AdamWOptions = AdamWOptions(lr=5e-5),
        decoding: DecodingChanges | None = None,
        val_summaries: int = 256,
    ) -> None:
        network = load_encoder_decoder(encoder.checkpoint)
        # the model's own length limits also count the first symbols: the prefix and `start`
        own_options = decoding_options(card_settings(network.model), first_symbols=network.prefix_length + 1)
        super().__init__(network.model.config.vocab_size, replace(own_options, **decoding or {}), val_summaries)
        self.has_adapters = encoder.lora_rank > 0
        if self.has_adapters:
            insert_adapters(network.model, encoder.lora_rank, encoder.lora_alpha)
        self.network = network
        self.optimizer = optimizer
        self.set_label_smoothing(label_smoothing)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Load as `SequenceToSequence` does; the callback `StartFrom` may also load a model without adapters."""
        weights = checkpoint["state_dict"]
        if self.has_adapters and checkpoint.get("start"):  # set by `StartFrom`
            for name, initial in self.state_dict().items():
                former_name = name.replace(".base_layer.", ".")  # `peft` renames weights of layers with adapters
                if former_name != name and former_name in weights:
                    weights[name] = weights.pop(former_name)
                elif ".lora_" in name:
                    weights.setdefault(name, initial)  # without adapters in the checkpoint, they keep initial values
        super().on_load_checkpoint(checkpoint)

    def configure_optimizers(self) -> dict[str, Any]:
        """Return AdamW with its schedule."""
        return two_rates(self, None, self.optimizer, steps_needed(self.trainer, self.optimizer))


def card_settings(model: Any) -> GenerationConfig:
    """Return the generation settings of a pretrained model, updated by the settings of its task "summarization"."""
    settings = copy.deepcopy(model.generation_config)
    task_settings = getattr(model.config, "task_specific_params", None) or {}  # T5 and BART have some
    settings.update(**task_settings.get("summarization", {}))
    return settings
