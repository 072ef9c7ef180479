import pytest
import torch
from torch.nn.functional import log_softmax

from lightning_modules.networks import output_layer
from lightning_modules.networks.output_layer import ScreenedVocabulary, VocabularySlices, best_words, linear_log_prob


@pytest.mark.parametrize("elements", [1, 7 * 300, 10**6])
def test_log_prob_of_a_target_equals_log_softmax_in_value_and_gradient(monkeypatch, elements):
    monkeypatch.setitem(output_layer.CHUNK_ELEMENTS, "cpu", elements)  # slices of 256 words, of 300, one
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


@pytest.mark.parametrize("size", [5, 64, 130, 1000])
@pytest.mark.parametrize("words", [None, 1, 100, 200])
@pytest.mark.parametrize("count", [1, 3, 70])
def test_the_best_words_are_those_of_topk_over_log_softmax(size, words, count):
    torch.manual_seed(size + count)
    features, weight, bias = torch.randn(2, 3, 6), torch.randn(size, 6), torch.randn(size)
    bias[size // 2 :] += 9  # most of the best stand beside each other
    found = best_words(features, VocabularySlices.of(weight, bias, words), count)
    whole = log_softmax(features @ weight.T + bias, -1)
    expected = whole.topk(min(count, size))
    torch.testing.assert_close(found.log_probs, expected.values)
    torch.testing.assert_close(whole.gather(-1, found.ids), expected.values)
    assert all(len(set(ids)) == len(ids) for ids in found.ids.flatten(0, 1).tolist())
    torch.testing.assert_close(found.normalizer.squeeze(-1), (features @ weight.T + bias).logsumexp(-1))


@pytest.mark.parametrize("size", [5, 64, 130, 5000])
@pytest.mark.parametrize("count", [1, 3, 70])
def test_screened_words_are_the_likeliest_with_their_exact_logits(size, count):
    torch.manual_seed(size + count)
    features, weight, bias = torch.randn(2, 3, 16), torch.randn(size, 16), torch.randn(size)
    bias[: size // 2] -= 9  # most of the best stand beside each other
    layer = ScreenedVocabulary.of(weight, bias)
    logits = features @ weight.T + bias
    for factor in (1, 0.5):  # the second time the layer's memory holds the first one's logits
        found = best_words(factor * features, layer, count)
        whole = factor * features @ weight.T + bias
        expected = whole.topk(min(count, size))
        torch.testing.assert_close(found.log_probs + found.normalizer, expected.values)
        torch.testing.assert_close(whole.gather(-1, found.ids), expected.values)
        torch.testing.assert_close(found.normalizer.squeeze(-1), whole.logsumexp(-1), atol=0.01, rtol=0)
    # the rounded product alone misses by more than what is promised
    assert (features.bfloat16() @ weight.bfloat16().T + bias.bfloat16() - logits).abs().max() > 0.01


def test_screening_knows_its_normalizer_where_all_words_are_looked_at_again():
    features, weight, bias = torch.randn(4, 8), torch.randn(20, 8), torch.randn(20)
    found = best_words(features, ScreenedVocabulary.of(weight, bias), 10)
    torch.testing.assert_close(found.normalizer.squeeze(-1), (features @ weight.T + bias).logsumexp(-1))
