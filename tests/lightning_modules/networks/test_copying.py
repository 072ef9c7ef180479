import pytest
import torch
from torch import nn
from torch.nn.functional import logsigmoid, pad

from lightning_modules.networks.copying import (
    CopyOutputs,
    all_log_probs,
    mix_log_probs,
)


def document(batch=3, beams=2, source=8, vocab=10, extra=3):
    torch.manual_seed(2)
    ids = torch.randint(0, vocab + extra, (batch, source))
    attention = torch.rand(batch, beams, source)
    attention[:, :, -2:] = 0  # padding
    return ids, attention / attention.sum(-1, keepdim=True), torch.randn(batch, beams, vocab), torch.randn(batch, beams)


def naive_mixture(ids, attention, logits, gate, size):
    """Return P over the extended vocabulary by a loop over positions."""
    p_gen = gate.sigmoid().unsqueeze(-1)
    mixture = p_gen * pad(logits.softmax(-1), (0, size - logits.shape[-1]))
    for b in range(len(ids)):
        for k in range(attention.shape[1]):
            for i, word in enumerate(ids[b].tolist()):
                mixture[b, k, word] += (1 - p_gen[b, k, 0]) * attention[b, k, i]
    return mixture


def extended_log_probs(logits, attention, gate, source, size):
    """Call `all_log_probs` with an output layer that has these logits."""
    layer = nn.Linear(logits.shape[-1], logits.shape[-1], bias=False)
    nn.init.eye_(layer.weight)
    return all_log_probs(layer, logits.shape[-1], CopyOutputs(logits, attention, gate), source, size)


def test_the_whole_mixture_equals_a_plain_loop_and_sums_to_one():
    ids, attention, logits, gate = document()
    ours = extended_log_probs(logits, attention, gate, ids.unsqueeze(1), 13).exp()
    torch.testing.assert_close(ours, naive_mixture(ids, attention, logits, gate, 13))
    torch.testing.assert_close(ours.sum(-1), torch.ones(3, 2))


def test_a_word_that_is_nowhere_has_no_probability_at_all():
    ids, attention, logits, gate = document()
    ids[:, 0] = 12  # the third added word, but in the last document
    ids[2, 0] = 3
    ids[ids == 9] = 8
    layer = nn.Linear(10, 10)  # its last row has no word
    dense = all_log_probs(layer, 9, CopyOutputs(logits, attention, gate), ids.unsqueeze(1), 13)
    for b in range(3):
        nowhere = [word == 9 or (word >= 10 and word not in ids[b].tolist()[:-2]) for word in range(13)]
        assert dense[b].isneginf().tolist() == [nowhere, nowhere]


@pytest.mark.parametrize("gate", [-200.0, 0.0, 200.0])
def test_a_saturated_gate_has_finite_values_and_gradients(gate):
    gate = torch.tensor([gate] * 4, requires_grad=True)
    vocabulary = torch.tensor([-1.0, -90.0, float("-inf"), -1.0], requires_grad=True)
    copied = torch.tensor([0.3, 0.0, 1e-30, 0.0], requires_grad=True)
    out = mix_log_probs(vocabulary, copied, gate)
    assert out.isfinite().all()
    out.sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in (gate, copied))
    assert vocabulary.grad[:2].isfinite().all()
    plain = logsigmoid(gate[0]).exp() * vocabulary[0].exp() + logsigmoid(-gate[0]).exp() * copied[0]
    torch.testing.assert_close(out[0].exp(), plain)
