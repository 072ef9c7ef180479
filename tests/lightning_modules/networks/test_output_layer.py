import math
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import log_softmax, logsigmoid

from lightning_modules.networks import copying, output_layer
from lightning_modules.networks.copying import CopyOutputs, PermittedMixture, first_positions
from lightning_modules.networks.output_layer import DecodingLayer, best_words, smoothed_log_probs


@pytest.fixture(params=[0, 2**24], ids=["again", "kept"])
def kept(request, monkeypatch):
    """Set the number of elements up to which they are kept, not recomputed."""
    monkeypatch.setattr(output_layer, "KEPT_ELEMENTS", request.param)
    return request.param


@pytest.mark.parametrize("size", [5, 1000])
@pytest.mark.parametrize("count", [1, 3, 70])
def test_the_best_words_equal_those_of_topk_over_log_softmax(size, count, monkeypatch):
    monkeypatch.setattr(output_layer, "DECODING_WORDS", 256)
    torch.manual_seed(size + count)
    features, weight, bias = torch.randn(2, 3, 6), torch.randn(size, 6), torch.randn(size)
    ids, log_probs = best_words(features, DecodingLayer.of(weight, bias), count)
    whole = log_softmax(features @ weight.T + bias, -1)
    expected = whole.topk(min(count, size))
    torch.testing.assert_close(log_probs, expected.values)
    torch.testing.assert_close(whole.gather(-1, ids), expected.values)


def test_under_autocast_the_result_is_float32_and_close():
    torch.manual_seed(1)
    features, weight = torch.randn(6, 16, requires_grad=True), torch.randn(50, 16, requires_grad=True)
    bias, targets = torch.zeros(50, requires_grad=True), torch.randint(0, 50, (6,))
    exact = smoothed_log_probs(features, weight, bias, targets)[0]
    with torch.autocast("cpu", torch.bfloat16):
        rough = smoothed_log_probs(features, weight, bias, targets)[0]
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, atol=0.1, rtol=0.02)
    gradients = [torch.autograd.grad(out.sum(), weight)[0] for out in (exact, rough)]
    assert gradients[1].dtype == torch.float32
    torch.testing.assert_close(gradients[1], gradients[0], atol=0.1, rtol=0.05)
    assert smoothed_log_probs(features[:0], weight, bias, targets[:0])[0].shape == (0,)


