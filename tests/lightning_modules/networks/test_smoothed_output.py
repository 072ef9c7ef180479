"""Label smoothing over slices of the vocabulary against PyTorch's own, whole."""

import pytest
import torch
from torch.nn import functional as F

from lightning_modules.networks import output_layer
from lightning_modules.networks.smoothed_output import smoothed_log_probs


@pytest.mark.parametrize("elements", [1, 2**22], ids=["slices", "whole"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_values_and_gradients_are_those_of_cross_entropy(elements, smoothing, monkeypatch):
    monkeypatch.setitem(output_layer.CHUNK_ELEMENTS, "cpu", elements)  # slices have 256 words at least
    torch.manual_seed(0)
    sizes = ((9, 6), (600, 6), (600,))
    given = [torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in sizes]
    targets = torch.tensor([0, 255, 256, 257, 511, 512, 599, 3, 3])
    shares = torch.rand(9, dtype=torch.float64)
    at_target, mean = smoothed_log_probs(*given, targets)
    ours = -((1 - smoothing) * at_target + smoothing * mean) @ shares
    logits = F.linear(*given)
    theirs = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="none") @ shares
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(at_target, -F.cross_entropy(logits, targets, reduction="none"))
    for one, other in zip(*(torch.autograd.grad(loss, given) for loss in (ours, theirs))):
        torch.testing.assert_close(one, other)


def test_half_precision_features_under_autocast():
    torch.manual_seed(1)
    features, weight, bias = torch.randn(5, 8), torch.randn(40, 8), torch.randn(40)
    exact = smoothed_log_probs(features, weight, bias, torch.arange(5))
    with torch.autocast("cpu", torch.bfloat16):
        rounded = smoothed_log_probs(features, weight, bias, torch.arange(5))
    for one, other in zip(rounded, exact):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, atol=0.1, rtol=0.05)
