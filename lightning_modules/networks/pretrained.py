"""Pretrained encoder-decoder of Hugging Face with the interface of `EncoderDecoder`; export of pretrained models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel, PreTrainedTokenizerFast
from transformers.cache_utils import DynamicLayer
from transformers.modeling_outputs import BaseModelOutput

from lightning_modules.networks import pretrained_attention
from lightning_modules.networks.output_layer import upcast_half
from lightning_modules.networks.text_encoder import max_positions

State = dict[str, Tensor]
_WITH_PREFIX = ("bart", "led")  # families whose decoder reads two symbols before the summary: `</s>` and `<s>`


class PretrainedEncoderDecoder(nn.Module):
    """PEGASUS, BART, T5 or another sequence-to-sequence model, decoded by the suite's beam search.

    The parameters keep their names in `model`, so that released checkpoints load unchanged and `model.save_pretrained`
    writes a standard checkpoint. Before `start`, the first token of each summary, the decoder reads `prefix_length`
    symbols: by default 1 for BART and LED (`</s>` before `<s>`), else 0.
    """

    def __init__(self, model: PreTrainedModel, prefix_length: int | None = None) -> None:
        super().__init__()
        config = model.config
        if not config.is_encoder_decoder or config.decoder_start_token_id is None:
            raise ValueError(f"{config.model_type} is not an encoder-decoder with a decoder_start_token_id")
        pretrained_attention.use_dropout_attention(model)  # faster with dropout on a CPU
        self.model = model
        self.shares_documents = pretrained_attention.share_documents(model)  # K inputs read one document, not K copies
        self.prefix_length = int(config.model_type in _WITH_PREFIX) if prefix_length is None else prefix_length

    @property
    def start(self) -> int:
        """Token that decoding starts with, after the prefix (`decoder_start_token_id`) if the model has one."""
        config = self.model.config
        return config.bos_token_id if self.prefix_length else config.decoder_start_token_id

    @property
    def max_positions(self) -> int | None:
        """Maximum number of tokens of a document; None for T5, whose positions are relative."""
        return max_positions(self.model.config)

    @property
    def max_target(self) -> int | None:
        """Maximum number of tokens of a summary, the end symbol included; None for T5."""
        positions = max_positions(self.model.config, "decoder")
        return None if positions is None else positions - self.prefix_length

    def encode(self, source: Tensor, mask: Tensor) -> Tensor:
        """Encode documents: ids and mask [B, S] -> [B, S, D]; a `ValueError` if S is above the model's input limit."""
        if self.max_positions is not None and source.shape[1] > self.max_positions:  # None: relative, as in T5
            limit = f"{self.max_positions} positions in the model: lower max_source"
            raise ValueError(f"a document of {source.shape[1]} tokens, {limit}")
        if self.model.config.model_type == "led":  # as in its paper, the first token attends to all
            is_first = torch.arange(source.shape[1], device=source.device).eq(0).long().expand_as(source)
            encoder = self.model.get_encoder()
            return encoder(source, attention_mask=mask.long(), global_attention_mask=is_first).last_hidden_state
        mask = pretrained_attention.prepared_mask(self.model.config, mask, source.shape[1], self.model.dtype)
        return self.model.get_encoder()(input_ids=source, attention_mask=mask).last_hidden_state

    def _repeat_unless_shared(self, documents: Tensor, count: int) -> Tensor:
        """Repeat a tensor [B, ...] for `count` decoder inputs of each document, unless the model lets them share it."""
        return documents if self.shares_documents else documents.repeat_interleave(count, 0)

    def _run(self, states: Tensor, mask: Tensor, inputs: Tensor, past: EncoderDecoderCache | None, use_cache: bool):
        """Decode inputs [B K, T] after `past`; states [B K, S, D], or [B, S, D] if `shares_documents`; mask [B, S]."""
        mask = self._repeat_unless_shared(mask, len(inputs) // len(mask))
        mask = pretrained_attention.prepared_mask(self.model.config, mask, inputs.shape[1], states.dtype)
        causal = None  # with a cache, the model makes the causal mask itself
        if past is None and not use_cache:
            causal = pretrained_attention.causal_mask(self.model.config, inputs, states.dtype)
        return self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states), attention_mask=mask,
            decoder_input_ids=inputs, decoder_attention_mask=causal, past_key_values=past, use_cache=use_cache,
        )  # fmt: skip

    def _logits(self, states: Tensor, mask: Tensor, inputs: Tensor) -> Tensor:
        """Return the logits after all decoder inputs [B, K, T], or [B, T] if K = 1, flattened to [B K T, V]."""
        if self.max_target is not None and inputs.shape[-1] > self.max_target:
            limit = f"the decoder has {self.max_target} positions; lower max_target"
            raise ValueError(f"a summary has {inputs.shape[-1]} tokens, but {limit}")
        inputs = inputs.flatten(0, -2)                                                       # [B K, T]
        states = self._repeat_unless_shared(states, len(inputs) // len(states))
        inputs = F.pad(inputs, (self.prefix_length, 0), value=self.model.config.decoder_start_token_id)
        return self._run(states, mask, inputs, past=None, use_cache=False).logits[:, self.prefix_length :].flatten(0, 1)

    def log_probs(
        self, states: Tensor, mask: Tensor, inputs: Tensor, target: Tensor, rows: Tensor, words: int
    ) -> tuple[Tensor, Tensor]:
        """Return log P of targets at the N flat positions `rows`, and its mean over the vocabulary, [N] each."""
        logits = self._logits(states, mask, inputs)[rows, :words]  # V = `words`; a model may have more outputs
        log_probs = upcast_half(logits).log_softmax(-1)                                  # [N, V]
        return log_probs.gather(1, target.flatten()[rows].unsqueeze(1)).squeeze(1), log_probs.mean(1)

    def distribution(self, states: Tensor, mask: Tensor, inputs: Tensor, words: int) -> Callable[[Tensor], Tensor]:
        """Return a function from positions [n] in inputs flattened to [B K T] to log P of the first `words` tokens."""
        logits = self._logits(states, mask, inputs)[:, :words]
        return lambda rows: upcast_half(logits[rows]).log_softmax(-1)                    # [n, words]

    def begin(self, states: Tensor, mask: Tensor) -> tuple[State, State]:
        """Return the first state (keys and values of the decoder) and the memory (those of documents, and mask)."""
        first = torch.full_like(mask[:, :1], self.model.config.decoder_start_token_id, dtype=torch.long)  # [B, 1]
        # one step fills the cache with the keys and values of the documents, and of the first symbol
        cache = self._run(states, mask, first, past=None, use_cache=True).past_key_values
        state: State = {}
        memory: State = {"mask": mask}
        for number, layer in enumerate(cache.cross_attention_cache.layers):
            memory |= {f"keys{number}": layer.keys, f"values{number}": layer.values}
        for number, layer in enumerate(cache.self_attention_cache.layers):
            # keep the first symbol as the prefix; without one (length 0), the first step decodes it again, as `start`
            state[f"keys{number}"] = layer.keys[:, :, : self.prefix_length]
            state[f"values{number}"] = layer.values[:, :, : self.prefix_length]
        return state, memory

    def stepper(self, words: int):
        """Return the step function of beam search (`beam_search.Step`), with the first `words` tokens as vocabulary."""

        def step(tokens: Tensor, state: State, memory: State, count: int | None):
            logits, state = self.step(tokens, state, memory)
            # None: column i is token i, as all tokens are candidates, not the best `count`; log P at least in float32
            return None, upcast_half(logits[..., :words]).log_softmax(-1), state

        return step

    def step(self, tokens: Tensor, state: State, memory: State) -> tuple[Tensor, State]:
        """Decode one position of K hypotheses of each document: ids [B, K] -> logits [B, K, V], and the next state."""
        B, K = tokens.shape
        hypotheses = _cache_of({name: tensor.flatten(0, 1) for name, tensor in state.items()})  # [B K, N, t, D / N]
        mask = memory["mask"]                                                                # [B, S]
        documents = {name: self._repeat_unless_shared(tensor, K) for name, tensor in memory.items() if name != "mask"}
        # the model reads only the shape of the encoder states, as their keys and values are cached: expand one zero
        states = documents["keys0"].new_zeros(1, 1, 1)
        states = states.expand(len(documents["keys0"]), mask.shape[1], self.model.get_encoder().config.hidden_size)
        cache = EncoderDecoderCache(hypotheses, _cache_of(documents))
        outputs = self._run(states, mask, tokens.flatten().unsqueeze(1), past=cache, use_cache=True)
        next_state: State = {}
        for number, layer in enumerate(outputs.past_key_values.self_attention_cache.layers):
            next_state[f"keys{number}"] = layer.keys.unflatten(0, (B, K))
            next_state[f"values{number}"] = layer.values.unflatten(0, (B, K))
        return outputs.logits.view(B, K, -1), next_state


def _cache_of(tensors: State) -> DynamicCache:
    """Return a cache of the tensors `keys0`, `values0`, `keys1`, ... themselves; its `update` would copy them."""
    cache = DynamicCache()
    for number in range(len(tensors) // 2):  # keys and values of each layer
        layer = DynamicLayer()
        keys, values = tensors[f"keys{number}"], tensors[f"values{number}"]
        layer.lazy_initialization(keys, values)
        layer.keys = keys
        layer.values = values
        cache.layers.append(layer)
    return cache


def save_pretrained(folder: Path, model: PreTrainedModel, tokenizer: Any) -> None:
    """Save a model and the suite's tokenizer (its `backend` is of the package tokenizers) as Hugging Face does.

    The encoder of an encoder-decoder is saved as a part of it: `AutoModel` loads it with a new, random decoder.
    """
    state = model.state_dict()
    is_part = model.config.is_encoder_decoder and not any("decoder." in name for name in state)
    model.save_pretrained(folder, state_dict={f"encoder.{name}": state[name] for name in state} if is_part else None)
    ids = {"bos_token": tokenizer.start, "pad_token": tokenizer.pad, "eos_token": tokenizer.stop}
    symbols = {name: tokenizer.backend.id_to_token(token_id) for name, token_id in ids.items()}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend, **symbols).save_pretrained(folder)
