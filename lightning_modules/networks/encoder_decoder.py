"""An encoder-decoder Transformer of a given size, built on the suite's Transformer brick."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lightning_modules.networks.output_layer import VocabularySlices, best_words, vocabulary_logits
from lightning_modules.networks.output_loss import linear_log_prob
from lightning_modules.networks.transformer import (
    Activation,
    DecoderLayer,
    EncoderLayer,
    KeyValues,
    sinusoidal,
)

State = dict[str, Tensor]


def _names(layer: int, kind: str = "") -> tuple[str, str]:
    return f"{kind}keys{layer}", f"{kind}values{layer}"


class EncoderDecoder(nn.Module):
    """Encoder and decoder with pre-normalisation and sinusoidal positions, one embedding for both and for the output.

    As PEGASUS is built (Zhang et al. 2020, section 3; Vaswani et al. 2017), after an embedding that is scaled by
    sqrt(D). Documents may be of any length.

    Args:
        vocab_size: V.
        size: D.
        heads: of all attention.
        encoder_layers, decoder_layers: their numbers.
        feed_forward: width inside the feed-forward networks.
        dropout: on embeddings, attention weights, inside the feed-forward networks, and on what each part adds.
        activation: of the feed-forward networks.
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
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, size)
        nn.init.normal_(self.embedding.weight, std=size**-0.5)
        settings = (size, heads, feed_forward, dropout, "pre", activation)
        self.encoder = nn.ModuleList(EncoderLayer(*settings) for _ in range(encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*settings) for _ in range(decoder_layers))
        self.encoder_norm, self.decoder_norm, self.dropout = nn.LayerNorm(size), nn.LayerNorm(size), nn.Dropout(dropout)
        self.register_buffer("no_bias", torch.zeros(vocab_size), persistent=False)

    def embed(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Embedded tokens with their positions from `start` on, [B, T] -> [B, T, D]."""
        size = self.embedding.embedding_dim
        positions = sinusoidal(tokens.shape[1], size, tokens.device, start)
        return self.dropout(self.embedding(tokens) * size**0.5 + positions)

    def encode(self, source: Tensor, mask: Tensor) -> Tensor:
        """States of documents: tokens [B, S] and a mask that is True at them [B, S] -> [B, S, D]."""
        x, seen = self.embed(source), mask[:, None, None]  # [B, S, D], [B, 1, 1, S]
        for layer in self.encoder:
            x = layer(x, seen)
        return self.encoder_norm(x)

    def decode(self, inputs: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """What the output layer reads, all positions at once: [B, T], [B, S, D], [B, S] -> [B, T, D]."""
        x, seen = self.embed(inputs), mask[:, None, None]
        for layer in self.decoder:
            x = layer(x, states, seen)
        return self.decoder_norm(x)

    def log_prob(
        self, states: Tensor, mask: Tensor, inputs: Tensor, target: Tensor, rows: Tensor, words: int
    ) -> Tensor:
        """log P of targets, teacher-forced; the output layer is evaluated at real tokens only.

        Args:
            states: of documents, [B, S, D].
            mask: True at their tokens, [B, S].
            inputs: the token before each target, [B, T].
            target: [B, T].
            rows: flat positions of the real tokens in [B T], [N].
            words: how many rows of the output layer have a token.

        Returns:
            [N], in float32 or wider.
        """
        features = self.decode(inputs, states, mask).flatten(0, 1)[rows]  # [N, D]
        weight, bias = self.embedding.weight[:words], self.no_bias[:words]
        return linear_log_prob(features, weight, bias, target.flatten()[rows])

    def distribution(self, states: Tensor, mask: Tensor, inputs: Tensor, words: int) -> Callable[[Tensor], Tensor]:
        """log P of every token at flat positions [n] in [B T]: [n, words]; arguments as in `log_prob`."""
        features = self.decode(inputs, states, mask).flatten(0, 1)  # [B T, D]
        weight, bias = self.embedding.weight[:words], self.no_bias[:words]
        return lambda rows: vocabulary_logits(features[rows], weight, bias).log_softmax(-1)

    # One position after another ----------------------------------------------------------------------------------

    def begin(self, states: Tensor, mask: Tensor) -> tuple[State, State]:
        """What decoding starts with: the empty past of a hypothesis [B, N, 0, D / N] a layer, and what belongs to a
        document, keys and values [B, N, S, D / N] a layer and the mask [B, 1, 1, S]."""
        memory: State = {"mask": mask[:, None, None]}
        state: State = {}
        for number, layer in enumerate(self.decoder):
            projected = layer.cross_attention.project(states)
            memory |= zip(_names(number, "memory_"), projected)
            state |= dict.fromkeys(_names(number), projected.keys[:, :, :0])
        return state, memory

    def stepper(self, words: int):
        """One step of decoding, see `decoding.Step`; the output layer is cut to the rows that have a token.

        It is to be made anew once weights have changed.
        """
        weight, bias = self.embedding.weight[:words], self.no_bias[:words]
        sliced = VocabularySlices.of(weight, bias)

        def step(tokens: Tensor, state: State, memory: State, count: int | None):
            x, state = self.step(tokens, state, memory)  # [B, K, D]
            if count is None:
                return None, vocabulary_logits(x, weight, bias).log_softmax(-1), state
            best = best_words(x, sliced, count)
            return best.ids, best.log_probs, state

        return step

    def step(self, tokens: Tensor, state: State, memory: State) -> tuple[Tensor, State]:
        """One more position of K hypotheses of each document: [B, K] -> [B, K, D], and the longer past."""
        x = self.embed(tokens.flatten().unsqueeze(1), state["keys0"].shape[-2]).view(*tokens.shape, -1)
        after: State = {}
        for number, layer in enumerate(self.decoder):
            past, seen = (
                KeyValues(*(held[name] for name in _names(number, kind)))
                for held, kind in ((state, ""), (memory, "memory_"))
            )
            x, longer = layer.step(x, past, seen, memory["mask"])
            after |= zip(_names(number), longer)
        return self.decoder_norm(x), after
