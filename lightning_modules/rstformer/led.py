"""LED (Longformer encoder-decoder) whose encoder attends with discourse.

The model is that of Hugging Face with its parameter names: released checkpoints load unchanged, and trained models are
saved as a LED. Only the computation of the encoder's attention is replaced.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal, NamedTuple, get_args

import torch
from pytorch_lightning.utilities import rank_zero_info
from torch import Tensor, nn
from transformers import LEDForConditionalGeneration
from transformers.models.led.modeling_led import LEDEncoderBaseModelOutput

from lightning_modules.rstformer.chunked_attention import chunked_attention
from lightning_modules.rstformer.dense_attention import SHORT, attend, dense_attention
from lightning_modules.rstformer.fused_attention import MIN_WIDTH, fused_attention
from lightning_modules.rstformer.injection import DiscourseInjection, HeadTable, View, check_band
from lightning_modules.rstformer.lora import DiscourseAdapters

AttentionPath = Literal["auto", "chunked", "dense", "fused"]
_LINEAR = ("query", "key", "value", "query_global", "key_global", "value_global")


@dataclass
class Discourse:
    """The labeled discourse distribution p of B documents with E elementary discourse units (EDUs) and R relations."""

    band: Tensor  # entry [n, a, b + d, l] is p(a, a + d, l) of document n, [B, E, 2b + 1, R], on the model's device
    token_edu: Tensor  # EDU of each token, -1 for none, [B, T]; on the CPU, so that checking it needs no GPU
    ids: Sequence[str] = ()  # ids of the documents, for messages
    gamma: Tensor | None = None  # importance of each EDU as a nucleus, for adapters, [B, E]


@cache
def _report(path: AttentionPath, reason: str) -> None:
    """Log the implementation of attention; because of the cache, each path and reason is logged once per process."""
    rank_zero_info(f"attention of the encoder: {path} ({reason})")


class LayerView(NamedTuple):
    """What the attention of a layer gets in place of Hugging Face's attention mask."""

    view: View  # shared with other layers
    # computes the discourse table of this layer when called, inside activation checkpoints; None for plain attention
    table: Callable[[], HeadTable] | None = None


