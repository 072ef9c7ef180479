"""Distributions over the binary trees of a sequence of EDUs: the inside algorithm, exact marginals, the best tree.

A tree over EDUs 0..E-1 has a node for every span (i, j) that it splits after k into (i, k) and (k + 1, j). A node has
the score s(i, j) + u(i, k) . v(k + 1, j): the score of the span plus the compatibility of its two parts. Then
P(tree) = exp(sum of the scores of its nodes) / Z. All functions take a batch of documents padded to E EDUs and loop
over span widths; the spans of one width are computed in one operation, for all documents and starts.

Every chart is stored twice, indexed by width, so that the terms of a sum over splits are adjacent in memory:
`left[b, i, w]` is the span of w + 1 EDUs that starts at i, `right[b, j, E - 1 - w]` the one that ends at j.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable


class Chart(NamedTuple):
    """Values of spans (i, j), w = j - i: as left part of a larger span, and as right part (often equal values)."""

    left: Tensor  # value of the span (i, j) as left part, at [i, w], [B, E, E, ...]
    right: Tensor  # value of the span (i, j) as right part, at [j, E - 1 - w], [B, E, E, ...]

    @classmethod
    def zeros(cls, like: Tensor) -> "Chart":
        """Return a chart of zeros in the shape of `like`, [B, E, E, ...]."""
        return cls(torch.zeros_like(like), torch.zeros_like(like))

    def splits(self, width: int, starts: int) -> tuple[Tensor, Tensor]:
        """Return both parts' values by split, for `starts` spans of `width` + 1 EDUs: [B, starts, width, ...] each."""
        # views; at [b, i, n], the span from i is split after i + n into the parts (i, i + n) and (i + n + 1, i + width)
        size = self.left.shape[1]                                                    # E
        return self.left[:, :starts, :width], self.right[:, width : width + starts, size - width :]

    def put(self, width: int, values: Tensor) -> None:
        """Store the values of all spans of `width` + 1 EDUs, [B, starts], in `left` and in `right`."""
        starts = values.shape[1]
        self.left[:, :starts, width] = values
        self.right[:, width : width + starts, self.left.shape[1] - 1 - width] = values


class Potentials(NamedTuple):
    """Scores s(i, j) + u(i, k) . v(k + 1, j) of nodes over EDUs i..j split after k; padding: finite values, ignored."""

    spans: Tensor  # s(i, j), [B, E, E]; only i < j is read
    fits: tuple[Tensor, Tensor] | None = None  # u(i, k) at [k, i], v(k + 1, j) at [k, j], [B, E, E, D]; None: no u . v

    def products(self) -> Tensor | None:
        """Return u(i, k) . v(k + 1, j) at [k, i, j], [B, E, E, E], or None; other entries have no meaning."""
        if self.fits is None:
            return None
        (u, v), size = self.fits, self.spans.shape[1]
        products = u.new_empty(len(u), size, size, size)
        for k in range(size - 1):  # only i <= k < j, which is a sixth of the entries
            torch.bmm(u[:, k, : k + 1], v[:, k, k + 1 :].mT, out=products[:, k, : k + 1, k + 1 :])
        return products


def of_splits(values: Tensor, width: int) -> Tensor:
    """Return the `values` of (k, i, j), [B, E, E, E], by split k, of spans of `width` + 1 EDUs: [B, starts, width]."""
    size = values.shape[1]  # a view; at [b, i, n], the span from i is split after k = i + n and ends at j = i + width
    strides = (size**3, size**2 + size + 1, size**2)
    return values.as_strided((len(values), size - width, width), strides, storage_offset=width)


def _split_scores(chart: Chart, products: Tensor | None, width: int, starts: int) -> Tensor:
    """Return chart values of both parts plus u . v, by split, of spans of `width` + 1 EDUs, [B, starts, width]."""
    left, right = chart.splits(width, starts)
    return left + right if products is None else (left + right).add_(of_splits(products, width))


def _widths(size: int) -> list[tuple[int, int]]:
    """Return (width, number of spans of that width), from width 1 (two EDUs) up to the document of `size` EDUs."""
    return [(width, size - width) for width in range(1, size)]


