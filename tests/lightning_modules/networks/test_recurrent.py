"""A bidirectional LSTM over rows of different lengths equals PyTorch's over a packed sequence."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lightning_modules.networks.recurrent import bidirectional, packed


@pytest.mark.parametrize("lengths", [[5, 3, 1, 4], [6, 6], [2], [7, 1]])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("run", [bidirectional, packed])  # on a CPU, and on other devices
def test_it_is_the_lstm_over_a_packed_sequence(lengths, bias, run):
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 4, batch_first=True, bidirectional=True, bias=bias).double()
    lengths, width = torch.tensor(lengths), 7
    inputs = torch.randn(len(lengths), width, 3, dtype=torch.double, requires_grad=True)
    sequence = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    sequence, last = lstm(sequence)
    theirs = (pad_packed_sequence(sequence, batch_first=True, total_length=width)[0], *last)
    ours = run(lstm, inputs, lengths)
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(ours, theirs, strict=True))
    weights = [torch.randn_like(tensor) for tensor in theirs]
    wanted, found = (
        torch.autograd.grad(sum((x * w).sum() for x, w in zip(given, weights)), [inputs, *lstm.parameters()])
        for given in (theirs, ours)
    )
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(found, wanted, strict=True))


def test_what_stands_behind_a_row_changes_nothing():
    torch.manual_seed(0)
    lstm, lengths = nn.LSTM(3, 4, batch_first=True, bidirectional=True), torch.tensor([4, 2])
    inputs = torch.randn(2, 4, 3)
    other = inputs.clone()
    other[1, 2:] = 100
    pairs = zip(bidirectional(lstm, inputs, lengths), bidirectional(lstm, other, lengths))
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
