"""Distributions over the binary trees of a sequence of EDUs: the inside algorithm, exact marginals, the best tree.

A tree over EDUs 0..E-1 has a node for every span (i, j) that it splits after k into (i, k) and (k + 1, j). A node has
the score s(i, j) + u(i, k) . v(k + 1, j): of the span, and of how its two parts fit each other. Then
P(tree) = exp(sum of the scores of its nodes) / Z. All functions take a batch of documents padded to E EDUs and work
through the widths of spans, every document and start at a time.

Charts are stored by width, twice, so that what is added up lies side by side: `left[b, i, w]` and
`right[b, j, E - 1 - w]` both belong to the span of w + 1 EDUs that starts at i or ends at j.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Chart(NamedTuple):
    """A value for every span, by width, filed under its start and under its end."""

    left: Tensor  # [B, E, E, ...]
    right: Tensor  # [B, E, E, ...]

    @classmethod
    def zeros(cls, like: Tensor) -> "Chart":
        """An empty chart for scores [B, E, E]."""
        return cls(torch.zeros_like(like), torch.zeros_like(like))

    @classmethod
    def of(cls, spans: tuple[Tensor, Tensor, Tensor], left: Tensor, right: Tensor, batch: int, size: int) -> "Chart":
        """Files what spans have as left parts and as right parts.

        Args:
            spans: document, start and end, each [N].
            left, right: values, [N, ...].
            batch: documents B.
            size: EDUs E that documents are padded to.
        """
        document, start, end = spans
        empty = left.new_zeros(batch, size, size, *left.shape[1:])
        width = end - start
        return cls(
            empty.index_put((document, start, width), left), empty.index_put((document, end, size - 1 - width), right)
        )

    def splits(self, width: int, starts: int) -> tuple[Tensor, Tensor]:
        """Values of the left and right parts of all spans of `width` + 1 EDUs, both [B, starts, width, ...]."""
        size = self.left.shape[1]
        return self.left[:, :starts, :width], self.right[:, width : width + starts, size - width :]

    def put(self, width: int, values: Tensor) -> None:
        """Files values [B, starts] of the spans of `width` + 1 EDUs."""
        starts = values.shape[1]
        self.left[:, :starts, width] = values
        self.right[:, width : width + starts, self.left.shape[1] - 1 - width] = values


class Potentials(NamedTuple):
    """Scores of nodes. What lies behind a document's end must be finite and is not read.

    Attributes:
        spans: s(i, j), [B, E, E]; i < j is read.
        fits: u of spans as left parts and v of spans as right parts, [B, E, E, D]; None if spans alone have scores.
    """

    spans: Tensor
    fits: Chart | None = None

    def splits(self, chart: Chart, width: int, starts: int) -> Tensor:
        """I(i, k) + I(k + 1, j) + u(i, k) . v(k + 1, j) of all splits of all spans of `width` + 1 EDUs,
        [B, starts, width]."""
        left, right = chart.splits(width, starts)
        if self.fits is None:
            return left + right
        u, v = self.fits.splits(width, starts)
        return left + right + (u * v).sum(-1)


def _widths(size: int) -> list[tuple[int, int]]:
    """Widths of spans from 1 (two EDUs) on, and how many spans each has."""
    return [(width, size - width) for width in range(1, size)]


def inside(potentials: Potentials) -> Chart:
    """Log of the summed weights of all trees over every span,

    I(i, j) = s(i, j) + log sum_k exp(I(i, k) + I(k + 1, j) + u(i, k) . v(k + 1, j)),    I(i, i) = 0.
    """
    chart = Chart.zeros(potentials.spans)
    for width, starts in _widths(potentials.spans.shape[1]):
        total = potentials.splits(chart, width, starts).logsumexp(-1)
        chart.put(width, total + potentials.spans.diagonal(width, 1, 2))
    return chart


def roots(chart: Chart, sizes: Tensor) -> Tensor:
    """The chart's value for each whole document, [B]; sizes: EDUs of each, at least 1, [B]."""
    return chart.left[torch.arange(len(sizes), device=sizes.device), 0, sizes - 1]


def split_marginals(potentials: Potentials, chart: Chart, sizes: Tensor):
    """Posterior probabilities, widest spans first.

    Args:
        potentials: the scores.
        chart: their `inside`.
        sizes: EDUs of each document, [B].

    Yields:
        width, P(span is a node) [B, starts], and P(span is a node and is split so) [B, starts, width], with the
        splits in order.
    """
    size = chart.left.shape[1]
    below = Chart.zeros(chart.left)  # what the nodes above give to their parts
    below.left[torch.arange(len(sizes), device=sizes.device), 0, sizes - 1] = 1
    for width, starts in reversed(_widths(size)):
        nodes = below.left[:, :starts, width] + below.right[:, width:, size - 1 - width]         # [B, starts]
        splits = potentials.splits(chart, width, starts).softmax(-1) * nodes.unsqueeze(-1)       # [B, starts, width]
        for part in below.splits(width, starts):
            part += splits
        yield width, nodes, splits


