"""RSTformer: Pu, Wang and Demberg, ACL 2023 (arXiv 2305.16784), a LED whose encoder attends with discourse."""

from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import torch
from pytorch_lightning.utilities import rank_zero_info
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM

from datamodules.discourse.relations import GUM, GUM_COUNTS
from datamodules.documents import UserError
from datamodules.rstformer import RSTformerBatch
from datamodules.text.subword_tokenizer import SubwordTokenizer
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.networks.adapters import merged
from lightning_modules.networks.pretrained import PretrainedEncoderDecoder, save_pretrained
from lightning_modules.rstformer.from_scratch import led_from_scratch
from lightning_modules.rstformer.injection import DiscourseInjection, head_relations
from lightning_modules.rstformer.led import Discourse, DiscourseLED
from lightning_modules.rstformer.lora import DiscourseAdapters
from lightning_modules.rstformer.options import InjectionOptions, LEDOptions, RSTformerOptimizer
from lightning_modules.schedules import rate_factor, scheduled, steps_needed
from lightning_modules.sequence_to_sequence import SequenceToSequence

_DISCOURSE = "network.injections."  # prefix of the parameters of discourse: beta and weights of relations


class RSTformer(SequenceToSequence):
    """LED (Longformer encoder-decoder) whose encoder attends with discourse (Pu, Wang and Demberg 2023).

    The discourse of a document is its LDD (labeled discourse distribution): the probability that EDU (elementary
    discourse unit) a is the nucleus of EDU b under relation l. Loss term: `nll`, the mean over each summary of
    -log P(y_t). Data and model need the same `checkpoint` and `ablation` of discourse, which `setup` checks.

    Args:
        vocab_size: size of the vocabulary; at most that of a pretrained LED.
        encoder: the LED, see `LEDOptions`.
        dropout: dropout of a LED without pre-training: on embeddings and sublayer outputs, not on attention weights.
        injection: how discourse enters attention, see `InjectionOptions`.
        optimizer: options of AdamW, see `RSTformerOptimizer`.
        decoding: decoding options; by default beam size 4, 35 to 120 tokens, mean log-probability. The generation
            settings of a pretrained LED are not used.
        val_summaries: number of validation documents summarized at each validation during training; -1 for all.

    Raises:
        ValueError: if there are fewer heads than relations and no frequencies, the window is odd, the width is not a
            multiple of the heads, or decoding needs more tokens than positions.
    """

    batch_type = RSTformerBatch

    def __init__(
        self,
        vocab_size: int = 16_000,
        encoder: LEDOptions = LEDOptions(),
        dropout: float = 0.1,
        injection: InjectionOptions = InjectionOptions(),
        optimizer: RSTformerOptimizer = RSTformerOptimizer(),
        decoding: DecodingOptions | None = DecodingOptions(),
        val_summaries: int = 256,
    ) -> None:
        super().__init__(vocab_size, decoding, val_summaries)
        self.optimizer = optimizer
        self.checkpoint = encoder.checkpoint
        self.ablation = injection.ablation
        self.relations = injection.relations
        if self.checkpoint is None:
            led = led_from_scratch(encoder, vocab_size, dropout)
        else:
            led = AutoModelForSeq2SeqLM.from_pretrained(self.checkpoint, dtype=torch.float32)
            if led.config.model_type != "led":  # as a LED, it would have none of its weights
                raise ValueError(f"model.encoder.checkpoint is a {led.config.model_type}, not a LED; name a LED")
            led.train()  # it is loaded in eval mode
        max_length = self.decoding.max_length
        max_positions = led.config.max_decoder_position_embeddings
        if max_length > max_positions:
            raise ValueError(f"decoding.max_length {max_length}: the decoder has {max_positions} positions")
        # discourse enters either the scores of attention or, with a LoRA rank, the adapters of RST-LoRA
        attention_injection = self._injection(injection, led.config.encoder_attention_heads)
        adapters = None
        if encoder.lora_rank:
            if self.ablation in ("wac", "no_discourse"):  # replaces scores by discourse, or has none
                problem = f"ablation {self.ablation} is not available"
                raise ValueError(f"model.encoder.lora_rank weights updates by discourse: {problem}")
            attention_injection = None  # it was built only to check its arguments
            no_labels = self.ablation == "no_labels"
            adapters = DiscourseAdapters(led, encoder.lora_rank, encoder.lora_alpha, no_labels=no_labels)
        self.network = DiscourseLED(led, attention_injection, encoder.attention, adapters)
        if encoder.checkpoint_activations:  # of each layer, its discourse table included
            # not reentrant: through its table, a layer also depends on parameters of `injections`, which it lacks
            led.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if encoder.compile_layers:
            for layer in [*led.led.encoder.layers, *led.led.decoder.layers]:
                layer.compile()  # in place, so that parameters keep their names
        self.frozen = encoder.frozen
        if self.frozen:
            self.network.encoder.requires_grad_(False)
            self.train(self.training)  # sets the encoder to eval mode

    def _injection(self, options: InjectionOptions, heads: int) -> DiscourseInjection:
        """Return the module that computes tables of discourse for attention; `head_relations` gives heads relations."""
        frequency = options.relation_frequency
        if frequency is None and options.relations == len(GUM.coarse):  # 15, presumably those of the corpus GUM
            frequency = [float(GUM_COUNTS[name]) for name in GUM.coarse]  # counts in its training documents
        weights = head_relations(heads, options.relations, frequency)  # of R relations for each of H heads, [H, R]
        flags = {"learn_weights": options.learn_weights, "own_edu_neutral": options.own_edu_neutral}
        return DiscourseInjection(weights, options.formula, options.ablation, **flags)

    def train(self, mode: bool = True) -> Self:
        """Set the training mode; a frozen encoder stays in eval mode."""
        super().train(mode)
        if self.frozen:
            self.network.encoder.eval()
        return self

    def configure_optimizers(self) -> dict[str, Any]:
        """Return AdamW, with a separate learning rate for parameters of discourse, and a schedule unless `constant`."""
        options = self.optimizer
        discourse = [p for p in self.network.injections.parameters() if p.requires_grad]
        led = [p for p in self.network.led.parameters() if p.requires_grad]  # only adapters, if there are any
        groups = [
            {"params": led, "weight_decay": options.weight_decay},
            {"params": discourse, "lr": options.lr * options.discourse_rate, "weight_decay": 0.0},
        ]
        non_empty = [group for group in groups if group["params"]]  # not all models have parameters of discourse
        optimizer = torch.optim.AdamW(non_empty, lr=options.lr)
        if options.schedule == "constant":
            return {"optimizer": optimizer}
        steps = steps_needed(self.trainer, options)
        factor = partial(rate_factor, schedule=options.schedule, steps=steps, warm_up=options.warmup_steps)
        return scheduled(optimizer, [factor] * len(non_empty))

    def export(self, folder: Path) -> dict[str, str]:
        """Save the LED and its tokenizer in the format of Hugging Face, without the parameters of discourse.

        Returns the exported model's option `encoder.checkpoint`, a path relative to `folder`: `led`, the pretrained LED
        alone, for a model with adapters; nothing for a model from scratch. A `ValueError` if there is no tokenizer yet.
        """
        if self.tokenizer is None:
            raise ValueError("there is no tokenizer to export: call set_tokenizer, or train first")
        has_adapters = self.network.adapters is not None
        if has_adapters and self.checkpoint is None:
            raise ValueError("an update that depends on the document cannot be merged into the weights of a LED")
        place = "led" if has_adapters else "."  # the folder itself
        save_pretrained(folder / place, merged(self.network.led, with_changes=False), self.tokenizer)
        return {} if self.checkpoint is None else {"encoder.checkpoint": place}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore as `Summarizer` does; the callback `StartFrom` may also load a model without discourse.

        Adapters rename weights: a model with adapters starts from an exported LED, by `encoder.checkpoint`, instead.
        """
        weights = checkpoint["state_dict"]
        initial = {name: value for name, value in self.state_dict().items() if name.startswith(_DISCOURSE)}
        is_start = checkpoint.get("start")  # set by `StartFrom`; missing if a run is resumed
        if initial and is_start and not any(name.startswith(_DISCOURSE) for name in weights):
            weights |= initial  # otherwise they would be missing when weights are loaded
            rank_zero_info("the checkpoint has no parameters of discourse; they keep their initial values")
        super().on_load_checkpoint(checkpoint)

    def setup(self, stage: str) -> None:
        """Set the tokenizer; check that data and model agree, and that parses have all pairs of EDUs in a window."""
        data = getattr(self.trainer, "datamodule", None)  # None if loaders are passed to the trainer
        with_discourse = hasattr(data, "widest_reach")  # `RSTformerData`, or a DataModule with the same methods
        if with_discourse:
            self._check_arguments(data)
        super().setup(stage)
        if with_discourse and len(self.network.injections):
            self._check_reach(data)

    def _check_arguments(self, data: Any) -> None:
        """Raise a `UserError` if data and model differ in a shared argument, and log which relations heads use."""
        groups = {"ablation": "injection"}  # shared argument -> group of the model's arguments that has it
        if data.tokenizer_dir is None:  # the data uses the tokenizer of its checkpoint
            groups["checkpoint"] = "encoder"
        for name, group in groups.items():
            model_value = getattr(self, name)
            data_value = getattr(data, name)
            if model_value != data_value:
                problem = f"model.{group}.{name} is {model_value!r}, data.{name} {data_value!r}"
                raise UserError(f"{problem}: give both the same {name}")
        if data.parser is not None and len(data.parser.relations) != self.relations:
            mismatch = f"data.parser has {len(data.parser.relations)} relations, the model {self.relations}"
            remedy = "give model.injection.relations, and relation_frequency beside it if there are fewer heads"
            raise UserError(f"{mismatch}: {remedy}")
        # weights of R relations for each of H heads (one relation each, if there are fewer heads), [H, R]; () for none
        weights = self.network.injections[0].fixed_weights if len(self.network.injections) else ()
        if data.parser is not None and 0 < len(weights) < self.relations and self.ablation != "no_labels":
            names = ", ".join(data.parser.relations[relation] for relation in weights.argmax(1).tolist())
            heads = f"{len(weights)} attention heads"
            rank_zero_info(f"{heads} use the most frequent of {self.relations} relations: {names}")

    def _check_reach(self, data: Any) -> None:
        """Raise a `UserError` if EDUs in a window are farther apart than `data.half_width`, the band of LDDs."""
        window = self.network.reach  # the largest attention window, in tokens to each side
        for split in data.loaded_splits():
            widest, name = data.widest_reach(split, window)
            if widest > data.half_width:
                raise UserError(
                    f"document {name!r} of {split}: the window of {window} tokens to each side reaches {widest} EDUs "
                    f"to each side, data.half_width is {data.half_width}: raise it to {widest} (the parser's band is at"
                    " least as wide), or take a smaller window"
                )

    def on_fit_start(self) -> None:
        """Store the seed as `Summarizer` does; a `UserError` if a document has more tokens than the LED positions."""
        super().on_fit_start()
        data = getattr(self.trainer, "datamodule", None)  # None if loaders are passed to the trainer
        for split in ("train", "val") if data is not None else ():
            features = data.features(split)
            lengths = features["length"][:]
            longest = max(lengths, default=0)  # 0 for an empty split
            if longest > self.network.encoder.max_source_positions:
                raise UserError(self._too_long(features[lengths.index(longest)]["id"], longest))

    def set_tokenizer(self, tokenizer: SubwordTokenizer) -> None:
        """Set the tokenizer; a `UserError` if it does not fit `vocab_size`, or size and special tokens of the LED."""
        super().set_tokenizer(tokenizer)
        config = self.network.led.config
        if len(tokenizer) > config.vocab_size:
            raise UserError(f"the tokenizer has {len(tokenizer)} tokens, the pretrained model {config.vocab_size}")
        ids = (tokenizer.start, tokenizer.pad, tokenizer.stop)
        if ids != (config.bos_token_id, config.pad_token_id, config.eos_token_id):
            raise UserError(f"<s>, <pad> and </s> are {ids} in the tokenizer, but differ in the pretrained model")

    def discourse(self, batch: RSTformerBatch) -> Discourse | None:
        """Return the discourse of a batch, None if the model does not use it; a `UserError` if the batch has none."""
        if self.ablation == "no_discourse":
            return None
        if batch.ldd is None:
            raise UserError("the model needs discourse, but the data has none; give both the same ablation")
        p = (batch.ldd.float() / 255).square()  # the LDD stores 255 sqrt(p) as bytes, which resolves small p
        return Discourse(p, batch.token_edu, batch.ids, batch.gamma)  # gamma: importance of EDUs, for adapters

    def encode(self, batch: RSTformerBatch) -> tuple[Tensor, Tensor]:
        """Return the states of documents of up to S tokens, [B, S, D], and their mask [B, S], True at tokens.

        Raises a `UserError` if a document has more tokens than the model has positions.
        """
        if batch.source.shape[1] > self.network.encoder.max_source_positions:
            lengths = batch.source_mask.sum(1).tolist()
            longest = max(lengths)
            raise UserError(self._too_long(batch.ids[lengths.index(longest)], longest))
        output = self.network.encode(batch.source, batch.source_mask, batch.global_mask, self.discourse(batch))
        return output.last_hidden_state, batch.source_mask

    def _too_long(self, name: str, length: int) -> str:  # a message
        max_positions = self.network.encoder.max_source_positions
        return f"document {name!r} has {length} tokens, {self._remedy('source', max_positions)}"

    def _remedy(self, side: str, max_positions: int) -> str:  # the end of messages; `side`: source or target
        option = {"source": "positions", "target": "target_positions"}[side]
        remedy = f"lower data.max_{side}, or raise model.encoder.{option} of a model from scratch"
        return f"the model has {max_positions} positions: {remedy}"

    @cached_property  # not a submodule, because its weights are already those of `network`
    def decoder(self) -> PretrainedEncoderDecoder:
        """The LED as a decoder whose hypotheses and samples share the keys and values of their document."""
        return PretrainedEncoderDecoder(self.network.led, prefix_length=0)

    @property
    def start(self) -> int:
        """Token that decoding starts with: `</s>`, as in pretrained LEDs."""
        return self.tokenizer.stop

    @property
    def num_outputs(self) -> int:
        """Number of rows of the output layer; a pretrained LED may have more than the tokenizer has tokens."""
        return self.network.led.config.vocab_size

    def forbidden(self, options: DecodingOptions) -> tuple[int, ...]:
        """Return the tokens that are never generated: start, padding, and rows of the output layer without a token."""
        return (self.tokenizer.start, self.tokenizer.pad, *range(len(self.tokenizer), self.num_outputs))

    def decoder_inputs(self, target: Tensor) -> Tensor:
        """Prepend the start symbol to targets [..., T] and drop their last token, so that input t precedes target t.

        Raises a `UserError` if a target has more tokens than the decoder has positions.
        """
        max_positions = self.network.led.config.max_decoder_position_embeddings
        if max_positions < target.shape[-1]:
            raise UserError(f"a summary has {target.shape[-1]} tokens, {self._remedy('target', max_positions)}")
        return super().decoder_inputs(target)
