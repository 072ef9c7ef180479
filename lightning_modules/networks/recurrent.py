"""A bidirectional LSTM over rows of different lengths, as fast on a CPU as over rows of one length."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

_SATURATING = 1e4  # a gate's input, far beyond where a sigmoid is 0 or 1


class Recurrence(NamedTuple):
    """What a bidirectional LSTM gives."""

    states: Tensor  # [fw_i; bw_i], 0 behind each row, [B, T, 2 H]
    hidden: Tensor  # after the last token of each direction, [2, B, H]
    cell: Tensor  # [2, B, H]


def bidirectional(lstm: nn.LSTM, inputs: Tensor, lengths: Tensor) -> Recurrence:
    """A one-layer bidirectional LSTM: what it gives for a packed sequence.

    On a CPU, the backward pass over a packed sequence whose rows differ in length fills a buffer of the size of all
    gates at each step: time is quadratic in the length. There each direction runs over padded rows instead, the second
    one over rows that are turned round within their lengths. Padding comes last in both; at padding the forget gate is
    held open and the input gate shut, so that the cell stays as it is.

    Args:
        lstm: one layer, `batch_first`, bidirectional, without projection.
        inputs: [B, T, D].
        lengths: of the rows, 1 to T, [B], on the CPU.
    """
    if inputs.device.type != "cpu" or int(lengths.min()) == inputs.shape[1]:
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        packed, (hidden, cell) = lstm(packed)
        states = pad_packed_sequence(packed, batch_first=True, total_length=inputs.shape[1])[0]
        return Recurrence(states, hidden, cell)
    places = torch.arange(inputs.shape[1])
    real = places < lengths.unsqueeze(1)                                             # [B, T]
    turned = torch.where(real, lengths.unsqueeze(1) - 1 - places, places)            # [B, T]
    rows = torch.arange(len(lengths))
    inputs = torch.cat([inputs, (~real).unsqueeze(-1).to(inputs)], -1)               # [B, T, D + 1]
    weights = [getattr(lstm, name) for name in lstm._flat_weights_names]
    half = len(weights) // 2
    forward, forward_cell = _one_way(lstm, inputs, weights[:half])
    backward, backward_cell = _one_way(lstm, inputs[rows.unsqueeze(1), turned], weights[half:])
    hidden = torch.stack([direction[rows, lengths - 1] for direction in (forward, backward)])
    states = torch.cat([forward, backward[rows.unsqueeze(1), turned]], -1)
    return Recurrence(
        states.masked_fill(~real.unsqueeze(-1), 0), hidden, torch.stack([forward_cell, backward_cell])
    )


def _one_way(lstm: nn.LSTM, inputs: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    """States [B, T, H] of one direction from zero, and the last cell [B, H]; the last input is 1 at padding."""
    gates = weights[0].new_zeros(4, lstm.hidden_size)  # i, f, g, o
    gates[0], gates[1] = -_SATURATING, _SATURATING
    weights = [torch.cat([weights[0], gates.view(-1, 1)], 1), *weights[1:]]
    zero = inputs.new_zeros(1, len(inputs), lstm.hidden_size)
    states, _, cell = torch.lstm(inputs, (zero, zero), weights, lstm.bias, 1, 0.0, lstm.training, False, True)
    return states, cell[0]
