import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lightning_modules.networks import recurrent
from lightning_modules.networks.recurrent import bidirectional, one_layer_lstm, packed


@pytest.mark.parametrize("lengths", [[5, 3, 1, 4], [6, 6], [2], [7, 1]])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("run", [bidirectional, packed])  # on a CPU, and on other devices
def test_it_is_the_lstm_over_a_packed_sequence(lengths, bias, run):
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 4, batch_first=True, bidirectional=True, bias=bias).double()
    lengths, width = torch.tensor(lengths), 7
    inputs = torch.randn(len(lengths), width, 3, dtype=torch.double, requires_grad=True)
    sequence, last = lstm(pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False))
    theirs = (pad_packed_sequence(sequence, batch_first=True, total_length=width)[0], *last)
    ours = run(lstm, inputs, lengths)
    torch.testing.assert_close(tuple(ours), theirs, atol=1e-12, rtol=1e-5)
    weights, leaves = [torch.randn_like(tensor) for tensor in theirs], [inputs, *lstm.parameters()]
    losses = [sum((x * w).sum() for x, w in zip(results, weights)) for results in (ours, theirs)]
    torch.testing.assert_close(*(torch.autograd.grad(loss, leaves) for loss in losses), atol=1e-12, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [True, False])
def test_half_precision_without_kernels_for_it_is_the_rounded_lstm_in_float32(dtype, autocast, monkeypatch):
    monkeypatch.setattr(recurrent, "onednn_has_bfloat16", lambda: False)
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 4, batch_first=True)
    inputs, hidden, cell = torch.randn(2, 5, 3), torch.randn(1, 2, 4), torch.randn(1, 2, 4)
    if not autocast:  # weights and inputs are rounded as well
        lstm, inputs, hidden, cell = (x.to(dtype) for x in (lstm, inputs, hidden, cell))
    with torch.autocast("cpu", dtype, enabled=autocast):
        results = one_layer_lstm(lstm, inputs.requires_grad_(), (hidden, cell))
    grads = torch.autograd.grad(results[0].float().square().sum(), [inputs, *lstm.parameters()])
    inputs = inputs.detach().float().requires_grad_()
    lstm, hidden, cell = lstm.float(), hidden.float(), cell.float()
    states, (last_hidden, last_cell) = lstm(inputs, (hidden, cell))
    rounded = [x.to(dtype) for x in (states, last_hidden, last_cell)]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(results, rounded, strict=True))
    exact = torch.autograd.grad(states.square().sum(), [inputs, *lstm.parameters()])
    error = 2e-2 if dtype == torch.bfloat16 else 2e-3
    assert all(torch.allclose(ours.float(), theirs, rtol=error, atol=error) for ours, theirs in zip(grads, exact))
