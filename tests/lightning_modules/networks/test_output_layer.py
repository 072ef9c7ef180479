import pytest
import torch
from torch.nn.functional import log_softmax

from lightning_modules.networks.output_layer import ScreenedVocabulary, VocabularySlices, best_words


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
