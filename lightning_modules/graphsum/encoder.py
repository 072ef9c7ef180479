"""GraphSum, the Hierarchical Transformer and the flat Transformer: one network, three encoders."""

from typing import NamedTuple, Self, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lightning_modules.graphsum import graph_attention
from lightning_modules.graphsum.decoder import GraphAttention, GraphMemory
from lightning_modules.graphsum.graph_attention import GraphBias, GraphEncoderLayer, MeanPooling, MultiHeadPooling
from lightning_modules.graphsum.options import Encoder, GraphBiasOptions, GraphSumEncoder
from lightning_modules.networks import transformer
from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.encoder_decoder import State, TiedOutput
from lightning_modules.networks.text_encoder import TextEncoder
from lightning_modules.networks.transformer import DecoderLayer, EncoderLayer, KeyValues, Norm, sinusoidal


class Source(NamedTuple):
    """Input of the network: documents as paragraphs of tokens."""

    ids: Tensor  # [B, L, n]
    mask: Tensor  # True at tokens, [B, L, n]
    graph: Tensor  # G in [0, 1], [B, L, L]
    places: Tensor  # index in [L n] of each token of the concatenated document, [B, S]
    lengths: Tensor  # tokens of each document, [B], in the host's memory

    @property
    def paragraph_mask(self) -> Tensor:
        """Mask of paragraphs, True at real ones, [B, L]."""
        return self.mask.any(-1)

    @property
    def visible(self) -> Tensor:
        """Attention mask of tokens, [B, L, n]; True at one token of padding paragraphs, so that no softmax is empty."""
        return transformer.ensure_nonempty(self.mask)

    def row_mask(self) -> Tensor:
        """Return the mask of `places`, True at tokens, [B, S]."""
        lengths = self.mask.flatten(1).sum(1, keepdim=True)
        return torch.arange(self.places.shape[1], device=self.ids.device) < lengths

    def concatenate(self, x: Tensor) -> Tensor:
        """Concatenate the tokens of paragraphs without padding between them: [B, L, n, ...] -> [B, S, ...]."""
        rows = torch.arange(len(x), device=x.device).unsqueeze(1)
        return x.flatten(1, 2)[rows, self.places]

    def in_paragraphs(self, x: Tensor) -> Tensor:
        """Invert `concatenate`, with zeros at padding: [B, S, D] -> [B, L, n, D]."""
        rows = torch.arange(len(x), device=x.device).unsqueeze(1)
        x = x.masked_fill(~self.row_mask().unsqueeze(-1), 0)
        spread = x.new_zeros(len(x), self.ids[0].numel(), x.shape[-1])
        # Padding of `places` adds zeros to the position of a token.
        return spread.index_put((rows, self.places), x, accumulate=True).unflatten(1, self.ids.shape[1:])


class Memory(NamedTuple):
    """Memory of the decoder: keys and values of each layer, and the mask of flat models."""

    layers: list[GraphMemory] | list[KeyValues]
    mask: Tensor | None  # True at tokens, [B, 1, 1, S]; None if the layers have masks

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors, each [B, ...], in the form that beam search reorders."""
        named = {f"{n}.{name}": x for n, layer in enumerate(self.layers) for name, x in layer._asdict().items()}
        return named | ({} if self.mask is None else {"mask": self.mask})

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> Self:
        """Rebuild the memory from `tensors`."""
        kind = KeyValues if "mask" in tensors else GraphMemory
        count = len([name for name in tensors if name != "mask"]) // len(kind._fields)
        layers = [kind(*(tensors[f"{n}.{name}"] for name in kind._fields)) for n in range(count)]
        return cls(layers, tensors.get("mask"))


class TokenEncoder(nn.Module):
    """Transformer layers over sequences of vectors, see `EncoderLayer`; `pre` layers have a final normalization."""

    def __init__(self, layers: int, size: int, heads: int, feed_forward: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        options = {"size": size, "heads": heads, "feed_forward": feed_forward, "dropout": dropout, "norm": norm}
        self.layers = nn.ModuleList(EncoderLayer(**options) for _ in range(layers))
        self.norm = nn.LayerNorm(size) if norm == "pre" else nn.Identity()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Encode x [..., n, D] with a mask [..., n] that has a True in each row, [..., n, D]."""
        rows, key_mask = x.flatten(0, -3), mask.flatten(0, -2)[:, None, None]
        for layer in self.layers:
            rows = layer(rows, key_mask)
        return self.norm(rows).view(x.shape)


