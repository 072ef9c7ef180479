"""A bidirectional LSTM over rows of different lengths, beside PyTorch's over a packed sequence."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lightning_modules.networks.recurrent import bidirectional_states


@pytest.mark.parametrize("lengths", [[5, 3, 1, 4], [6, 6], [2], [7, 1]])
@pytest.mark.parametrize("bias", [True, False])
def test_it_is_the_lstm_over_a_packed_sequence(lengths, bias):
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 4, batch_first=True, bidirectional=True, bias=bias).double()
    lengths, width = torch.tensor(lengths), 7
    inputs = torch.randn(len(lengths), width, 3, dtype=torch.double, requires_grad=True)
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    theirs, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=width)
    ours = bidirectional_states(lstm, inputs, lengths)
    assert torch.allclose(ours, theirs, atol=1e-12)
    weight = torch.randn_like(theirs)
    wanted = torch.autograd.grad((theirs * weight).sum(), [inputs, *lstm.parameters()])
    found = torch.autograd.grad((ours * weight).sum(), [inputs, *lstm.parameters()])
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(found, wanted, strict=True))


def test_what_stands_behind_a_row_changes_nothing():
    torch.manual_seed(0)
    lstm, lengths = nn.LSTM(3, 4, batch_first=True, bidirectional=True), torch.tensor([4, 2])
    inputs = torch.randn(2, 4, 3)
    other = inputs.clone()
    other[1, 2:] = 100
    assert torch.equal(bidirectional_states(lstm, inputs, lengths), bidirectional_states(lstm, other, lengths))