@pytest.mark.parametrize("elements", [1, 2**22], ids=["slices", "whole"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_values_and_gradients_equal_those_of_cross_entropy(elements, smoothing, monkeypatch, kept):
    monkeypatch.setitem(output_layer.SLICE_ELEMENTS, "cpu", elements)  # slices have 256 words at least
    torch.manual_seed(0)
    inputs = [torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((9, 6), (600, 6), (600,))]
    targets = torch.tensor([0, 255, 256, 257, 511, 512, 599, 3, 3])
    shares = torch.rand(9, dtype=torch.float64)
    at_target, mean = smoothed_log_probs(*inputs, targets)
    ours = -((1 - smoothing) * at_target + smoothing * mean) @ shares
    logits = F.linear(*inputs)
    theirs = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="none") @ shares
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(at_target, -F.cross_entropy(logits, targets, reduction="none"))
    torch.testing.assert_close(*(torch.autograd.grad(loss, inputs) for loss in (ours, theirs)))


def test_far_apart_logits_of_slices_stay_finite(monkeypatch, kept):
    monkeypatch.setitem(output_layer.SLICE_ELEMENTS, "cpu", 1)  # slices of 256 words
    features, weight, bias = torch.ones(2, 1), torch.zeros(600, 1, requires_grad=True), torch.zeros(600)
    bias[:256], bias[300] = -1e4, 1e4
    found, _ = smoothed_log_probs(features, weight, bias, torch.tensor([0, 300]))
    assert found.tolist() == [-2e4, 0]
    (gradient,) = torch.autograd.grad(found.sum(), weight)
    assert gradient[0] == 1 and gradient[300] == -1 and gradient.abs().sum() == 2


V, B, S, H = 150, 2, 6, 4
SOURCE = torch.tensor([[3, 70, 3, V, V + 1, 140], [70, V, 5, 5, V, 9]])
FORBIDDEN = torch.tensor([[0, 1, 0, -1, 70], [2, V, -1, -1, 5]])


def random_layer() -> nn.Linear:
    layer = nn.Linear(H, V).requires_grad_(False)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer


def make(K: int, gate: bool = True, forbidden: torch.Tensor = FORBIDDEN):
    """A layer, the outputs of a step that is the same for all K samples of a document, and its distribution."""
    torch.manual_seed(0)
    layer = random_layer()
    repeat = lambda x: x.unsqueeze(1).expand(B, K, *x.shape[1:])  # noqa: E731
    gates = repeat(torch.tensor([-0.5, 1.0])) if gate else None
    outputs = CopyOutputs(repeat(torch.randn(B, H)), repeat(torch.randn(B, S).softmax(-1)), gates)
    decoding = DecodingLayer.of(layer.weight, layer.bias)
    return layer, outputs, PermittedMixture.of(decoding, outputs, SOURCE, repeat(forbidden))


def plain(layer: nn.Linear, outputs: CopyOutputs, document: int, forbidden: torch.Tensor) -> dict[int, float]:
    """Probability of each permitted token of a document, summed in a loop."""
    logits = (layer.weight @ outputs.features[document, 0] + layer.bias).double()
    p_gen = 1.0 if outputs.gate is None else outputs.gate[document, 0].double().sigmoid().item()
    probabilities = Counter({word: p_gen * p for word, p in enumerate(logits.softmax(-1).tolist())})
    for token, attention in zip(SOURCE[document].tolist(), outputs.attention[document, 0].tolist()):
        if outputs.gate is not None:
            probabilities[token] += (1 - p_gen) * attention
    permitted = {token: p for token, p in probabilities.items() if token not in forbidden.tolist()}
    return {token: p / sum(permitted.values()) for token, p in permitted.items()}


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("block", [4, 64])  # a word of 150 is drawn at once, or its block first
def test_probabilities_and_frequencies_are_those_of_the_extended_distribution(gate, block, monkeypatch):
    monkeypatch.setattr(output_layer, "BLOCK", block)
    draws = 30_000
    layer, outputs, mixture = make(draws, gate)
    torch.manual_seed(0)
    drawn = mixture.draw()
    of_tokens = make(3, gate)[2].log_probs(torch.arange(V + 2).expand(B, 3, -1)).exp()
    for document in range(B):
        expected = plain(layer, outputs, document, FORBIDDEN[document])
        row = torch.tensor([expected.get(token, 0.0) for token in range(V + 2)])
        torch.testing.assert_close(of_tokens[document], row.expand(3, -1), rtol=1e-4, atol=1e-7)
        counts = torch.bincount(drawn[document], minlength=V + 2).tolist()
        assert sum(counts[token] for token in expected) == draws  # nothing else is drawn
        for token, p in expected.items():
            # six standard errors, and two draws for the rarest
            assert counts[token] / draws == pytest.approx(p, abs=6 * math.sqrt(p * (1 - p) / draws) + 2 / draws), token


def test_the_most_probable_token_is_that_of_the_extended_distribution():
    copied = 0
    for seed in range(30):
        torch.manual_seed(seed)
        layer = random_layer()
        outputs = CopyOutputs(torch.randn(B, 2, H), torch.randn(B, 2, S).mul(2).softmax(-1), torch.randn(B, 2))
        forbidden = FORBIDDEN.unsqueeze(1).expand(-1, 2, -1)
        mixture = PermittedMixture.of(DecodingLayer.of(layer.weight, layer.bias), outputs, SOURCE, forbidden)
        for document, token in enumerate(mixture.most_probable(first_positions(SOURCE))[:, 0].tolist()):
            expected = plain(layer, outputs, document, FORBIDDEN[document])
            assert token == max(expected, key=expected.get)
            copied += token in SOURCE[document]
    assert 0 < copied < 60  # both kinds occur


@pytest.mark.parametrize("count", [1, 4, 10, 200])
@pytest.mark.parametrize("gate", [None, -200.0, -0.5, 200.0])
def test_the_best_candidates_are_those_of_the_extended_distribution(count, gate):
    layer, outputs, _ = make(2)
    outputs = outputs._replace(gate=None if gate is None else torch.full((B, 2), gate))
    mixture = PermittedMixture.of(DecodingLayer.of(layer.weight, layer.bias), outputs, SOURCE)
    ids, log_probs = mixture.candidates(count, first_positions(SOURCE))
    for document in range(B):
        candidates = zip(ids[document, 1].tolist(), log_probs[document, 1].tolist())
        kept = [(token, value) for token, value in candidates if value > float("-inf")]
        assert len({token for token, _ in kept}) == len(kept), "no token twice"
        expected = plain(layer, outputs, document, torch.tensor([]))
        for token in sorted(expected, key=expected.get, reverse=True)[:count]:
            if expected[token] > 1e-30:  # others are neither generated nor copied
                assert dict(kept)[token] == pytest.approx(math.log(expected[token]), abs=1e-4)


def test_tokens_that_are_forbidden_or_nowhere_have_no_probability():
    layer, outputs, _ = make(2)
    dense = copying.all_log_probs(layer, V - 1, outputs, SOURCE.unsqueeze(1), V + 3)  # the last row has no word
    for document, ids in enumerate(SOURCE.tolist()):
        nowhere = [token >= V - 1 and token not in ids for token in range(V + 3)]
        assert dense[document].isneginf().tolist() == [nowhere, nowhere]
    everything = torch.arange(V + 2).expand(B, -1)
    _, _, mixture = make(2, forbidden=everything)
    assert mixture.log_probs(mixture.draw().unsqueeze(-1)).isneginf().all()
    # only words of the document are left
    _, _, mixture = make(50, forbidden=everything[:, :V])
    assert set(mixture.draw().flatten().tolist()) <= {V, V + 1}
    # columns without weight are not drawn
    weights = torch.tensor([0.0, 1e-30, 0.0, 3e-30, 0.0, 0.0]).expand(20_000, -1)
    torch.manual_seed(0)
    counts = torch.bincount(copying.inverse_cdf(weights), minlength=6)
    assert counts[[0, 2, 4, 5]].eq(0).all()
    # five standard errors
    assert counts[3].item() / 20_000 == pytest.approx(0.75, abs=5 * math.sqrt(0.75 * 0.25 / 20_000))


@pytest.mark.parametrize("gate", [-200.0, 0.0, 200.0])
def test_a_saturated_gate_has_finite_values_and_gradients(gate):
    gate = torch.tensor([gate] * 4, requires_grad=True)
    vocabulary = torch.tensor([-1.0, -90.0, float("-inf"), -1.0], requires_grad=True)
    copied = torch.tensor([0.3, 0.0, 1e-30, 0.0], requires_grad=True)
    out = copying.mix_log_probs(vocabulary, copied, gate)
    assert out.isfinite().all()
    out.sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in (gate, copied))
    assert vocabulary.grad[:2].isfinite().all()
    plain = logsigmoid(gate[0]).exp() * vocabulary[0].exp() + logsigmoid(-gate[0]).exp() * copied[0]
    torch.testing.assert_close(out[0].exp(), plain)
