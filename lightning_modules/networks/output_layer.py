"""The output layer over a large vocabulary: what beam search needs of its softmax."""

from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from lightning_modules.networks.scratch import Scratch

BLOCK = 64  # words of which only the maximum is looked at first


def upcast_half(tensor: Tensor) -> Tensor:
    """A half-precision tensor in float32, any other as it is."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


class BestWords(NamedTuple):
    """The likeliest words under a softmax."""

    ids: Tensor  # [..., C]
    log_probs: Tensor  # [..., C]
    normalizer: Tensor  # log-sum-exp of all logits, [..., 1]


class VocabularySlices(NamedTuple):
    """An output layer as decoding reads it: slice after slice of the vocabulary, so that a CPU's caches hold the part
    that is multiplied."""

    weight: Tensor  # [slices, H, words]
    bias: Tensor  # -inf behind the last word, [slices, 1, words]
    size: int  # words in all
    scratch: Scratch

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor, words: int | None = None) -> Self:
        """Slices a layer of weight [V, H] and bias [V]; on a CPU into slices of 2,048 words if `words` is not given."""
        size = len(weight)
        words = words or (2048 if weight.device.type == "cpu" and size > 2048 else size)
        words += -words % BLOCK
        missing = -size % words
        weight, bias = pad(weight, (0, 0, 0, missing)), pad(bias, (0, missing), value=float("-inf"))
        weight = weight.unflatten(0, (-1, words)).transpose(1, 2).contiguous()
        return cls(weight, bias.view(-1, 1, words), size, Scratch())

    def best(self, rows: Tensor, count: int) -> BestWords:
        """The likeliest `count` words of rows [N, H]; they stand in the blocks of words with the highest maxima."""
        slices, _, words = self.weight.shape
        rows = rows.to(self.weight.dtype)  # autocast leaves products into given memory alone
        logits = self.scratch("logits", rows, slices, len(rows), words)
        logits = upcast_half(torch.baddbmm(self.bias, rows.expand(slices, -1, -1), self.weight, out=logits))
        blocks = logits.unflatten(-1, (-1, BLOCK))                                   # [slices, N, blocks, BLOCK]
        maxima = blocks.amax(-1)                                                     # [slices, N, blocks]
        # a slice at a time, which a CPU's caches hold
        sums = [exp_sum(part, top) for part, top in zip(logits, maxima.amax(-1, keepdim=True))]
        normalizer = torch.stack(sums).logsumexp(0)                                  # [N, 1]
        chosen = maxima.transpose(0, 1).flatten(1)                                   # [N, slices blocks]
        chosen = chosen.topk(min(count, chosen.shape[1]), dim=-1).indices            # [N, chosen]
        part, row = chosen // blocks.shape[2], torch.arange(len(rows), device=rows.device).unsqueeze(1)
        values, order = blocks[part, row, chosen % blocks.shape[2]].flatten(1).topk(count, dim=-1)   # [N, C]
        ids = chosen.gather(1, order // BLOCK) * BLOCK + order % BLOCK
        return BestWords(ids, values - normalizer, normalizer)


def exp_sum(logits: Tensor, top: Tensor) -> Tensor:
    """Log-sum-exp of [N, words] whose maxima [N, 1] are known, [N, 1]."""
    return (logits - top).exp_().sum(-1, keepdim=True).log_() + top


def best_words(features: Tensor, layer: VocabularySlices, count: int) -> BestWords:
    """The likeliest words of each row.

    Args:
        features: [..., H].
        layer: the output layer.
        count: how many words; all if there are fewer.
    """
    found = layer.best(features.flatten(0, -2), min(count, layer.size))              # rows [N, H]
    return BestWords(*(column.view(*features.shape[:-1], -1) for column in found))


def vocabulary_logits(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Logits over the vocabulary, in float32 or wider: [..., H] -> [..., V]."""
    return upcast_half(linear(features, weight, bias))
