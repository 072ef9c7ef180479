"""RSTformer: Pu, Wang and Demberg, ACL 2023 (arXiv 2305.16784), a LED whose encoder attends with discourse."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from pytorch_lightning.utilities import rank_zero_info
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import LEDConfig, LEDForConditionalGeneration, LogitsProcessorList
from transformers.models.led.modeling_led import LEDEncoderBaseModelOutput

from datamodules.discourse.relations import GUM, GUM_COUNTS
from datamodules.documents import CorpusError
from datamodules.rstformer import RSTformerBatch
from datamodules.text.subword_text import SubwordText
from lightning_modules.decoding.hugging_face import ForbidTokens, generation_options
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.networks.pretrained import save_pretrained
from lightning_modules.rstformer.injection import Ablation, DiscourseInjection, Injection, head_relations
from lightning_modules.rstformer.led import AttentionPath, Discourse, DiscourseLED
from lightning_modules.rstformer.lora import DiscourseAdapters
from lightning_modules.schedules import warmed_up
from lightning_modules.sequence_to_sequence import SequenceToSequence
from lightning_modules.summarizer import Samples, evaluating

_DISCOURSE = "network.injections."  # beta and the heads' relations


class RSTformer(SequenceToSequence):
    """A LED with labelled discourse distributions in its encoder's attention, in training and in decoding alike.

    Loss term: `nll`, the mean over each summary of -log P(y_t). The rows of the paper's ablation table are `ablation`.
    Data and model take the same `ablation` and `checkpoint`; `setup` compares them.

    Args:
        vocab_size: tokens; of a pretrained LED at most what it has.
        checkpoint: name or folder of a pretrained LED; its size then takes the place of the next arguments.
        hidden_size: D of a LED from scratch.
        heads: attention heads, in encoder and decoder.
        layers: encoder layers, and as many decoder layers.
        inner_size: of the feed-forward layers.
        window: tokens that a token sees, to both sides together; even.
        positions: tokens of a document, at most.
        target_positions: tokens of a summary, at most.
        dropout: of a LED from scratch, also on attention's inputs, never on its weights.
        init_std: standard deviation of its weights at first, but for embeddings, which keep LED's 0.02. All of LED has
            that, for D = 1,024; D^-1/2 is as much for a smaller one.
        injection: how p enters the scores, see `networks.discourse_attention`.
        own_edu_neutral: with `log_bias`, tokens of one EDU keep their score; false adds beta log(eps) to it.
        ablation: see there, and `RSTformerData` for `ria` and `one_best`.
        relations: number of relations of the parser.
        relation_frequency: how often each relation occurs, where there are fewer heads than relations; by default the
            counts of GUM, whose 15 relations the suite's own parser has.
        lora_rank: RST-LoRA: adapters of this rank learn, the LED stays; discourse weighs their update in the encoder
            (`networks.rst_lora`) and leaves the scores as they are. 0 for none. Needs the extra `lora`.
        lora_alpha: their update is multiplied by lora_alpha / lora_rank.
        learn_weights: learn which relations a head looks at, from the map of one relation a head on.
        checkpoint_activations: compute the encoder's and decoder's activations twice, to save memory.
        compile_layers: compile each layer with `torch.compile`: the first batches take minutes, the others less time.
        attention: `chunked`, `dense` (for short texts), `fused` (CUDA) or `auto`.
        learning_rate: of AdamW at its peak, where the command line names no other optimizer.
        discourse_rate: times that rate, of what discourse has learned of its own (beta, the heads' relations): beta
            starts at 0 and moves by about the rate a step, which would leave it there in a short fine-tuning.
        schedule: of the rates; `linear` rises over a tenth of the steps, then falls to 0.
        decoding: how summaries are decoded; beam 4, 35 to 120 tokens, mean log-probability if not given.
        val_summaries: validation documents that are summarized at each validation in training; -1 for all.

    Raises:
        ValueError: if there are fewer heads than relations and no frequencies, the window is odd or the width is no
            multiple of the heads, or decoding asks for `gnmt` or more tokens than there are positions.
    """

    batch_type = RSTformerBatch

    def __init__(
        self,
        vocab_size: int = 16_000,
        checkpoint: str | None = None,
        hidden_size: int = 256,
        heads: int = 4,
        layers: int = 2,
        inner_size: int = 1024,
        window: int = 256,
        positions: int = 1024,
        target_positions: int = 256,
        dropout: float = 0.1,
        init_std: float = 0.02,
        injection: Injection = "log_bias",
        own_edu_neutral: bool = True,
        ablation: Ablation = "none",
        relations: int = 15,
        relation_frequency: list[float] | None = None,
        lora_rank: int = 0,
        lora_alpha: float = 16.0,
        learn_weights: bool = False,
        checkpoint_activations: bool = False,
        compile_layers: bool = False,
        attention: AttentionPath = "auto",
        learning_rate: float = 3e-4,
        discourse_rate: float = 10.0,
        schedule: Literal["linear", "constant"] = "linear",
        decoding: DecodingOptions | None = None,
        val_summaries: int = 256,
    ) -> None:
        super().__init__(vocab_size, decoding or DecodingOptions(), val_summaries)
        generation_options(self.decoding)
        self.rates, self.schedule = (learning_rate, discourse_rate), schedule
        self.ablation, self.checkpoint = ablation, checkpoint
        if checkpoint is not None:
            led = LEDForConditionalGeneration.from_pretrained(
                checkpoint
            ).train()  # it comes in eval mode, without dropout
        else:
            sizes = {"d_model": hidden_size, "encoder_ffn_dim": inner_size, "decoder_ffn_dim": inner_size}
            sizes |= {"encoder_attention_heads": heads, "decoder_attention_heads": heads}
            sizes |= {"encoder_layers": layers, "decoder_layers": layers, "num_hidden_layers": layers}
            sizes |= {"max_encoder_position_embeddings": positions, "max_decoder_position_embeddings": target_positions}
            sizes |= {"attention_window": [window] * layers, "dropout": dropout, "attention_dropout": 0.0}
            if window < 2 or window % 2:
                raise ValueError(f"model.window {window}: tokens to both sides together, so even and at least 2")
            if hidden_size % heads:
                raise ValueError(f"model.hidden_size {hidden_size} does not divide into {heads} heads")
            config = LEDConfig(vocab_size=vocab_size, **sizes)
            led = LEDForConditionalGeneration(config)
            for module in led.modules():
                if isinstance(module, nn.Linear) and module is not led.lm_head:
                    nn.init.normal_(module.weight, std=init_std)
        if self.decoding.max_length > (most := led.config.max_decoder_position_embeddings):
            raise ValueError(f"decoding.max_length {self.decoding.max_length}: the decoder has {most} positions")
        heads, self.relations = led.config.encoder_attention_heads, relations
        if relation_frequency is None and relations == len(GUM.coarse):
            relation_frequency = [float(GUM_COUNTS[name]) for name in GUM.coarse]
        weights = head_relations(heads, relations, relation_frequency)
        if heads < relations and ablation not in ("no_discourse", "no_labels"):
            rank_zero_info(f"{heads} heads look at relations {weights.argmax(1).tolist()} of {relations}")
        table = DiscourseInjection(weights, injection, ablation, learn_weights, own_edu_neutral=own_edu_neutral)
        if ablation == "no_discourse" or lora_rank:
            table = None
        adapters = None
        if lora_rank:
            if ablation in ("wac", "no_discourse"):
                raise ValueError(
                    f"model.lora_rank weighs an update by discourse: there is no ablation {ablation} of it"
                )
            adapters = DiscourseAdapters(led, lora_rank, lora_alpha, no_labels=ablation == "no_labels")
        self.network = DiscourseLED(led, table, attention, adapters)
        if checkpoint_activations:
            self.network.checkpoint_activations()
        for layer in [*led.led.encoder.layers, *led.led.decoder.layers] if compile_layers else ():
            layer.compile()  # in place: parameters keep their names

    def configure_optimizers(self) -> dict[str, Any]:
        """AdamW with two rates."""
        rate, factor = self.rates
        own = [p for p in self.network.injections.parameters() if p.requires_grad]
        led = [p for p in self.network.led.parameters() if p.requires_grad]
        groups = [{"params": led}, {"params": own, "lr": rate * factor, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=rate)
        if self.schedule == "constant":
            return {"optimizer": optimizer}
        return warmed_up(optimizer, int(self.trainer.estimated_stepping_batches))

    def export(self, folder: Path) -> dict[str, str]:
        """Writes the LED and its tokenizer as Hugging Face does: what `checkpoint` takes, and `transformers` loads.

        What discourse has learned of its own is no part of a LED and is left out.

        Raises:
            ValueError: if there is no text yet, or the model has adapters.
        """
        if self.network.adapters is not None:
            raise ValueError("an update that depends on the document cannot be folded into a LED: there is no export")
        if self.text is None:
            raise ValueError("there is no tokenizer to export: call use_text, or train first")
        save_pretrained(folder, self.network.led, self.text)
        return {} if self.checkpoint is None else {"checkpoint": "."}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """As in `Summarizer`; with `StartFrom`, a model with discourse also goes on from one without it, where it then
        begins (one with adapters does not: export the LED and name it as `checkpoint`)."""
        weights = checkpoint["state_dict"]
        own = {name: value for name, value in self.state_dict().items() if name.startswith(_DISCOURSE)}
        if own and checkpoint.get("start") and not any(name.startswith(_DISCOURSE) for name in weights):
            weights |= own
            rank_zero_info("the checkpoint has no discourse: what it learns of its own starts afresh")
        elif not checkpoint.get("start") and "own_edu_neutral" not in checkpoint:
            for injection in self.network.injections:  # of a version that had no choice
                injection.own_edu_neutral = False
        super().on_load_checkpoint(checkpoint)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["own_edu_neutral"] = all(injection.own_edu_neutral for injection in self.network.injections)

    def setup(self, stage: str) -> None:
        """Takes the text, and checks that data and model belong together before hours are spent on them.

        Raises:
            CorpusError: if the text does not fit, data and model were given different arguments, the data has another
                parser's relations, or a window reaches beyond the LDD's band.
        """
        data = getattr(self.trainer, "datamodule", None)
        with_discourse = hasattr(data, "widest_reach")
        if with_discourse:
            self._check_arguments(data)
        super().setup(stage)
        if with_discourse and len(self.network.injections):
            self._check_reach(data)

    def _check_arguments(self, data: Any) -> None:
        """Compares what data and model both take.

        Raises:
            CorpusError: with both values, if they differ.
        """
        names = ["ablation", "checkpoint"] if data.text_dir is None else ["ablation"]  # a text that is named is used
        for name in names:
            ours, theirs = getattr(self, name), getattr(data, name)
            if ours != theirs:
                raise CorpusError(f"model.{name} is {ours!r}, data.{name} {theirs!r}: give both the same {name}")
        if data.parser is not None and len(data.parser.relations) != self.relations:
            given = f"data.parser has {len(data.parser.relations)} relations, the model {self.relations}"
            raise CorpusError(f"{given}: give model.relations, and model.relation_frequency if it has fewer heads")

    def _check_reach(self, data: Any) -> None:
        """Compares the windows of attention with the half-width of the data's LDDs.

        Raises:
            CorpusError: with the widest document, if a window reaches beyond.
        """
        window = self.network.reach
        for split in data.loaded_splits():
            widest, name = data.widest_reach(split, window)
            if widest > data.half_width:
                raise CorpusError(
                    f"document {name!r} of {split}: the window of {window} tokens to each side reaches {widest} EDUs "
                    f"to each side, data.half_width is {data.half_width}: raise it to {widest} (the parser's band is at"
                    " least as wide), or take a smaller window"
                )

    def on_fit_start(self) -> None:
        """As in `Summarizer`; looks for documents that are too long before hours are spent on others.

        Raises:
            CorpusError: if there is one.
        """
        super().on_fit_start()
        data, most = getattr(self.trainer, "datamodule", None), self.network.encoder.max_source_positions
        for split in ("train", "val") if data is not None else ():
            features = data.features(split)
            lengths = features["length"][:]
            if max(lengths, default=0) > most:
                row = lengths.index(max(lengths))
                raise CorpusError(self._too_long(features[row]["id"], lengths[row]))

    def use_text(self, text: SubwordText) -> None:
        """Takes a tokenizer.

        Raises:
            CorpusError: if it does not fit `vocab_size` or the model's embedding, or its special symbols are others.
        """
        super().use_text(text)
        config = self.network.led.config
        if len(text) > config.vocab_size:
            raise CorpusError(f"the text has {len(text)} tokens, the pretrained model {config.vocab_size}")
        ids = (text.start, text.pad, text.stop)
        if ids != (config.bos_token_id, config.pad_token_id, config.eos_token_id):
            raise CorpusError(f"<s>, <pad> and </s> are {ids} in the text, and others in the pretrained model")

    # Training ----------------------------------------------------------------------------------------------------

    def discourse(self, batch: RSTformerBatch) -> Discourse | None:
        """The discourse of a batch, None where the model reads none.

        Raises:
            CorpusError: if the batch has none and the model reads it.
        """
        if self.ablation == "no_discourse":
            return None
        if batch.ldd is None:
            raise CorpusError("the model attends with discourse, the data has none: give both the same ablation")
        return Discourse((batch.ldd.float() / 255).square(), batch.token_edu, batch.ids, batch.gamma)

    def encode(self, batch: RSTformerBatch) -> LEDEncoderBaseModelOutput:
        """The encoder's states of a batch, with discourse.

        Raises:
            CorpusError: if a document is longer than the model's positions.
        """
        most = self.network.encoder.max_source_positions
        if batch.source.shape[1] > most:
            lengths = batch.source_mask.sum(1).tolist()
            row = lengths.index(max(lengths))
            raise CorpusError(self._too_long(batch.ids[row], lengths[row]))
        return self.network.encode(batch.source, batch.source_mask, batch.global_mask, self.discourse(batch))

    def _too_long(self, name: str, length: int) -> str:
        most = self.network.encoder.max_source_positions
        return f"document {name!r} has {length} tokens, {self._remedy('source', most)}"

    def _remedy(self, side: str, most: int) -> str:
        more = {"source": "model.positions", "target": "model.target_positions"}[side]
        return f"the model has {most} positions: lower data.max_{side}, or raise {more} of a model from scratch"

    @property
    def start(self) -> int:
        """Token that decoding starts with."""
        return self.text.stop

    def forbidden(self, options: DecodingOptions) -> tuple[int, ...]:
        """Return the tokens that are never generated: start, padding, and rows of the output layer without a token."""
        if options.allow_unknown:
            return ()
        return (self.text.start, self.text.pad, *range(len(self.text), self.network.led.config.vocab_size))

    def _logits(self, batch: RSTformerBatch, tokens: Tensor) -> Tensor:
        """Return the decoder's logits at tokens [B, K, T], teacher-forced: [B, K, T, V]."""
        B, K, T = tokens.shape
        most = self.network.led.config.max_decoder_position_embeddings
        if most < T:
            raise CorpusError(f"a summary has {T} tokens, {self._remedy('target', most)}")
        states = self.encode(batch).last_hidden_state.repeat_interleave(K, 0)                # [B K, S, D]
        return self.network.led(
            encoder_outputs=LEDEncoderBaseModelOutput(last_hidden_state=states),
            attention_mask=batch.source_mask.repeat_interleave(K, 0),
            decoder_input_ids=self.decoder_inputs(tokens).flatten(0, 1),
            use_cache=False,
        ).logits.unflatten(0, (B, K))

    def token_log_probs(self, batch: RSTformerBatch, tokens: Tensor, rows: Tensor) -> Tensor:
        """Return log P(y_t) of tokens [B, K, T] at the flat positions `rows`, [N]."""
        return self.distribution(batch, tokens)(rows).gather(1, tokens.flatten()[rows, None]).squeeze(1)

    def distribution(self, batch: RSTformerBatch, tokens: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function from flat positions [n] in tokens [B, K, T] to log P of every token there, [n, V]."""
        logits = self._logits(batch, tokens).flatten(0, 2)                                   # [B K T, V]
        return lambda rows: logits[rows].float().log_softmax(-1)

    def loss_terms(self, batch: RSTformerBatch) -> dict[str, Tensor]:
        """`nll`: the mean over the target, then over the documents."""
        distribution = self._logits(batch, batch.target.unsqueeze(1)).squeeze(1).float().log_softmax(-1)  # [B, T, V]
        log_probs = distribution.gather(2, batch.target.unsqueeze(-1)).squeeze(-1)           # [B, T]
        log_probs = log_probs.masked_fill(batch.target_mask == 0, 0)
        return {"nll": -(log_probs.sum(1) / batch.target_mask.sum(1)).mean()}

    # Generation --------------------------------------------------------------------------------------------------

    def generate(self, batch: RSTformerBatch, options: DecodingOptions, count: int = 1) -> Samples:
        """The best `count` hypotheses of a search, or so many drawn ones."""
        led = self.network.led
        never = torch.zeros(led.config.vocab_size, dtype=torch.bool, device=batch.source.device)
        never[list(self.forbidden(options))] = True
        only = LogitsProcessorList([ForbidTokens(never)])
        with evaluating(self):
            # Hugging Face repeats what it is given for each hypothesis, in place
            states = LEDEncoderBaseModelOutput(last_hidden_state=self.encode(batch).last_hidden_state)
            tokens = led.generate(
                encoder_outputs=states,
                attention_mask=batch.source_mask,
                logits_processor=only,
                num_return_sequences=count,
                **generation_options(options),
            )[:, 1:].unflatten(0, (-1, count))  # [B, K, T]
        last = tokens == self.text.stop
        real = last.long().cumsum(-1) - last.long() == 0
        return Samples(tokens.masked_fill(~real, self.text.pad), real.sum(-1))

    def sample(self, batch: RSTformerBatch, options: DecodingOptions) -> Samples:
        """`options.beam_size` summaries a document, drawn or searched, without gradient, [B, K, T]."""
        count, parts = options.beam_size, []
        if options.sample and options.greedy_first:
            parts.append(self.generate(batch, replace(options, beam_size=1, sample=False, greedy_first=False)))
            count -= 1
        if count:
            parts.append(self.generate(batch, options, count))
        longest = max(part.tokens.shape[2] for part in parts)
        tokens = [pad(part.tokens, (0, longest - part.tokens.shape[2]), value=self.text.pad) for part in parts]
        return Samples(torch.cat(tokens, 1), torch.cat([part.lengths for part in parts], 1))
