"""Transformer encoder-decoder trained from scratch."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.output_layer import DecodingLayer, best_words, smoothed_log_probs, vocabulary_logits
from lightning_modules.networks.transformer import Activation, DecoderLayer, EncoderLayer, KeyValues, sinusoidal

State = dict[str, Tensor]


class TiedOutput(nn.Module):
    """Log-probabilities and decoding of a network whose output layer has the weight of `embedding` and `output_bias`.

    A subclass implements `decode`, which returns the features (inputs of the output layer, of width D) of K targets of
    each of B documents, [B, K, T], and `step`, which returns the features of one more position.
    """

    def output_layer(self, words: int) -> tuple[Tensor, Tensor]:
        """Return the output layer for the first `words` tokens: its weight [words, D] and bias [words]."""
        return self.embedding.weight[:words], self.output_bias[:words]

    def log_probs(
        self, states: Tensor, mask: Tensor, inputs: Tensor, target: Tensor, rows: Tensor, words: int
    ) -> tuple[Tensor, Tensor]:
        """Return log P of N target tokens, teacher-forced, and the mean of log P over the vocabulary, [N] each.

        Label smoothing needs the mean. The output layer is evaluated at these tokens only, in float32 or float64.

        Args:
            states, mask: arguments of `decode`: the encoded documents.
            inputs, target: ids of the previous tokens, and of the target tokens, [B, K, T].
            rows: positions of the N tokens that are no padding, in targets flattened to [B K T].
            words: number of tokens of the tokenizer; the output layer may have more rows, after these.
        """
        features = self.decode(inputs, states, mask).flatten(0, -2)[rows]  # [N, D]
        return smoothed_log_probs(features, *self.output_layer(words), target.flatten()[rows])

    def distribution(self, states: Tensor, mask: Tensor, inputs: Tensor, words: int) -> Callable[[Tensor], Tensor]:
        """Return a function from positions [n] in targets flattened to [B K T] to log P of the first `words` tokens."""
        features = self.decode(inputs, states, mask).flatten(0, -2)  # [B K T, D]
        layer = self.output_layer(words)
        return lambda rows: vocabulary_logits(features[rows], *layer).log_softmax(-1)  # [n, words]

    def stepper(self, words: int):
        """Return the step function of beam search (`beam_search.Step`), with the first `words` tokens as vocabulary."""
        layer = DecodingLayer.of(*self.output_layer(words))  # weight and bias, laid out for fast steps

        def step(tokens: Tensor, state: State, memory: State, count: int | None):
            x, state = self.step(tokens, state, memory)  # [B, K, D]
            if count is None:  # sampling needs the probabilities of all tokens
                return None, layer.logits(x).log_softmax(-1), state  # None: column i is token i
            return *best_words(x, layer, count), state  # ids and log P of the `count` best tokens

        return step


class EncoderDecoder(TiedOutput):
    """Transformer encoder-decoder with pre-normalization, sinusoidal positions and tied embeddings.

    The architecture of PEGASUS (Zhang et al. 2020, section 3; Vaswani et al. 2017). One embedding, scaled by sqrt(D),
    serves the encoder, the decoder and the output layer. Documents may have any length. `size` is D, `feed_forward`
    the inner width of feed-forward networks; dropout is in all layers (see `EncoderLayer`) and on embeddings.
    """

    def __init__(
        self,
        vocab_size: int,
        size: int = 256,
        heads: int = 4,
        encoder_layers: int = 3,
        decoder_layers: int = 3,
        feed_forward: int = 1024,
        dropout: float = 0.1,
        activation: Activation = "relu",
        output_bias: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, size)
        nn.init.normal_(self.embedding.weight, std=size**-0.5)  # `embed` multiplies it by sqrt(D): variance 1
        options = (size, heads, feed_forward, dropout, "pre", activation)  # of all layers; pre-normalization
        self.encoder = nn.ModuleList(EncoderLayer(*options) for _ in range(encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*options) for _ in range(decoder_layers))
        self.encoder_norm = nn.LayerNorm(size)
        self.decoder_norm = nn.LayerNorm(size)
        self.dropout = Dropout(dropout)
        if output_bias:
            self.output_bias = nn.Parameter(torch.zeros(vocab_size))
        else:  # zeros, which are not stored in checkpoints, so that `TiedOutput` always finds a bias
            self.register_buffer("output_bias", torch.zeros(vocab_size), persistent=False)

    def embed(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Embed tokens at the positions from `start` on, [..., T] -> [..., T, D]."""
        size = self.embedding.embedding_dim
        vectors = self.embedding(tokens) * size**0.5
        return self.dropout(vectors + sinusoidal(tokens.shape[-1], size, tokens.device, start).to(vectors.dtype))

    def encode(self, source: Tensor, mask: Tensor) -> Tensor:
        """Encode documents: ids [B, S], and a mask [B, S], True at tokens -> [B, S, D]."""
        x = self.embed(source)                                                           # [B, S, D]
        attention_mask = mask[:, None, None]                                             # [B, 1, 1, S]
        for layer in self.encoder:
            x = layer(x, attention_mask)
        return self.encoder_norm(x)

    def decode(self, inputs: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """Return inputs of the output layer: ids [B, K, T], encoder states [B, S, D] and mask [B, S] -> [B, K, T, D].

        Keys and values of a document are computed once, not for each of K targets: in 0.87 of the time if K = 4.
        """
        x = self.embed(inputs)                                                           # [B, K, T, D]
        attention_mask = mask[:, None, None]                                             # [B, 1, 1, S]
        for layer in self.decoder:
            x = layer(x, states, attention_mask)
        return self.decoder_norm(x)

    def begin(self, states: Tensor, mask: Tensor) -> tuple[State, State]:
        """Return the initial state and the memory of decoding, from encoder states [B, S, D] and mask [B, S].

        The state has the keys and values of each layer's self-attention, at first of no position, [B, N, 0, D / N]. The
        memory has those of the documents, for cross-attention, [B, N, S, D / N], and their mask, [B, 1, 1, S].
        """
        memory: State = {"mask": mask[:, None, None]}
        state: State = {}
        for number, layer in enumerate(self.decoder):
            documents = layer.cross_attention.project(states)
            memory |= {f"memory_keys{number}": documents.keys, f"memory_values{number}": documents.values}
            empty = documents.keys[:, :, :0]  # no position yet
            state |= {f"keys{number}": empty, f"values{number}": empty}
        return state, memory

    def step(self, tokens: Tensor, state: State, memory: State) -> tuple[Tensor, State]:
        """Decode one position of K hypotheses of each document: last tokens [B, K] -> [B, K, D], and the next state."""
        position = state["keys0"].shape[-2]  # number of previous positions, equal in all layers
        x = self.embed(tokens.flatten().unsqueeze(1), position).view(*tokens.shape, -1)  # [B, K, D]
        next_state: State = {}
        for number, layer in enumerate(self.decoder):
            past = KeyValues(state[f"keys{number}"], state[f"values{number}"])
            documents = KeyValues(memory[f"memory_keys{number}"], memory[f"memory_values{number}"])
            x, extended = layer.step(x, past, documents, memory["mask"])
            next_state |= {f"keys{number}": extended.keys, f"values{number}": extended.values}
        return self.decoder_norm(x), next_state
