import pytest
import torch
from torch.nn.functional import log_softmax

from lightning_modules.networks.output_layer import VocabularySlices, best_words


@pytest.mark.parametrize("size", [5, 64, 130, 1000])
@pytest.mark.parametrize("words", [None, 1, 100, 200])
@pytest.mark.parametrize("count", [1, 3, 70])
def test_the_best_words_equal_those_of_topk_over_log_softmax(size, words, count):
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
