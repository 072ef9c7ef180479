import pytest
import torch
from torch.nn import functional as F
from torch.nn.functional import log_softmax

from lightning_modules.networks import output_layer
from lightning_modules.networks.output_layer import best_words, linear_log_prob, smoothed_log_probs


@pytest.fixture(params=[0, 2**24], ids=["again", "kept"])
def kept(request, monkeypatch):
    """Set the number of elements up to which they are kept, not recomputed."""
    monkeypatch.setattr(output_layer, "KEPT_ELEMENTS", request.param)
    return request.param


@pytest.mark.parametrize("size", [5, 1000])
@pytest.mark.parametrize("count", [1, 3, 70])
def test_the_best_words_equal_those_of_topk_over_log_softmax(size, count, monkeypatch):
    monkeypatch.setitem(output_layer.SLICE_ELEMENTS, "cpu", 1)  # slices of 256 words
    torch.manual_seed(size + count)
    features, weight, bias = torch.randn(2, 3, 6), torch.randn(size, 6), torch.randn(size)
    ids, log_probs = best_words(features, weight, bias, count)
    whole = log_softmax(features @ weight.T + bias, -1)
    expected = whole.topk(min(count, size))
    torch.testing.assert_close(log_probs, expected.values)
    torch.testing.assert_close(whole.gather(-1, ids), expected.values)


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
    assert linear_log_prob(features[:0], weight, bias, targets[:0]).shape == (0,)


@pytest.mark.parametrize("elements", [1, 2**22], ids=["slices", "whole"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_values_and_gradients_equal_those_of_cross_entropy(elements, smoothing, monkeypatch, kept):
    monkeypatch.setitem(output_layer.SLICE_ELEMENTS, "cpu", elements)  # slices have 256 words at least
    torch.manual_seed(0)
    inputs = [torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((9, 6), (600, 6), (600,))]
    targets = torch.tensor([0, 255, 256, 257, 511, 512, 599, 3, 3])
    shares = torch.rand(9, dtype=torch.float64)
    at_target, mean = smoothed_log_probs(*inputs, targets)
    torch.testing.assert_close(linear_log_prob(*inputs, targets), at_target)
    ours = -((1 - smoothing) * at_target + smoothing * mean) @ shares
    logits = F.linear(*inputs)
    theirs = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="none") @ shares
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(at_target, -F.cross_entropy(logits, targets, reduction="none"))
    torch.testing.assert_close(*(torch.autograd.grad(loss, inputs) for loss in (ours, theirs)))


def test_few_are_kept_more_are_not_and_none_without_gradient(monkeypatch):
    features, weight, bias = torch.randn(4, 3), torch.randn(600, 3, requires_grad=True), torch.zeros(600)

    def keeps(gradient: bool) -> bool:
        sizes: list[int] = []
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x)
        with torch.set_grad_enabled(gradient), hooks:
            linear_log_prob(features, weight, bias, torch.arange(4))
        return 4 * 600 in sizes

    monkeypatch.setattr(output_layer, "KEPT_ELEMENTS", 4 * 600)
    assert keeps(gradient=True) and not keeps(gradient=False)
    monkeypatch.setattr(output_layer, "KEPT_ELEMENTS", 4 * 600 - 1)
    assert not keeps(gradient=True)


def test_far_apart_logits_of_slices_stay_finite(monkeypatch, kept):
    monkeypatch.setitem(output_layer.SLICE_ELEMENTS, "cpu", 1)  # slices of 256 words
    features, weight, bias = torch.ones(2, 1), torch.zeros(600, 1, requires_grad=True), torch.zeros(600)
    bias[:256], bias[300] = -1e4, 1e4
    found, _ = smoothed_log_probs(features, weight, bias, torch.tensor([0, 300]))
    assert found.tolist() == [-2e4, 0]
    (gradient,) = torch.autograd.grad(found.sum(), weight)
    assert gradient[0] == 1 and gradient[300] == -1 and gradient.abs().sum() == 2