def span_marginals(potentials: Potentials, sizes: Tensor, chart: Chart | None = None) -> Tensor:
    """P(span (i, j) is a node), [B, E, E]; zero unless i < j. `chart` is the `inside`, where it is known already."""
    marginals = torch.zeros_like(potentials.spans)
    for width, nodes, _ in split_marginals(potentials, chart or inside(potentials), sizes):
        marginals.diagonal(width, 1, 2).copy_(nodes)
    return marginals


class _LogPartition(torch.autograd.Function):
    """log Z with its gradient by the outside pass; autograd's own tape is much longer.

    The gradient by s(i, j) is P(i, j), that by u(i, k) is the sum over j of mu(i, k, j) v(k + 1, j).
    """

    @staticmethod
    def forward(ctx, sizes: Tensor, spans: Tensor, *fits: Tensor) -> Tensor:
        chart = inside(Potentials(spans, Chart(*fits) if fits else None))
        ctx.save_for_backward(sizes, *chart, spans, *fits)
        return roots(chart, sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        sizes, left, right, spans, *fits = ctx.saved_tensors
        potentials = Potentials(spans, Chart(*fits) if fits else None)
        marginals, slopes = torch.zeros_like(spans), [torch.zeros_like(table) for table in fits]
        for width, nodes, splits in split_marginals(potentials, Chart(left, right), sizes):
            marginals.diagonal(width, 1, 2).copy_(nodes)
            if fits:
                u, v = potentials.fits.splits(width, nodes.shape[1])
                for slope, other in zip(Chart(*slopes).splits(width, nodes.shape[1]), (v, u)):
                    slope.addcmul_(splits.unsqueeze(-1), other)
        return None, *(slope * grad.view(-1, *[1] * (slope.dim() - 1)) for slope in (marginals, *slopes))


def log_partition(potentials: Potentials, sizes: Tensor) -> Tensor:
    """log Z of every document; its gradient by the scores of spans are the exact span marginals.

    Args:
        potentials: the scores.
        sizes: EDUs of each document, at least 1, [B].

    Returns:
        [B]; 0 for a document of one EDU.
    """
    return _LogPartition.apply(sizes, potentials.spans, *(potentials.fits or ()))


def likeliest_splits(potentials: Potentials, chart: Chart | None = None) -> Tensor:
    """The most probable k of every span (i, j), given that it is a node, int64 [B, E, E]; k = i unless i < j. `chart`
    is the `inside`, where it is known already."""
    chart = chart or inside(potentials)
    size = potentials.spans.shape[1]
    place = torch.arange(size, device=potentials.spans.device)
    best = place.view(1, -1, 1).repeat(len(potentials.spans), 1, size)
    for width, starts in _widths(size):
        best.diagonal(width, 1, 2).add_(potentials.splits(chart, width, starts).argmax(-1))
    return best


class SplitPosterior(NamedTuple):
    """Nodes that trees have with a probability worth having, in no order that matters."""

    document: Tensor  # [N]
    start: Tensor  # i, [N]
    split: Tensor  # k, [N]
    end: Tensor  # j, [N]
    probability: Tensor  # mu(i, k, j), [N]


def node_marginals(
    potentials: Potentials, sizes: Tensor, least: float = 0.0, chart: Chart | None = None
) -> SplitPosterior:
    """mu(i, k, j) = P(the tree has a node over i..j that is split after k), of all nodes above `least`.

    Args:
        potentials: the scores.
        sizes: EDUs of each document, [B].
        least: nodes of this probability or less are left out.
        chart: the `inside`, where it is known already.
    """
    found = []
    for width, _, splits in split_marginals(potentials, chart or inside(potentials), sizes):
        document, start, part = (splits > least).nonzero(as_tuple=True)
        found.append((document, start, start + part, start + width, splits[document, start, part]))
    if not found:  # documents of one EDU
        none = sizes.new_empty(0)
        return SplitPosterior(none, none, none, none, potentials.spans.new_empty(0))
    return SplitPosterior(*(torch.cat(column) for column in zip(*found)))


def best_trees(potentials: Potentials, sizes: Tensor) -> list[Tensor]:
    """The tree with the highest sum of node scores of every document (CKY); of equal ones, the earliest split.

    With the scores themselves this is the most probable tree; with span marginals as scores it is the tree with the
    most spans right in expectation (minimum Bayes risk).

    Args:
        potentials: the scores.
        sizes: EDUs of each document, [B].

    Returns:
        Nodes (start, split, end) of each document, a parent before its parts and the left part before the right,
        int64 [E - 1, 3] on the CPU.
    """
    spans = potentials.spans
    chart, choice = Chart.zeros(spans), torch.zeros(spans.shape, dtype=torch.int32, device=spans.device)
    for width, starts in _widths(spans.shape[1]):
        best, part = potentials.splits(chart, width, starts).max(-1)
        chart.put(width, best + spans.diagonal(width, 1, 2))
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

