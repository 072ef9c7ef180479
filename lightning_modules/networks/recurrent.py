"""A bidirectional LSTM over rows of different lengths, as fast on a CPU as over rows of one length."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def bidirectional_states(lstm: nn.LSTM, inputs: Tensor, lengths: Tensor) -> Tensor:
    """States [fw_i; bw_i] of a one-layer bidirectional LSTM, what it gives for a packed sequence.

    On a CPU, the backward pass over a packed sequence whose rows differ in length fills a buffer of the size of all
    gates at each step: time is quadratic in the length. There each direction runs over padded rows instead, the second
    one over rows that are turned round within their lengths; padding comes last in both and changes nothing before it.

    Args:
        lstm: one layer, `batch_first`, bidirectional, without projection.
        inputs: [B, T, D].
        lengths: of the rows, 1 to T, [B], on the CPU.

    Returns:
        [B, T, 2 H], 0 behind each row.
    """
    if inputs.device.type != "cpu" or int(lengths.min()) == inputs.shape[1]:
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=inputs.shape[1])[0]
    places = torch.arange(inputs.shape[1])
    real = places < lengths.unsqueeze(1)                                             # [B, T]
    turned = torch.where(real, lengths.unsqueeze(1) - 1 - places, places)            # [B, T]
    rows = torch.arange(len(lengths)).unsqueeze(1)
    weights = [getattr(lstm, name) for name in lstm._flat_weights_names]
    half = len(weights) // 2
    forward = _states(lstm, inputs, weights[:half])
    backward = _states(lstm, inputs[rows, turned], weights[half:])[rows, turned]
    return torch.cat([forward, backward], -1).masked_fill(~real.unsqueeze(-1), 0)


def _states(lstm: nn.LSTM, inputs: Tensor, weights: list[Tensor]) -> Tensor:
    """States of one direction from zero, [B, T, H]."""
    zero = inputs.new_zeros(1, len(inputs), lstm.hidden_size)
    return torch.lstm(inputs, (zero, zero), weights, lstm.bias, 1, 0.0, lstm.training, False, True)[0]
