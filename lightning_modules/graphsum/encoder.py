"""GraphSum, the Hierarchical Transformer and the flat Transformer: one network, three encoders."""

from contextlib import ExitStack
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
    """Input of the network: documents of L paragraphs padded to n tokens each; S: tokens of the longest document."""

    ids: Tensor  # token ids, [B, L, n]
    mask: Tensor  # True at tokens, [B, L, n]
    graph: Tensor  # weights G between paragraphs, in [0, 1], [B, L, L]
    places: Tensor  # index of each token of the concatenated document in its L n padded tokens, 0 at padding, [B, S]
    lengths: Tensor  # number of tokens of each document, [B], on the CPU

    @property
    def visible(self) -> Tensor:
        """Attention mask of tokens, [B, L, n]; True at one token of padding paragraphs, so that no softmax is empty."""
        return transformer.ensure_nonempty(self.mask)

    def concatenated_mask(self) -> Tensor:
        """Return the mask of `places`, True at tokens, [B, S]."""
        return torch.arange(self.places.shape[1], device=self.ids.device) < self.mask.flatten(1).sum(1, keepdim=True)

    def concatenate(self, x: Tensor) -> Tensor:
        """Concatenate the tokens of paragraphs without padding between them: [B, L, n, ...] -> [B, S, ...]."""
        documents = torch.arange(len(x), device=x.device).unsqueeze(1)                       # [B, 1]
        return x.flatten(1, 2)[documents, self.places]

    def in_paragraphs(self, x: Tensor) -> Tensor:
        """Invert `concatenate`, with zeros at padding: [B, S, D] -> [B, L, n, D]."""
        documents = torch.arange(len(x), device=x.device).unsqueeze(1)                       # [B, 1]
        x = x.masked_fill(~self.concatenated_mask().unsqueeze(-1), 0)
        out = x.new_zeros(len(x), self.ids[0].numel(), x.shape[-1])                          # [B, L n, D]
        # `places` (indices in L n) is padded with 0, the index of a token: adding zeros keeps it, assigning would not
        return out.index_put((documents, self.places), x, accumulate=True).unflatten(1, self.ids.shape[1:])


class Memory(NamedTuple):
    """What the decoder attends to: keys and values for each layer, and the mask of tokens, unless layers hold masks."""

    layers: list[GraphMemory] | list[KeyValues]
    mask: Tensor | None  # True at tokens, [B, 1, 1, S]; None if the layers have masks

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors, each [B, ...], in a flat dictionary; beam search keeps the unfinished documents of each.

        The names are `<layer number>.<field>` and, unless the layers have masks, `mask`.
        """
        named = {} if self.mask is None else {"mask": self.mask}
        for number, layer in enumerate(self.layers):
            for name, tensor in layer._asdict().items():
                named[f"{number}.{name}"] = tensor
        return named

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> Self:
        """Rebuild the memory from the dictionary that the method `tensors` returned."""
        mask = tensors.get("mask")
        kind = GraphMemory if mask is None else KeyValues  # layers of the `graph` encoder hold their masks
        num_layers = len(tensors) // len(kind._fields)  # rounded down, as `mask` is one tensor more
        layers = [kind(*(tensors[f"{number}.{name}"] for name in kind._fields)) for number in range(num_layers)]
        return cls(layers, mask)


class TokenEncoder(nn.Module):
    """Transformer layers over sequences of vectors, see `EncoderLayer`; with norm `pre`, normalization follows them."""

    def __init__(self, layers: int, size: int, heads: int, feed_forward: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        options = {"size": size, "heads": heads, "feed_forward": feed_forward, "dropout": dropout, "norm": norm}
        self.layers = nn.ModuleList(EncoderLayer(**options) for _ in range(layers))
        self.norm = nn.LayerNorm(size) if norm == "pre" else nn.Identity()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Encode sequences x of n vectors, [..., n, D] -> [..., n, D]; each mask, [..., n], is True somewhere."""
        sequences = x.flatten(0, -3)                                            # R sequences, [R, n, D]
        key_mask = mask.flatten(0, -2)[:, None, None]                                        # [R, 1, 1, n]
        for layer in self.layers:
            sequences = layer(sequences, key_mask)
        return self.norm(sequences).view(x.shape)


