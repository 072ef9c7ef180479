"""Bidirectional LSTM over rows of different lengths, without the cost of packed sequences on a CPU."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

_SATURATING = 1e4  # gate input for which a sigmoid is exactly 0 or 1


class Recurrence(NamedTuple):
    """Outputs of a bidirectional LSTM."""

    states: Tensor  # [fw_i; bw_i], 0 at padding, [B, T, 2 H]
    hidden: Tensor  # after the last token in each direction, [2, B, H]
    cell: Tensor  # [2, B, H]


def bidirectional(lstm: nn.LSTM, inputs: Tensor, lengths: Tensor) -> Recurrence:
    """Run a one-layer bidirectional LSTM, `batch_first`; the result equals that for a packed sequence.

    On a CPU, the backward pass over a packed sequence of texts of different lengths fills a buffer of the size of all
    gates at each step, so its time is quadratic in the length. A CPU therefore runs each direction over padded texts,
    the backward one over texts reversed within their lengths, so that padding comes last in both. `_one_direction`
    holds the forget gate open and the input gate closed at padding, so that the cell keeps its value.

    The inputs are [B, T, D]; the lengths of the texts are 1 to T, [B], on the CPU.
    """
    if inputs.device.type != "cpu":
        return packed(lstm, inputs, lengths)
    positions = torch.arange(inputs.shape[1])
    mask = positions < lengths.unsqueeze(1)                                          # [B, T]
    reversal = torch.where(mask, lengths.unsqueeze(1) - 1 - positions, positions)    # [B, T]; its own inverse
    batch_indices = torch.arange(len(lengths))                                       # [B]
    # an additional input feature marks padding for `_one_direction`
    inputs = torch.cat([inputs, (~mask).unsqueeze(-1).to(inputs)], -1)               # [B, T, D + 1]
    weights = _flat_weights(lstm)
    half = len(weights) // 2  # the weights of the forward direction come first
    forward, forward_cell = _one_direction(lstm, inputs, weights[:half])             # [B, T, H], [B, H]
    backward, backward_cell = _one_direction(lstm, inputs[batch_indices.unsqueeze(1), reversal], weights[half:])
    hidden = torch.stack([states[batch_indices, lengths - 1] for states in (forward, backward)])  # last, [2, B, H]
    states = torch.cat([forward, backward[batch_indices.unsqueeze(1), reversal]], -1)  # backward in original order
    return Recurrence(states.masked_fill(~mask.unsqueeze(-1), 0), hidden, torch.stack([forward_cell, backward_cell]))


def packed(lstm: nn.LSTM, inputs: Tensor, lengths: Tensor) -> Recurrence:
    """Run `bidirectional` over a packed sequence, sorted here on the CPU: PyTorch would wait for a GPU to sort it."""
    order = lengths.argsort(descending=True)
    to_sorted = order.to(inputs.device, non_blocking=True)
    to_original = order.argsort().to(inputs.device, non_blocking=True)  # inverse permutation
    sequence = pack_padded_sequence(inputs[to_sorted], lengths[order], batch_first=True)
    sequence, (hidden, cell) = lstm(sequence)
    states = pad_packed_sequence(sequence, batch_first=True, total_length=inputs.shape[1])[0]
    return Recurrence(states[to_original], hidden[:, to_original], cell[:, to_original])


def _one_direction(lstm: nn.LSTM, inputs: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the states [B, T, H] and the last cell [B, H] of one direction; the last input feature marks padding."""
    input_weight, *others = weights  # [4 H, D]; others: recurrent weight, and biases
    padding_weight = input_weight.new_zeros(4, lstm.hidden_size)  # of input gate, forget gate, cell, output gate
    padding_weight[0] = -_SATURATING  # at padding the input gate is exactly 0
    padding_weight[1] = _SATURATING  # and the forget gate 1
    weights = [torch.cat([input_weight, padding_weight.view(-1, 1)], 1), *others]    # [4 H, D + 1], and the others
    zero = inputs.new_zeros(1, len(inputs), lstm.hidden_size)  # initial hidden and cell state, [1, B, H]
    states, _, cell = one_layer_lstm(lstm, inputs, (zero, zero), weights)
    return states, cell[0]


def one_layer_lstm(
    lstm: nn.LSTM, inputs: Tensor, initial: tuple[Tensor, Tensor], weights: list[Tensor] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Run one direction of a one-layer LSTM without projection, `batch_first`, on any processor in any precision.

    On CPUs, oneDNN computes LSTMs; it has none in float16, and none in bfloat16 for processors without AVX-512, for
    which PyTorch raises an error. There the LSTM is computed in float32, and its results are rounded.

    The inputs are [B, T, D], `initial` is the first hidden and cell state. The weights, in the order of `torch.lstm`,
    are those of the LSTM by default. Returns states [B, T, H], and the last hidden and cell state, [1, B, H] each.
    """
    weights = _flat_weights(lstm) if weights is None else weights
    dtype = inputs.dtype
    if inputs.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
    is_supported = dtype not in (torch.bfloat16, torch.float16) or (dtype == torch.bfloat16 and onednn_has_bfloat16())
    options = (lstm.bias, 1, 0.0, lstm.training, False, True)  # one layer, no dropout, one direction, `batch_first`
    if inputs.device.type != "cpu" or is_supported:
        return torch.lstm(inputs, initial, weights, *options)
    with torch.autocast("cpu", enabled=False):
        hidden, cell = (state.float() for state in initial)
        results = torch.lstm(inputs.float(), (hidden, cell), [weight.float() for weight in weights], *options)
    states, hidden, cell = (result.to(dtype) for result in results)
    return states, hidden, cell


def _flat_weights(lstm: nn.LSTM) -> list[Tensor]:
    """Return the weights and biases of all directions in one list, in the order in which `torch.lstm` takes them."""
    return [weight for direction in lstm.all_weights for weight in direction]


def onednn_has_bfloat16() -> bool:
    """Return whether oneDNN has kernels in bfloat16 for this processor."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
