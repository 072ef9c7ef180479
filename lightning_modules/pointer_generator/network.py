"""Network of the pointer-generator: biLSTM encoder, LSTM decoder with attention and input feeding, copy gate."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lightning_modules.networks.attention import CoverageAttention
from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.output_layer import upcast_half
from lightning_modules.networks.recurrent import bidirectional


class Memory(NamedTuple):
    """Encoder outputs that the decoder attends to."""

    states: Tensor  # [B, S, 2H]
    projected: Tensor  # W_h h, [B, S, 2H]
    mask: Tensor  # True at tokens, [B, S]


class DecoderState(NamedTuple):
    """Decoder state between two steps, for K summaries of each document."""

    hidden: Tensor  # [B, K, H]
    cell: Tensor  # [B, K, H]
    context: Tensor  # [B, K, 2H]
    coverage: Tensor  # sum of the attention of all previous steps, [B, K, S]


class Decoded(NamedTuple):
    """Decoder outputs over T steps."""

    features: Tensor  # V [hidden; context] + b, [B, K, T, H]
    attention: Tensor  # [B, K, T, S]
    gate: Tensor | None  # logit of p_gen, [B, K, T]
    overlap: Tensor  # covloss_t, [B, K, T]


class PointerGeneratorNetwork(nn.Module):
    """Attentional sequence-to-sequence network, optionally with a pointer and coverage (See et al. 2017, section 2).

    Each LSTM gate has one bias: PyTorch's second bias stays at zero and is not trained. With V = 50,000, E = 128 and
    H = 256 there are 21,499,600 trained parameters; the pointer adds 1,153 and coverage 512. Arguments as of
    `PointerGenerator`, where `embedding_std` is `embedding.std`; dropout also is on encoder states.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int = 128,
        hidden_size: int = 256,
        pointer: bool = True,
        coverage: bool = True,
        dropout: float = 0.0,
        embedding_std: float = 1e-4,
    ) -> None:
        super().__init__()
        H, E = hidden_size, embedding_size
        self.embedding = nn.Embedding(vocab_size, E)
        self.encoder = nn.LSTM(E, H, batch_first=True, bidirectional=True)
        self.reduce_hidden = nn.Linear(2 * H, H)  # both directions -> decoder
        self.reduce_cell = nn.Linear(2 * H, H)
        self.feed_word = nn.Linear(E, E)
        self.feed_context = nn.Linear(2 * H, E, bias=False)  # added to `feed_word`, with one bias
        self.decoder = nn.LSTMCell(E, H)
        self.attention = CoverageAttention(2 * H, 2 * H, 2 * H, coverage)  # states, [cell; hidden], width inside
        self.combine = nn.Linear(3 * H, H)  # of [hidden; context]
        self.output = nn.Linear(H, vocab_size)
        self.pointer = nn.Linear(4 * H + E, 1) if pointer else None  # p_gen from [context; cell; hidden; input]
        self.dropout = Dropout(dropout)
        self._initialize(embedding_std)

    def _initialize(self, std: float) -> None:
        """Initialize as the authors: LSTMs uniformly in +-0.02, forget bias 1; others by truncated normal or Xavier."""
        for lstm in (self.encoder, self.decoder):
            for name, parameter in lstm.named_parameters():
                if "bias" in name:
                    nn.init.zeros_(parameter)
                else:
                    nn.init.uniform_(parameter, -0.02, 0.02)
                if "bias_ih" in name:
                    parameter.data[parameter.numel() // 4 : parameter.numel() // 2] = 1  # forget gate, second of four
                if "bias_hh" in name:  # PyTorch's second bias of each gate, which the authors' LSTM lacks, stays 0
                    parameter.requires_grad_(False)
        for weight in (self.embedding.weight, self.output.weight, self.output.bias):
            nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)
        for layer in (self.feed_word, self.feed_context, self.attention.project, self.attention.query, self.combine):
            nn.init.xavier_uniform_(layer.weight)
        for layer in (self.reduce_hidden, self.reduce_cell):
            nn.init.trunc_normal_(layer.weight, std=max(std, 1e-4))  # at least 1e-4, the authors' value

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Memory, DecoderState]:
        """Encode vocabulary ids [B, S]; `lengths`, at least 1 and on the CPU, count tokens. The state has K = 1."""
        states, hidden, cell = bidirectional(self.encoder, self.dropout(self.embedding(source)), lengths)
        states = self.dropout(states.contiguous())
        positions = torch.arange(source.shape[1], device=source.device)
        mask = positions < lengths.to(source.device, non_blocking=True).unsqueeze(1)               # [B, S]
        start = DecoderState(
            hidden=self.reduce_hidden(torch.cat([hidden[0], hidden[1]], -1)).relu().unsqueeze(1),  # [B, 1, H]
            cell=self.reduce_cell(torch.cat([cell[0], cell[1]], -1)).relu().unsqueeze(1),
            context=states.new_zeros(len(source), 1, states.shape[-1]),
            coverage=torch.zeros_like(source, dtype=self.embedding.weight.dtype).unsqueeze(1),     # [B, 1, S]
        )
        return Memory(states, self.attention.project(states), mask), start  # W_h h is projected once for all steps

    def step(
        self, word_input: Tensor, state: DecoderState, memory: Memory, coverage_gate: float
    ) -> tuple[Tensor, Tensor, Tensor, DecoderState]:
        """Run one decoder step for K summaries of each of B documents; `memory` has their states h and W_h h.

        `word_input` is `feed_word(embedding(word))` of the previous word, [B, K, E]; the gate is 1 to use coverage in
        the attention, 0 to ignore it. Returns the LSTM's input x_t [B, K, E], the attention [B, K, S], its overlap with
        the coverage, covloss_t [B, K], and the next state.
        """
        inputs = word_input + self.feed_context(state.context)  # [B, K, E], in half precision under autocast
        previous = (state.hidden.flatten(0, 1).to(inputs.dtype), state.cell.flatten(0, 1).to(inputs.dtype))
        hidden, cell = self.decoder(inputs.flatten(0, 1), previous)                                # [B K, H]
        hidden = hidden.view(*inputs.shape[:2], -1)                                                # [B, K, H]
        cell = cell.view(*inputs.shape[:2], -1)                                                    # [B, K, H]
        query = torch.cat([cell, hidden], -1)                                                      # [B, K, 2H]
        attention = self.attention(query, memory.projected, memory.mask, state.coverage, coverage_gate)
        overlap = torch.minimum(attention, state.coverage).sum(-1)  # covloss_t in [0, 1] (equation 12), [B, K]
        context = torch.bmm(attention.to(memory.states.dtype), memory.states)                      # [B, K, 2H]
        return inputs, attention, overlap, DecoderState(hidden, cell, context, state.coverage + attention)

    def features(self, inputs: Tensor, hidden: Tensor, cell: Tensor, context: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the input of the output layer [..., H] and the logit of p_gen [...] (None without a pointer)."""
        features = self.dropout(self.combine(torch.cat([hidden, context], -1)))
        if self.pointer is None:
            return features, None
        gate = self.pointer(torch.cat([context, cell, hidden, inputs], -1)).squeeze(-1)
        return features, upcast_half(gate)

    def forward(self, source: Tensor, lengths: Tensor, target_input: Tensor, coverage_gate: float = 1.0) -> Decoded:
        """Run a teacher-forced pass over K summaries of each document, which is encoded once, see `encode`.

        `target_input` is the start symbol, then the summary's words, [B, K, T]. For `coverage_gate` see `step`.
        """
        memory, state = self.encode(source, lengths)
        state = DecoderState(*(tensor.expand(-1, target_input.shape[1], -1) for tensor in state))
        word_inputs = self.feed_word(self.dropout(self.embedding(target_input)))                   # [B, K, T, E]
        steps: list[tuple[Tensor, ...]] = []
        # unbind rather than word_inputs[:, :, t], because the gradient of each slice is as large as the whole tensor
        for word_input in word_inputs.unbind(2):
            inputs, attention, overlap, state = self.step(word_input, state, memory, coverage_gate)
            steps.append((inputs, state.hidden, state.cell, state.context, attention, overlap))
        stacked = (torch.stack(tensors, 2) for tensors in zip(*steps))  # [B, K, ...] of T steps -> [B, K, T, ...]
        inputs, hidden, cell, context, attention, overlap = stacked
        features, gate = self.features(inputs, hidden, cell, context)  # gate: logit of p_gen
        return Decoded(features, attention, gate, overlap)