def inside(potentials: Potentials) -> tuple[Chart, list[Tensor]]:
    """Return the log of the summed weights of all trees over every span (inside algorithm), and the terms of its sums.

    I(i, j) = s(i, j) + log sum_k exp(I(i, k) + I(k + 1, j) + u(i, k) . v(k + 1, j)),    I(i, i) = 0, with s, u and v of
    `Potentials` (scores of spans, fit of parts). The terms are the exponents, [B, starts, width] for each width.
    """
    chart, products = Chart.zeros(potentials.spans), potentials.products()
    terms = []
    for width, starts in _widths(potentials.spans.shape[1]):  # spans (i, i + width), narrow ones first
        terms.append(_split_scores(chart, products, width, starts))  # one exponent for each split k
        chart.put(width, terms[-1].logsumexp(-1) + potentials.spans.diagonal(width, 1, 2))
    return chart, terms


class WidthMarginals(NamedTuple):
    """Posterior probabilities, given the text, of all spans of `width` + 1 EDUs, ordered by their starts."""

    width: int
    nodes: Tensor  # P(the tree has a node over the span), [B, starts]
    splits: Tensor  # P(the tree has such a node, with that split), splits in order, [B, starts, width]


def split_marginals(spans: Tensor, terms: Sequence[Tensor], sizes: Tensor) -> Iterator[WidthMarginals]:
    """Yield posterior probabilities of nodes and splits (outside algorithm), widest spans first.

    `spans` are span scores, [B, E, E], `terms` the exponents of splits that `inside` returns, and `sizes` the
    number of EDUs of each document, [B].
    """
    size = spans.shape[1]
    # P(span is a left child), P(span is a right child) of a node; the root counts as a left one, to start the recursion
    as_child = Chart.zeros(spans)
    as_child.left[torch.arange(len(sizes), device=sizes.device), 0, sizes - 1] = 1
    for width, starts in reversed(_widths(size)):
        # a node is a left or a right child; `Chart` indexes them by (start, width) and (end, size - 1 - width)
        nodes = as_child.left[:, :starts, width] + as_child.right[:, width:, size - 1 - width]   # [B, starts]
        splits = terms[width - 1].softmax(-1) * nodes.unsqueeze(-1)                              # [B, starts, width]
        for child in as_child.splits(width, starts):  # left, then right children, views of the chart
            child += splits
        yield WidthMarginals(width, nodes, splits)


def all_marginals(potentials: Potentials, sizes: Tensor) -> list[WidthMarginals]:
    """Return the posterior probabilities of all nodes and splits, about E^3 / 6 per document, widest spans first."""
    return list(split_marginals(potentials.spans, inside(potentials)[1], sizes))


def span_marginals(potentials: Potentials, marginals: list[WidthMarginals]) -> Tensor:
    """Return P(span (i, j) is a node), [B, E, E], zero unless i < j, from all `marginals`."""
    result = torch.zeros_like(potentials.spans)
    for width, nodes, _ in marginals:
        result.diagonal(width, 1, 2).copy_(nodes)
    return result


class _LogPartition(torch.autograd.Function):
    """log Z (see `log_partition`) with a gradient from the outside pass, which needs far less memory than autograd."""

    @staticmethod
    def forward(ctx, sizes: Tensor, spans: Tensor, *fits: Tensor) -> Tensor:
        """Return log Z, [B]; `sizes` are numbers of EDUs, `fits` the two tensors of `Potentials.fits`, or none."""
        chart, terms = inside(Potentials(spans, fits or None))
        ctx.save_for_backward(sizes, spans, *fits, *terms)
        ctx.number_of_fits = len(fits)
        return chart.left[torch.arange(len(sizes), device=sizes.device), 0, sizes - 1]  # of each whole document

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        """Return the gradients of spans and of fits (u, v) from the gradient of log Z, [B]."""
        sizes, spans, *saved = ctx.saved_tensors
        fits, terms = saved[: ctx.number_of_fits], saved[ctx.number_of_fits :]  # `terms`: see `inside`
        size = spans.shape[1]                                                        # E
        marginals = torch.zeros_like(spans)
        split_probs = spans.new_zeros(len(spans), size, size, size) if fits else None  # P(i, j, split after k)
        for width, nodes, splits in split_marginals(spans, terms, sizes):
            marginals.diagonal(width, 1, 2).copy_(nodes)
            if fits:
                of_splits(split_probs, width).copy_(splits)
        # d log Z / d s(i, j) = P(i, j), d log Z / d u(i, k) = sum_j P(i, j, split after k) v(k + 1, j), likewise for v
        local = [marginals, split_probs @ fits[1], split_probs.mT @ fits[0]] if fits else [marginals]
        # chain rule: each document's gradient is scaled by the gradient of its log Z, [B, 1, 1, ...]
        scaled = [gradient * grad.view(-1, *[1] * (gradient.dim() - 1)) for gradient in local]
        return None, *scaled  # `sizes` has no gradient


