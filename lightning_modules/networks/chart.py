"""Distributions over the binary trees of a sequence of EDUs: the inside algorithm, exact marginals, the best tree.

A tree over EDUs 0..E-1 has a node for every span (i, j) that it splits after k into (i, k) and (k + 1, j). With scores
s(i, j) of the nodes, P(tree) = exp(sum of the scores of its nodes) / Z. All functions take a batch of documents padded
to E EDUs and work through the widths of spans, every document and start at a time.

Charts are stored by width, twice, so that what is added up lies side by side: `left[b, i, w]` and
`right[b, j, E - 1 - w]` both belong to the span of w + 1 EDUs that starts at i or ends at j.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Chart(NamedTuple):
    """A value for every span, by width, filed under its start and under its end."""

    left: Tensor  # [B, E, E]
    right: Tensor  # [B, E, E]

    @classmethod
    def zeros(cls, like: Tensor) -> "Chart":
        """An empty chart for scores [B, E, E]."""
        return cls(torch.zeros_like(like), torch.zeros_like(like))

    def splits(self, width: int, starts: int) -> tuple[Tensor, Tensor]:
        """Values of the left and right parts of all spans of `width` + 1 EDUs, both [B, starts, width]."""
        size = self.left.shape[1]
        return self.left[:, :starts, :width], self.right[:, width : width + starts, size - width :]

    def put(self, width: int, values: Tensor) -> None:
        """Files values [B, starts] of the spans of `width` + 1 EDUs."""
        starts = values.shape[1]
        self.left[:, :starts, width] = values
        self.right[:, width : width + starts, self.left.shape[1] - 1 - width] = values


def _widths(size: int) -> list[tuple[int, int]]:
    """Widths of spans from 1 (two EDUs) on, and how many spans each has."""
    return [(width, size - width) for width in range(1, size)]


def inside(scores: Tensor) -> Chart:
    """Log of the summed weights of all trees over every span: I(i, j) = s(i, j) + log sum_k exp(I(i, k) + I(k + 1, j)).

    Args:
        scores: s(i, j), [B, E, E]; only i < j is read.
    """
    chart = Chart.zeros(scores)
    for width, starts in _widths(scores.shape[1]):
        left, right = chart.splits(width, starts)
        chart.put(width, (left + right).logsumexp(-1) + scores.diagonal(width, 1, 2))
    return chart


def roots(chart: Chart, sizes: Tensor) -> Tensor:
    """The chart's value for each whole document, [B]; sizes: EDUs of each, at least 1, [B]."""
    return chart.left[torch.arange(len(sizes), device=sizes.device), 0, sizes - 1]


def split_marginals(chart: Chart, sizes: Tensor):
    """Posterior probabilities, widest spans first.

    Args:
        chart: the `inside` of all spans.
        sizes: EDUs of each document, [B].

    Yields:
        width, P(span is a node) [B, starts], and P(span is a node and is split so) [B, starts, width], with the
        splits in order.
    """
    size = chart.left.shape[1]
    below = Chart.zeros(chart.left)  # what the nodes above give to their parts
    document = torch.arange(len(sizes), device=sizes.device)
    below.left[document, 0, sizes - 1] = 1
    for width, starts in reversed(_widths(size)):
        left, right = chart.splits(width, starts)
        nodes = below.left[:, :starts, width] + below.right[:, width:, size - 1 - width]         # [B, starts]
        splits = (left + right).softmax(-1) * nodes.unsqueeze(-1)                                # [B, starts, width]
        for part, share in zip(below.splits(width, starts), (splits, splits)):
            part += share
        yield width, nodes, splits


def span_marginals(chart: Chart, sizes: Tensor) -> Tensor:
    """P(span (i, j) is a node), [B, E, E]; zero unless i < j."""
    marginals = torch.zeros_like(chart.left)
    for width, nodes, _ in split_marginals(chart, sizes):
        marginals.diagonal(width, 1, 2).copy_(nodes)
    return marginals


class _LogPartition(torch.autograd.Function):
    """log Z with its gradient, the span marginals, by the outside pass; autograd's own tape is much longer."""

    @staticmethod
    def forward(ctx, scores: Tensor, sizes: Tensor) -> Tensor:
        chart = inside(scores)
        ctx.save_for_backward(chart.left, chart.right, sizes)
        return roots(chart, sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        left, right, sizes = ctx.saved_tensors
        return span_marginals(Chart(left, right), sizes) * grad.view(-1, 1, 1), None


def log_partition(scores: Tensor, sizes: Tensor) -> Tensor:
    """log Z of every document; its gradient by the scores are the exact span marginals.

    Args:
        scores: s(i, j), [B, E, E]; only i < j is read.
        sizes: EDUs of each document, at least 1, [B].

    Returns:
        [B]; 0 for a document of one EDU.
    """
    return _LogPartition.apply(scores, sizes)


class SplitPosterior(NamedTuple):
    """Nodes that trees have with a probability worth having, in no order that matters."""

    document: Tensor  # [N]
    start: Tensor  # i, [N]
    split: Tensor  # k, [N]
    end: Tensor  # j, [N]
    probability: Tensor  # mu(i, k, j), [N]


def node_marginals(chart: Chart, sizes: Tensor, least: float = 0.0) -> SplitPosterior:
    """mu(i, k, j) = P(the tree has a node over i..j that is split after k), of all nodes above `least`.

    Args:
        chart: the `inside` of all spans.
        sizes: EDUs of each document, [B].
        least: nodes of this probability or less are left out.
    """
    found = []
    for width, _, splits in split_marginals(chart, sizes):
        document, start, part = (splits > least).nonzero(as_tuple=True)
        found.append((document, start, start + part, start + width, splits[document, start, part]))
    if not found:  # documents of one EDU
        none = sizes.new_empty(0)
        return SplitPosterior(none, none, none, none, chart.left.new_empty(0))
    return SplitPosterior(*(torch.cat(column) for column in zip(*found)))


def best_trees(scores: Tensor, sizes: Tensor) -> list[Tensor]:
    """The tree with the highest sum of node scores of every document (CKY); of equal ones, the earliest split.

    With s(i, j) = log-potentials this is the most probable tree; with span marginals it is the tree with the most
    spans right in expectation (minimum Bayes risk).

    Args:
        scores: s(i, j), [B, E, E].
        sizes: EDUs of each document, [B].

    Returns:
        Nodes (start, split, end) of each document, a parent before its parts and the left part before the right,
        int64 [E - 1, 3] on the CPU.
    """
    chart = Chart.zeros(scores)
    choice = torch.zeros(scores.shape, dtype=torch.int32, device=scores.device)
    for width, starts in _widths(scores.shape[1]):
        left, right = chart.splits(width, starts)
        best, part = (left + right).max(-1)
        chart.put(width, best + scores.diagonal(width, 1, 2))
        choice.diagonal(width, 1, 2).copy_(part + torch.arange(starts, device=part.device))
    return [_walk(table, size) for table, size in zip(choice.cpu().numpy(), sizes.tolist())]


def _walk(choice, size: int) -> Tensor:
    """The nodes below the root in a table of splits."""
    nodes, waiting = [], [(0, size - 1)]
    while waiting:
        start, end = waiting.pop()
        if start < end:
            split = int(choice[start, end])
            nodes.append((start, split, end))
            waiting += [(split + 1, end), (start, split)]
    return torch.tensor(nodes, dtype=torch.int64).view(-1, 3)