class GraphSumNetwork(TiedOutput):
    """Encoder of tokens and paragraphs, and a decoder that attends to both.

    `graph`: token layers within each paragraph, pooling to a vector, graph layers over the vectors; the decoder attends
    to paragraphs and to their tokens (`GraphAttention`). `hierarchical`: token layers, then layers that exchange
    information between paragraphs; `flat`: token layers over the concatenation. The decoder of these two attends to the
    concatenated tokens. Arguments are those of `GraphSum`; a `pretrained` encoder of the concatenated paragraphs
    replaces the token layers.
    """

    def __init__(
        self,
        vocab_size: int,
        encoder: GraphSumEncoder,
        graph_bias: GraphBiasOptions,
        decoder_layers: int,
        dropout: float,
        pretrained: TextEncoder | None = None,
    ) -> None:
        super().__init__()
        kind, size, heads, norm = encoder.kind, encoder.hidden_size, encoder.heads, encoder.norm
        if kind not in get_args(Encoder):
            raise ValueError(f"encoder must be {', '.join(get_args(Encoder))}, got {kind!r}")
        if size % (4 if encoder.paragraph_positions else 2):
            raise ValueError(f"size must be even, a multiple of four with paragraph positions; got {size}")
        self.kind, self.size, self.heads, self.paragraph_positions = kind, size, heads, encoder.paragraph_positions
        self.embedding = nn.Embedding(vocab_size, size)  # shared by source, target and output layer
        nn.init.normal_(self.embedding.weight, std=size**-0.5)
        self.output_bias = nn.Parameter(torch.zeros(vocab_size))
        self.dropout = Dropout(dropout)
        common = (size, heads, encoder.inner_size, dropout, norm)
        self.pretrained = pretrained
        if pretrained is None:
            self.tokens = TokenEncoder(encoder.token_layers, *common)
        else:
            self.tokens, self.bridge = None, nn.Linear(pretrained.size, size)

        def bias(enabled: bool) -> GraphBias | None:
            return GraphBias(graph_bias.sigma, graph_bias.learn_sigma) if enabled and kind == "graph" else None

        self.paragraphs = nn.ModuleList()
        count = encoder.paragraph_layers
        if kind == "graph":
            self.pooling = MultiHeadPooling(size, heads) if encoder.multi_head_pooling else MeanPooling()
            self.paragraphs.extend(GraphEncoderLayer(*common, bias(graph_bias.in_encoder)) for _ in range(count))
        elif kind == "hierarchical":
            self.paragraphs.extend(graph_attention.HierarchicalLayer(*common) for _ in range(count))
        last = norm == "pre"
        self.paragraph_norm = nn.LayerNorm(size) if last and self.paragraphs else nn.Identity()

        def cross() -> GraphAttention | None:
            return GraphAttention(size, heads, dropout, bias(graph_bias.in_decoder)) if kind == "graph" else None

        self.decoder = nn.ModuleList(DecoderLayer(*common, cross_attention=cross()) for _ in range(decoder_layers))
        self.decoder_norm = nn.LayerNorm(size) if last else nn.Identity()

    # Encoding ----------------------------------------------------------------------------------------------------

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Return embeddings times sqrt(D) plus positions [..., T, D], for ids [..., T] -> [..., T, D]."""
        vectors = self.embedding(ids) * self.size**0.5
        return self.dropout(vectors + positions.to(vectors.dtype))

    def positions(self, paragraphs: int, tokens: int, device: torch.device) -> Tensor:
        """Return [token position; paragraph position], D / 2 each, or only token positions, [L, n, D]."""
        if not self.paragraph_positions:
            return sinusoidal(tokens, self.size, device).expand(paragraphs, -1, -1)
        half = self.size // 2
        of_token = sinusoidal(tokens, half, device).expand(paragraphs, -1, -1)                   # [L, n, D / 2]
        of_paragraph = sinusoidal(paragraphs, half, device).unsqueeze(1).expand(-1, tokens, -1)  # [L, n, D / 2]
        return torch.cat([of_token, of_paragraph], -1)

    def _pretrained(self, source: Source) -> Tensor:
        """Return pretrained vectors of the tokens of concatenated paragraphs, [B, S, D]."""
        documents = [row[:length] for row, length in zip(source.concatenate(source.ids), source.lengths.tolist())]
        return self.bridge(pad_sequence(self.pretrained(documents), batch_first=True))

    def token_vectors(self, source: Source) -> Tensor:
        """Return token vectors of separate paragraphs, [B, L, n, D], or of the concatenation (`flat`), [B, S, D]."""
        # `self.tokens` is the token encoder; a pretrained encoder takes its place.
        if self.kind == "flat":
            if self.pretrained is not None:
                return self._pretrained(source)
            ids = source.concatenate(source.ids)                                             # [B, S]
            return self.tokens(self.embed(ids, sinusoidal(ids.shape[1], self.size, ids.device)), source.row_mask())
        positions = self.positions(*source.ids.shape[1:], source.ids.device)                 # [L, n, D]
        if self.pretrained is not None:
            vectors = source.in_paragraphs(self._pretrained(source))
            return self.dropout(vectors + positions.to(vectors.dtype))
        return self.tokens(self.embed(source.ids, positions), source.visible)

    def encode(self, source: Source) -> Memory:
        """Return the memory of the decoder."""
        tokens, paragraph_mask = self.token_vectors(source), source.paragraph_mask
        if self.kind == "graph":
            paragraphs, visible = self.pooling(tokens, source.visible), source.visible       # [B, L, D]
            for layer in self.paragraphs:
                paragraphs = layer(paragraphs, paragraph_mask, source.graph)
            contents = (tokens, self.paragraph_norm(paragraphs), visible, paragraph_mask, source.graph)
            return Memory([layer.cross_attention.remember(*contents) for layer in self.decoder], None)
        if self.kind == "hierarchical":
            for layer in self.paragraphs:
                tokens = layer(tokens, source.visible, paragraph_mask)
            tokens = source.concatenate(self.paragraph_norm(tokens))                         # [B, S, D]
        mask = source.row_mask()[:, None, None]
        return Memory([layer.cross_attention.project(tokens) for layer in self.decoder], mask)

    # Decoding ----------------------------------------------------------------------------------------------------

    def decode(self, inputs: Tensor, memory: list[GraphMemory] | list[KeyValues], mask: Tensor | None) -> Tensor:
        """Return the input of the output layer at all positions, inputs [B, K, T] -> [B, K, T, D]; see `Memory`."""
        x = self.embed(inputs, sinusoidal(inputs.shape[-1], self.size, inputs.device))
        for layer, layer_memory in zip(self.decoder, memory):
            x = layer(x, layer_memory, mask)
        return self.decoder_norm(x)

    def begin(self, memory: list[GraphMemory] | list[KeyValues], mask: Tensor | None) -> tuple[State, State]:
        """Return the initial state, empty keys and values of each layer [B, N, 0, D / N], and the memory by name."""
        empty = memory[0][0].new_zeros(len(memory[0][0]), self.heads, 0, self.size // self.heads)
        state = {f"{name}{n}": empty for n in range(len(self.decoder)) for name in KeyValues._fields}
        return state, Memory(memory, mask).tensors()

    def step(self, tokens: Tensor, state: State, memory: State) -> tuple[Tensor, State]:
        """Decode one position of K hypotheses of each document: [B, K] -> [B, K, D], and the next state."""
        layers, mask = Memory.of(memory)
        x = self.embed(tokens, sinusoidal(1, self.size, tokens.device, start=state["keys0"].shape[-2]))
        next_state: State = {}
        for number, (layer, layer_memory) in enumerate(zip(self.decoder, layers)):
            past = KeyValues(state[f"keys{number}"], state[f"values{number}"])
            x, extended = layer.step(x, past, layer_memory, mask)
            next_state |= {f"{name}{number}": tensor for name, tensor in extended._asdict().items()}
        return self.decoder_norm(x), next_state

    @torch.no_grad()
    def paragraph_attention(self, inputs: Tensor, source: Source) -> Tensor:
        """Return the attention of target tokens [B, K, T] to paragraphs, averaged over layers and heads, [B, K, T, L].

        This is beta for `graph`, and the sum over the tokens of a paragraph for the others.
        """
        maps: list[Tensor] = []

        def keep(attention: nn.Module, arguments: tuple, _: Tensor) -> None:
            if isinstance(attention, GraphAttention):
                maps.append(attention.beta(arguments[0], arguments[1]).mean(1))              # [B, K T, L]
                return
            weights = attention.weights(*arguments).mean(1)                                  # [B, K T, S]
            paragraph = (source.places // source.ids.shape[2]).unsqueeze(1).expand_as(weights)
            sums = weights.new_zeros(*weights.shape[:2], source.ids.shape[1])
            maps.append(sums.scatter_add(2, paragraph, weights))                             # padding weighs nothing

        hooks = [layer.cross_attention.register_forward_hook(keep) for layer in self.decoder]
        try:
            self.decode(inputs, *self.encode(source))
        finally:
            for hook in hooks:
                hook.remove()
        return torch.stack(maps).mean(0).unflatten(1, inputs.shape[1:])