def log_partition(potentials: Potentials, sizes: Tensor) -> Tensor:
    """Return log Z, the log of the summed weights exp(score) of all trees, of every document, [B]; 0 for one EDU.

    Its gradient for span scores is P(span is a node). `sizes`: number of EDUs of each document, at least 1, [B].
    """
    return _LogPartition.apply(sizes, potentials.spans, *(potentials.fits or ()))


def most_probable_splits(potentials: Potentials, marginals: list[WidthMarginals]) -> Tensor:
    """Return for each span (i, j), given that it is a node, its most probable split k, int64 [B, E, E]; i if i >= j."""
    charts, size = potentials.spans.shape[:2]                                        # B, E
    position = torch.arange(size, device=potentials.spans.device)
    most_probable = position.view(1, -1, 1).repeat(charts, 1, size)  # start i everywhere, to which offsets are added
    for width, _, splits in marginals:  # P of each split of the spans of one width, [B, starts, width]
        most_probable.diagonal(width, 1, 2).add_(splits.argmax(-1))
    return most_probable


class SplitPosterior(NamedTuple):
    """Nodes whose posterior probability exceeds a threshold, in arbitrary order."""

    document: Tensor  # index of the document (or chart) in the batch, [N]
    start: Tensor  # i, the first EDU, [N]
    split: Tensor  # k, the last EDU of the left part, [N]
    end: Tensor  # j, the last EDU, [N]
    probability: Tensor  # mu(i, k, j), [N]


def node_marginals(potentials: Potentials, marginals: list[WidthMarginals], min_prob: float = 0.0) -> SplitPosterior:
    """Return all nodes with mu(i, k, j) = P(the tree has a node over i..j that is split after k) above `min_prob`."""
    by_width = []
    for width, _, splits in marginals:  # P of each split of the spans of one width, [B, starts, width]
        document, start, offset = (splits > min_prob).nonzero(as_tuple=True)  # the split is after EDU start + offset
        by_width.append((document, start, start + offset, start + width, splits[document, start, offset]))
    if not by_width:  # documents of one EDU have no node
        no_index = potentials.spans.new_empty(0, dtype=torch.long)
        return SplitPosterior(no_index, no_index, no_index, no_index, probability=potentials.spans.new_empty(0))
    return SplitPosterior(*(torch.cat(column) for column in zip(*by_width)))  # joined, field by field


def best_trees(potentials: Potentials, sizes: Tensor) -> list[Tensor]:
    """Return the tree with the highest sum of node scores of every document (CKY); ties go to the earliest split.

    With a scorer's potentials this is the most probable tree; with span marginals as scores it is the tree with the
    highest expected number of correct spans (minimum Bayes risk). `sizes` is the number of EDUs of each document, [B];
    nodes (start, split after, end) are ordered parents before children, left before right, int64 [E - 1, 3] on the CPU.
    """
    spans = potentials.spans
    chart, products = Chart.zeros(spans), potentials.products()  # `chart`: highest sum of scores over each span
    best_splits = torch.zeros(spans.shape, dtype=torch.int32, device=spans.device)   # [B, E, E]
    for width, starts in _widths(spans.shape[1]):
        best, offset = _split_scores(chart, products, width, starts).max(-1)  # split = start + offset, [B, starts] each
        chart.put(width, best + spans.diagonal(width, 1, 2))
        best_splits.diagonal(width, 1, 2).copy_(offset + torch.arange(starts, device=offset.device))
    return [_backtrack(table, size) for table, size in zip(best_splits.cpu().numpy(), sizes.tolist())]


def _backtrack(best_splits: NDArray[np.int32], size: int) -> Tensor:
    """Return nodes (start, split, end) of the best tree of `size` EDUs, from the best split of each span, [E, E]."""
    nodes, pending = [], [(0, size - 1)]
    while pending:
        start, end = pending.pop()
        if start < end:  # a single EDU is a leaf, not a node
            split = int(best_splits[start, end])
            nodes.append((start, split, end))
            pending += [(split + 1, end), (start, split)]  # the left part is visited first
    return torch.tensor(nodes, dtype=torch.int64).view(-1, 3)