class GraphSumNetwork(TiedOutput):
    """Encoder of tokens and paragraphs, of one of three kinds, and a decoder.

    `graph`: token layers within each paragraph, pooling to a vector, graph layers over the vectors; the decoder attends
    to paragraphs and to their tokens (`GraphAttention`). `hierarchical`: token layers, then layers that exchange
    information between paragraphs; `flat`: token layers over the concatenation. The decoder of these two attends to the
    concatenated tokens. Arguments are those of `GraphSum`; a `pretrained` encoder of the concatenated paragraphs
    replaces the token layers, and a linear layer (`bridge`) maps its vectors to D.
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
        if size % (4 if encoder.paragraph_positions else 2):  # as many sines as cosines in each part, see `positions`
            raise ValueError(f"size must be even, a multiple of four with paragraph positions; got {size}")
        self.kind = kind
        self.size = size
        self.heads = heads
        self.paragraph_positions = encoder.paragraph_positions
        self.embedding = nn.Embedding(vocab_size, size)  # shared by source, target and output layer
        nn.init.normal_(self.embedding.weight, std=size**-0.5)
        self.output_bias = nn.Parameter(torch.zeros(vocab_size))
        self.dropout = Dropout(dropout)
        common = (size, heads, encoder.inner_size, dropout, norm)  # arguments of all kinds of layers
        self.pretrained = pretrained
        if pretrained is None:
            self.tokens = TokenEncoder(encoder.token_layers, *common)
        else:
            self.tokens = None
            self.bridge = nn.Linear(pretrained.size, size)

        def make_bias(enabled: bool) -> GraphBias | None:
            return GraphBias(graph_bias.sigma, graph_bias.learn_sigma) if enabled else None

        self.paragraphs = nn.ModuleList()  # layers between paragraphs; `flat` has none
        if kind == "graph":
            self.pooling = MultiHeadPooling(size, heads) if encoder.multi_head_pooling else MeanPooling()
        for _ in range(encoder.paragraph_layers):
            if kind == "graph":
                self.paragraphs.append(GraphEncoderLayer(*common, make_bias(graph_bias.in_encoder)))
            elif kind == "hierarchical":
                self.paragraphs.append(graph_attention.HierarchicalLayer(*common))
        is_pre = norm == "pre"  # a stack of `pre` layers needs a final normalization
        self.paragraph_norm = nn.LayerNorm(size) if is_pre and self.paragraphs else nn.Identity()
        self.decoder = nn.ModuleList()
        for _ in range(decoder_layers):
            attention = None  # `DecoderLayer` then builds multi-head attention
            if kind == "graph":
                attention = GraphAttention(size, heads, dropout, make_bias(graph_bias.in_decoder))
            self.decoder.append(DecoderLayer(*common, cross_attention=attention))
        self.decoder_norm = nn.LayerNorm(size) if is_pre else nn.Identity()

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Return embeddings times sqrt(D) plus positions [..., T, D], for ids [..., T] -> [..., T, D]."""
        vectors = self.embedding(ids) * self.size**0.5  # initialized with standard deviation 1 / sqrt(D)
        return self.dropout(vectors + positions.to(vectors.dtype))

    def positions(self, paragraphs: int, tokens: int, device: torch.device) -> Tensor:
        """Return position embeddings [L, n, D]: of tokens in paragraphs and of paragraphs, D / 2 each, or of tokens."""
        if not self.paragraph_positions:
            return sinusoidal(tokens, self.size, device).expand(paragraphs, -1, -1)
        half = self.size // 2
        token_half = sinusoidal(tokens, half, device).expand(paragraphs, -1, -1)                   # [L, n, D / 2]
        paragraph_half = sinusoidal(paragraphs, half, device).unsqueeze(1).expand(-1, tokens, -1)  # [L, n, D / 2]
        return torch.cat([token_half, paragraph_half], -1)

    def _pretrained(self, source: Source) -> Tensor:
        """Return vectors of the pretrained encoder for the tokens of concatenated paragraphs, [B, S, D]."""
        documents = [ids[:length] for ids, length in zip(source.concatenate(source.ids), source.lengths.tolist())]
        return self.bridge(pad_sequence(self.pretrained(documents), batch_first=True))

    def token_vectors(self, source: Source) -> Tensor:
        """Return token vectors of separate paragraphs, [B, L, n, D], or of the concatenation (`flat`), [B, S, D]."""
        if self.kind == "flat":
            if self.pretrained is not None:
                return self._pretrained(source)
            ids = source.concatenate(source.ids)                                             # [B, S]
            embedded = self.embed(ids, sinusoidal(ids.shape[1], self.size, ids.device))      # [B, S, D]
            return self.tokens(embedded, source.concatenated_mask())
        positions = self.positions(*source.ids.shape[1:], source.ids.device)                 # [L, n, D]
        if self.pretrained is not None:
            vectors = source.in_paragraphs(self._pretrained(source))  # [B, L, n, D]; its encoder knows no paragraphs
            return self.dropout(vectors + positions.to(vectors.dtype))
        return self.tokens(self.embed(source.ids, positions), source.visible)  # True in every paragraph, [B, L, n]

    def encode(self, source: Source) -> Memory:
        """Encode documents, and return the keys and values for the cross-attention of each decoder layer."""
        tokens = self.token_vectors(source)  # [B, L, n, D], `flat` [B, S, D]
        paragraph_mask = source.mask.any(-1)                                                 # [B, L]
        if self.kind == "graph":
            visible = source.visible  # mask, True at one token even of padding paragraphs, [B, L, n]
            paragraphs = self.pooling(tokens, visible)                                       # [B, L, D]
            for layer in self.paragraphs:
                paragraphs = layer(paragraphs, paragraph_mask, source.graph)
            contents = (tokens, self.paragraph_norm(paragraphs), visible, paragraph_mask, source.graph)
            return Memory([layer.cross_attention.remember(*contents) for layer in self.decoder], mask=None)
        if self.kind == "hierarchical":
            for layer in self.paragraphs:
                tokens = layer(tokens, source.visible, paragraph_mask)
            tokens = source.concatenate(self.paragraph_norm(tokens))                         # [B, S, D]
        mask = source.concatenated_mask()[:, None, None]                                              # [B, 1, 1, S]
        return Memory([layer.cross_attention.project(tokens) for layer in self.decoder], mask)

    def decode(self, inputs: Tensor, memory: list[GraphMemory] | list[KeyValues], mask: Tensor | None) -> Tensor:
        """Run the decoder over ids [B, K, T] -> input of the output layer [B, K, T, D]; others: fields of `Memory`."""
        x = self.embed(inputs, sinusoidal(inputs.shape[-1], self.size, inputs.device))
        for layer, layer_memory in zip(self.decoder, memory):
            x = layer(x, layer_memory, mask)
        return self.decoder_norm(x)

    def begin(self, memory: list[GraphMemory] | list[KeyValues], mask: Tensor | None) -> tuple[State, State]:
        """Return the first state (empty keys and values of each layer) for `step`, and the memory as a dictionary."""
        keys = memory[0][0]  # of the first layer, [B, ...]
        empty = keys.new_zeros(len(keys), self.heads, 0, self.size // self.heads)            # [B, N, 0, D / N]
        state = {f"{name}{n}": empty for n in range(len(self.decoder)) for name in KeyValues._fields}
        return state, Memory(memory, mask).tensors()

    def step(self, tokens: Tensor, state: State, memory: State) -> tuple[Tensor, State]:
        """Decode one position of K hypotheses of each document: ids [B, K] -> [B, K, D], and the next state."""
        layers, mask = Memory.of(memory)  # keys and values of documents, for each layer, and their mask
        position = state["keys0"].shape[-2]  # number of positions decoded before, the same in all layers
        x = self.embed(tokens, sinusoidal(1, self.size, tokens.device, start=position))
        next_state: State = {}
        for number, (layer, layer_memory) in enumerate(zip(self.decoder, layers)):
            past = KeyValues(state[f"keys{number}"], state[f"values{number}"])
            x, extended = layer.step(x, past, layer_memory, mask)  # `past`, with keys and values of this position
            next_state |= {f"{name}{number}": tensor for name, tensor in extended._asdict().items()}
        return self.decoder_norm(x), next_state

    @torch.no_grad()
    def paragraph_attention(self, inputs: Tensor, source: Source) -> Tensor:
        """Return the attention of target tokens [B, K, T] to paragraphs, averaged over layers and heads, [B, K, T, L].

        For `graph` this is beta, see `GraphAttention`; for other encoders, the sum over the tokens of each paragraph.
        """
        maps: list[Tensor] = []  # of each layer

        def record(attention: nn.Module, arguments: tuple, _: Tensor) -> None:  # forward hook
            if isinstance(attention, GraphAttention):
                maps.append(attention.beta(arguments[0], arguments[1]).mean(1))              # [B, K T, L]
                return
            weights = attention.weights(*arguments).mean(1)  # over heads                      [B, K T, S]
            paragraph = (source.places // source.ids.shape[2]).unsqueeze(1).expand_as(weights)  # index in L n // n
            sums = weights.new_zeros(*weights.shape[:2], source.ids.shape[1])
            maps.append(sums.scatter_add(2, paragraph, weights))  # padding has weight 0; [B, K T, L]

        with ExitStack() as hooks:  # which it removes at the end
            for layer in self.decoder:
                hooks.enter_context(layer.cross_attention.register_forward_hook(record))
            self.decode(inputs, *self.encode(source))
        return torch.stack(maps).mean(0).unflatten(1, inputs.shape[1:])
