"""Output layer over a large vocabulary: logits, and the most probable words for beam search."""

from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from lightning_modules.networks.scratch import Scratch

BLOCK = 64  # words in a block; the search for the best words compares block maxima first


def upcast_half(tensor: Tensor) -> Tensor:
    """Convert half precision to float32; other tensors are returned unchanged."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


class BestWords(NamedTuple):
    """Most probable words under a softmax."""

    ids: Tensor  # [..., C]
    log_probs: Tensor  # [..., C]
    normalizer: Tensor  # log-sum-exp of all logits, [..., 1]


class VocabularySlices(NamedTuple):
    """Output layer in slices of the vocabulary, each of which fits into a CPU's caches.

    Beam search of a pointer-generator with V = 50,000 (8 documents, beam 4, one thread of an AMD EPYC) takes 1.13 times
    the processor time with `linear` and `topk` over the whole vocabulary, and 1.29 times with a single slice.
    """

    weight: Tensor  # [slices, H, words]
    bias: Tensor  # -inf after the last word, [slices, 1, words]
    size: int  # number of words in all slices
    scratch: Scratch

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor, words: int | None = None) -> Self:
        """Slice a layer.

        Args:
            weight: [V, H].
            bias: [V].
            words: words in a slice; by default 2,048 on a CPU, and V on other devices.
        """
        size = len(weight)
        words = words or (2048 if weight.device.type == "cpu" and size > 2048 else size)
        words += -words % BLOCK  # round up to whole blocks
        padding = -size % words
        weight, bias = pad(weight, (0, 0, 0, padding)), pad(bias, (0, padding), value=float("-inf"))
        weight = weight.unflatten(0, (-1, words)).transpose(1, 2).contiguous()
        return cls(weight, bias.view(-1, 1, words), size, Scratch())

    def logits(self, rows: Tensor) -> Tensor:
        """Return the logits of rows [N, H] in float32 or float64, [slices, N, words]; the next call overwrites them."""
        slices, _, words = self.weight.shape
        rows = rows.to(self.weight.dtype)  # autocast does not convert inputs of operations with `out`
        logits = self.scratch("logits", rows, slices, len(rows), words)
        return upcast_half(torch.baddbmm(self.bias, rows.expand(slices, -1, -1), self.weight, out=logits))

    def best(self, rows: Tensor, count: int) -> BestWords:
        """Return the `count` most probable words of rows [N, H].

        They are in the `count` blocks with the highest maxima, so that only those blocks are searched.
        """
        logits = self.logits(rows)
        blocks = logits.unflatten(-1, (-1, BLOCK))                                   # [slices, N, blocks, BLOCK]
        maxima = blocks.amax(-1)                                                     # [slices, N, blocks]
        # the normalizer, one slice at a time so that each stays in a CPU's caches
        slice_maxima = maxima.amax(-1, keepdim=True)                                 # [slices, N, 1]
        sums = [log_sum_exp(part, maximum) for part, maximum in zip(logits, slice_maxima)]
        normalizer = torch.stack(sums).logsumexp(0)                                  # [N, 1]
        # the best blocks, then the best words within them
        maxima = maxima.transpose(0, 1).flatten(1)                                   # [N, slices blocks]
        best_blocks = maxima.topk(min(count, maxima.shape[1]), dim=-1).indices       # [N, count]
        part, block = best_blocks // blocks.shape[2], best_blocks % blocks.shape[2]
        row = torch.arange(len(rows), device=rows.device).unsqueeze(1)
        values, order = blocks[part, row, block].flatten(1).topk(count, dim=-1)      # [N, C]
        ids = best_blocks.gather(1, order // BLOCK) * BLOCK + order % BLOCK
        return BestWords(ids, values - normalizer, normalizer)


def log_sum_exp(logits: Tensor, maximum: Tensor) -> Tensor:
    """Return the log-sum-exp of logits [N, words] with maxima [N, 1] already computed, [N, 1]."""
    return (logits - maximum).exp_().sum(-1, keepdim=True).log_() + maximum


def best_words(features: Tensor, layer: VocabularySlices, count: int) -> BestWords:
    """Return the most probable words for each feature vector.

    Args:
        features: [..., H].
        layer: the output layer.
        count: number of words C; at most all.
    """
    best = layer.best(features.flatten(0, -2), min(count, layer.size))               # [N, C]
    return BestWords(*(column.view(*features.shape[:-1], -1) for column in best))


def vocabulary_logits(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return logits over the vocabulary in float32 or float64: [..., H] -> [..., V]."""
    return upcast_half(linear(features, weight, bias))