class LEDWindowAttention(nn.Module):
    """Windowed self-attention of an encoder layer, which replaces Hugging Face's module and uses its parameters.

    Its implementation (`path`) is `fused` (one kernel), `dense` (all scores at once), `chunked`, or `auto`: `choose`.
    """

    def __init__(self, original: nn.Module, path: AttentionPath = "auto") -> None:
        super().__init__()
        if path not in get_args(AttentionPath):
            raise ValueError(f"no attention path {path!r}; there are {', '.join(get_args(AttentionPath))}")
        for name in _LINEAR:  # projections, which keep their names in checkpoints
            setattr(self, name, getattr(original, name))
        self.heads = original.num_heads
        self.window = original.one_sided_attn_window_size  # tokens to each side
        self.dropout = original.dropout
        self.path = path

    def choose(self, device: torch.device, length: int) -> tuple[AttentionPath, str]:
        """Return the implementation of attention for T = `length` tokens on a device, and the reason for it.

        `auto` is fused on CUDA unless there is attention dropout in training, or a head is narrower than 16, which the
        kernel needs. Otherwise it is dense for short texts, chunked for others. `fused` with dropout is a `ValueError`.
        """
        dropout = self.dropout if self.training else 0.0
        if self.path == "fused" and dropout:
            raise ValueError(f"fused attention has no dropout: set attention_dropout to 0, not {dropout}")
        if self.path != "auto":
            return self.path, "as configured"
        width = self.query.out_features // self.heads
        reason = f"on {device.type}, {width} dimensions per head, attention dropout {dropout}"
        if device.type == "cuda" and width >= MIN_WIDTH and not dropout:
            return "fused", reason
        if length <= SHORT:
            return "dense", f"{reason}, at most {SHORT} tokens"
        return "chunked", f"{reason}, more than {SHORT} tokens"

    def split(self, layer: nn.Linear, hidden: Tensor) -> Tensor:
        """Project hidden states and split the result into heads: [..., T, D] -> [..., H, T, D / H]."""
        return layer(hidden).unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | LayerView, **ignored) -> tuple[Tensor]:
        """Compute the attention of one layer, [B, T, D] -> ([B, T, D],).

        The mask is the `LayerView` passed by `DiscourseLED.encode`; or, if called by the encoder of Hugging Face, its
        mask: 0 at tokens, negative at padding, positive at global tokens, [B, T]. Its other arguments are `ignored`,
        since they follow from the mask; a `ValueError` if attention weights are requested, which are not stored.
        """
        if ignored.get("output_attentions"):
            raise ValueError("attention weights are never stored: leave output_attentions out")
        layer_view = attention_mask
        if isinstance(layer_view, Tensor):
            layer_view = LayerView(View.of(layer_view >= 0, layer_view > 0))
        view = layer_view.view
        scale = 1 / math.sqrt(hidden_states.shape[-1] // self.heads)
        q, k, v = (self.split(layer, hidden_states) for layer in (self.query, self.key, self.value))  # [B, H, T, D / H]
        table = None if layer_view.table is None else layer_view.table()  # here: activation checkpointing recomputes it
        path, _ = self.choose(hidden_states.device, hidden_states.shape[1])
        if path == "fused":
            out = fused_attention(q * scale, k, v, view, table, self.window)
        else:
            attention = dense_attention if path == "dense" else chunked_attention
            out = attention(q * scale, k, v, view, table, self.window, self.dropout * self.training)
        return (self.attend_globally(out.transpose(1, 2).flatten(2), hidden_states, view, scale),)

    def attend_globally(self, out: Tensor, hidden: Tensor, view: View, scale: float) -> Tensor:
        """Replace `out` [B, T, D] at global tokens by attention to all tokens; `scale` (of queries) is (D / H)^-0.5."""
        if not view.global_groups and torch.is_grad_enabled():  # zeros, as DDP needs a gradient of each parameter
            layers = (self.query_global, self.key_global, self.value_global)
            return out + 0 * sum(p.sum() for layer in layers for p in layer.parameters())
        for documents, tokens in view.global_groups:  # N documents with G global tokens each
            index = documents.unsqueeze(1), tokens                                    # [N, 1], [N, G]: index of [B, T]
            states = hidden if len(documents) == len(hidden) else hidden[documents]   # [N, T, D]; no copy if N = B
            q = self.split(self.query_global, hidden[index]) * scale                  # [N, H, G, D / H]
            k, v = (self.split(layer, states) for layer in (self.key_global, self.value_global))
            visible = view.token_mask[documents].unsqueeze(1)                         # [N, 1, T]
            global_out = attend(q, k, v, visible, self.dropout * self.training)       # [N, H, G, D / H]
            global_out = global_out.transpose(1, 2).flatten(2).to(out.dtype)          # [N, G, D]
            is_padding = ~view.token_mask[index]  # global tokens grouped on the CPU may include it (`View.of`)
            out = out.index_put(index, global_out.masked_fill(is_padding.unsqueeze(-1), 0))
        return out


class DiscourseLED(nn.Module):
    """A LED whose encoder attends with discourse (Pu, Wang and Demberg 2023).

    Discourse enters in `encode`, whose output the decoder of Hugging Face reads. `led` stays a plain LED when it is
    called, loaded or saved. `injections` has the parameters of discourse: one module per layer, or a shared one if
    nothing is learned. With `adapters`, discourse enters these instead of attention.
    """

    def __init__(
        self,
        led: LEDForConditionalGeneration,
        injection: DiscourseInjection | None = None,
        path: AttentionPath = "auto",
        adapters: DiscourseAdapters | None = None,
    ) -> None:
        super().__init__()
        self.led = led
        self.adapters = adapters
        layers = led.led.encoder.layers
        for layer in layers:  # changes `led`
            layer.self_attn.longformer_self_attn = LEDWindowAttention(layer.self_attn.longformer_self_attn, path)
        injections = [] if injection is None or injection.ablation == "no_discourse" else [injection]
        if injections and injection.learned:  # each layer has parameters of its own; otherwise they share one table
            injections = [copy.deepcopy(injection) for _ in layers]
        self.injections = nn.ModuleList(injections)

    @property
    def encoder(self) -> nn.Module:
        """Hugging Face's encoder."""
        return self.led.led.encoder

    @property
    def reach(self) -> int:
        """The largest attention window of the layers, in tokens to each side."""
        return max(layer.self_attn.longformer_self_attn.window for layer in self.encoder.layers)

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        discourse: Discourse | None = None,
    ) -> LEDEncoderBaseModelOutput:
        """Return the output of the Hugging Face encoder, with `last_hidden_state` [B, T, D].

        `attention_mask` is 0 at padding, None for no padding; `global_attention_mask` is 1 at global tokens, None for
        no global token, [B, T] each. LEDs are trained with one global token, the first. A mask of global tokens on
        the CPU is read there without a wait for the GPU. Raises a `ValueError` if there are more tokens than
        positions, or discourse is missing or does not cover the tokens.
        """
        encoder = self.encoder
        if input_ids.shape[1] > encoder.max_source_positions:
            limit = f"the model has {encoder.max_source_positions} positions: cut the text"
            raise ValueError(f"the longest document of the batch has {input_ids.shape[1]} tokens, {limit}")
        hidden = encoder.embed_tokens(input_ids) + encoder.embed_positions(input_ids.shape)
        hidden = nn.functional.dropout(encoder.layernorm_embedding(hidden), encoder.dropout, encoder.training)
        view, tables = self.views(input_ids, attention_mask, global_attention_mask, discourse)
        _report(*encoder.layers[0].self_attn.longformer_self_attn.choose(hidden.device, hidden.shape[1]))  # once
        for layer, table in zip(encoder.layers, tables):
            # LayerDrop (Fan et al. 2020): skip a layer at random in training
            if not (encoder.training and encoder.layerdrop and torch.rand(()) < encoder.layerdrop):
                hidden = layer(hidden, attention_mask=LayerView(view, table))[0]
        return LEDEncoderBaseModelOutput(last_hidden_state=hidden)

    def views(
        self, input_ids: Tensor, attention_mask: Tensor | None, is_global: Tensor | None, discourse: Discourse | None
    ) -> tuple[View, list[Callable[[], HeadTable] | None]]:
        """Return the masks and EDUs of the batch; for each layer, a function that returns its discourse table, or None.

        Arguments and errors are those of `encode`. With adapters, which take the discourse instead, there is no table.
        """
        num_layers = len(self.encoder.layers)
        attention_mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if discourse is None and (len(self.injections) or self.adapters is not None):
            raise ValueError("the model needs the discourse of the batch; pass it, or build a model with no_discourse")
        view = View.of(attention_mask, is_global, None if discourse is None else discourse.token_edu)
        if self.adapters is not None:
            self.adapters.set_discourse(discourse.gamma, view.token_edu, discourse.band.shape[-1])  # [-1]: R relations
        if not len(self.injections):
            return view, [None] * num_layers  # plain attention
        is_copied = view.token_edu.device != discourse.token_edu.device  # the view has a copy on a GPU
        token_edu = discourse.token_edu if is_copied else view.token_edu  # checks the CPU's: no wait for the GPU
        check_band(token_edu, self.reach, discourse.band, discourse.ids)  # reach: largest window, to each side
        if self.injections[0].learned:  # a table of each layer, from its parameters
            return view, [partial(injection, discourse.band) for injection in self.injections]
        table = self.injections[0](discourse.band)  # all layers share it
        return view, [lambda: table] * num_layers
