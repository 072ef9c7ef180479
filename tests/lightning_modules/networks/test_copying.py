import pytest
import torch
from torch.nn.functional import log_softmax, logsigmoid, pad

from lightning_modules.networks import copying
from lightning_modules.networks.copying import (
    best_candidates,
    best_words,
    copied_mass,
    extended_log_probs,
    first_positions,
    linear_log_prob,
    log_normalizer,
    mix_log_probs,
)


@pytest.mark.parametrize("elements", [1, 7 * 300, 10**6])
def test_log_prob_of_a_target_equals_log_softmax_in_value_and_gradient(monkeypatch, elements):
    monkeypatch.setitem(copying.CHUNK_ELEMENTS, "cpu", elements)  # three slices of 256 words at most, two of 300, one
    torch.manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, requires_grad=True)  # noqa: E731
    features, weight, bias = draw(7, 5), draw(600, 5), draw(600)
    targets, upstream = torch.randint(0, 600, (7,)), torch.randn(7, dtype=torch.float64)
    targets[:4] = torch.tensor([0, 255, 256, 599])  # the ends of slices
    ours = linear_log_prob(features, weight, bias, targets)
    naive = log_softmax(features @ weight.T + bias, -1).gather(-1, targets[:, None]).squeeze(-1)
    torch.testing.assert_close(ours, naive)
    for one, other in zip(
        torch.autograd.grad(ours, (features, weight, bias), upstream),
        torch.autograd.grad(naive, (features, weight, bias), upstream),
    ):
        torch.testing.assert_close(one, other)


def test_no_row_has_no_log_prob():
    weight = torch.randn(4, 3, requires_grad=True)
    found = linear_log_prob(torch.randn(0, 3), weight, torch.zeros(4), torch.zeros(0, dtype=torch.long))
    assert found.shape == (0,)


def test_under_autocast_the_result_is_float32_and_close():
    torch.manual_seed(1)
    features, weight = torch.randn(6, 16, requires_grad=True), torch.randn(50, 16, requires_grad=True)
    bias, targets = torch.zeros(50, requires_grad=True), torch.randint(0, 50, (6,))
    exact = linear_log_prob(features, weight, bias, targets)
    with torch.autocast("cpu", torch.bfloat16):
        rough = linear_log_prob(features, weight, bias, targets)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, atol=0.1, rtol=0.02)
    gradients = [torch.autograd.grad(out.sum(), weight)[0] for out in (exact, rough)]
    assert gradients[1].dtype == torch.float32
    torch.testing.assert_close(gradients[1], gradients[0], atol=0.1, rtol=0.05)


def document(batch=3, beams=2, source=8, vocab=10, extra=3):
    torch.manual_seed(2)
    ids = torch.randint(0, vocab + extra, (batch, source))
    attention = torch.rand(batch, beams, source)
    attention[:, :, -2:] = 0  # padding
    return ids, attention / attention.sum(-1, keepdim=True), torch.randn(batch, beams, vocab), torch.randn(batch, beams)


def naive_mixture(ids, attention, logits, gate, size):
    """P over the extended vocabulary, one position at a time."""
    p_gen = gate.sigmoid().unsqueeze(-1)
    mixture = p_gen * pad(logits.softmax(-1), (0, size - logits.shape[-1]))
    for b in range(len(ids)):
        for k in range(attention.shape[1]):
            for i, word in enumerate(ids[b].tolist()):
                mixture[b, k, word] += (1 - p_gen[b, k, 0]) * attention[b, k, i]
    return mixture


def test_the_whole_mixture_equals_a_plain_loop_and_sums_to_one():
    ids, attention, logits, gate = document()
    ours = extended_log_probs(logits, attention, gate, ids.unsqueeze(1), 13).exp()
    torch.testing.assert_close(ours, naive_mixture(ids, attention, logits, gate, 13))
    torch.testing.assert_close(ours.sum(-1), torch.ones(3, 2))


def test_a_word_that_is_nowhere_has_no_probability_at_all():
    ids, attention, logits, gate = document()
    ids[:, 0] = 12  # the third added word, but in the last document
    ids[2, 0] = 3
    logits[..., 9] = float("-inf")  # a row of the output layer without a word
    ids[ids == 9] = 8
    dense = extended_log_probs(logits, attention, gate, ids.unsqueeze(1), 13)
    for b in range(3):
        nowhere = [word == 9 or (word >= 10 and word not in ids[b].tolist()[:-2]) for word in range(13)]
        assert dense[b].isneginf().tolist() == [nowhere, nowhere]


def test_copied_mass_is_the_attention_on_the_word():
    ids, attention, *_ = document()
    targets = torch.randint(0, 13, (3, 2))
    found = copied_mass(attention, ids, targets)
    for b in range(3):
        for t in range(2):
            expected = sum(a for a, word in zip(attention[b, t].tolist(), ids[b].tolist()) if word == targets[b, t])
            assert found[b, t].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("size", [5, 130, 300, 1000, 1024])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_the_best_words_are_those_of_topk(size, count):
    torch.manual_seed(size + count)
    for logits in (torch.randn(2, 3, size), torch.arange(float(size)).expand(2, 3, -1)):  # the second: all in one block
        values, ids = best_words(logits, count)
        expected = logits.topk(count)
        assert torch.equal(values, expected.values) and torch.equal(ids, expected.indices)


def test_the_normalizer_is_logsumexp():
    torch.manual_seed(4)
    logits = 9 * torch.randn(2, 3, 1000)
    logits[..., 300:700] = float("-inf")  # a slice without a word
    for words in (1, 100, 999, 4096):
        torch.testing.assert_close(log_normalizer(logits, words), logits.logsumexp(-1, keepdim=True))


def candidates(ids, attention, logits, gate, count):
    in_source = torch.zeros(3, 10, dtype=torch.bool)
    for b in range(3):
        in_source[b, [word for word in ids[b].tolist() if word < 10]] = True
    return best_candidates(logits, attention, gate, ids, first_positions(ids), in_source, count)


@pytest.mark.parametrize("gate", [-200.0, 200.0])
def test_candidates_and_the_whole_mixture_agree_where_the_gate_is_saturated(gate):
    ids, attention, logits, _ = document()
    gate = torch.full((3, 2), gate)
    found_ids, found = candidates(ids, attention, logits, gate, 100)
    dense = extended_log_probs(logits, attention, gate, ids.unsqueeze(1), 13)
    kept = ~found.isneginf()
    torch.testing.assert_close(found[kept], dense.gather(-1, found_ids)[kept])


@pytest.mark.parametrize("count", [1, 4, 10, 100])
def test_the_best_candidates_are_those_of_the_whole_mixture(count):
    ids, attention, logits, gate = document()
    found_ids, found = candidates(ids, attention, logits, gate, count)
    whole = naive_mixture(ids, attention, logits, gate, 13).log()
    for b in range(3):
        for k in range(2):
            kept = [(i, p) for i, p in zip(found_ids[b, k].tolist(), found[b, k].tolist()) if p > float("-inf")]
            assert len({i for i, _ in kept}) == len(kept), "no word twice"
            best = whole[b, k].topk(min(count, 13))
            by_id = dict(kept)
            for value, word in zip(best.values.tolist(), best.indices.tolist()):
                if value > -80:  # a word that nothing generates or copies is no candidate
                    assert by_id[word] == pytest.approx(value, abs=1e-4)


def test_first_positions():
    ids = torch.tensor([[5, 7, 5, 0, 0, 7]])
    assert first_positions(ids).tolist() == [[0, 1, 0, 3, 3, 1]]


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
