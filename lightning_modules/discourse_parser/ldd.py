"""Labeled discourse distributions (LDD): p(a, b, l), the probability that EDU a is the nucleus of EDU b under l.

Every pair of EDUs has one lowest common ancestor in a tree, a node over i..j split after k with i <= a <= k < b <= j.
With mu(i, k, j, c) the probability of that node with class c (nuclearity and relation),

    p(a, b, l) = sum over i <= a <= k < b <= j of mu(i, k, j, l), classes in which the left part is a nucleus

for a < b, and with the right part for a > b. A node is the pair's lowest common ancestor if it contains both and none
of its two parts does. So p is the expected number of nodes that contain both, minus the expected number of their
children that do: one prefix sum over a table of spans.

`rows` selects which EDUs carry probability: with `side`, as above, every EDU on the nucleus side of the node; with
`nucleus`, only those that are also a nucleus of their own parent:

    p(a, b, l) = sum of mu(i, k, j, l) nu(i, k, a),   nu(i, k, a) = P(leaf a is a nucleus | span i..k), nu(a, a, a) = 1
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_modules.discourse_parser.chart import Chart, Potentials, SplitPosterior, WidthMarginals, span_marginals

_WIDTHS = 32  # widths of spans whose children are summed together
_MAX_ENTRIES = 2**22  # of an intermediate tensor in double precision, 32 MiB


class LabelClasses(NamedTuple):
    """Nuclearity and relation of each class of a label scorer."""

    relation: Tensor  # index of each class's relation, [C]
    left: Tensor  # whether the left part is a nucleus (NS and NN), [C]
    right: Tensor  # whether the right part is a nucleus (SN and NN), [C]
    relations: int  # number of relations R

    @classmethod
    def of(cls, nuclearities: list[str], relations: list[int], count: int) -> "LabelClasses":
        """Build from the nuclearity ("NS", "SN" or "NN") and the relation index (below R = `count`) of each class."""
        left, right = (
            torch.tensor([nuclearity[side] == "N" for nuclearity in nuclearities], dtype=torch.bool) for side in (0, 1)
        )
        return cls(torch.tensor(relations, dtype=torch.int64), left, right, count)

    def agreement(self) -> Tensor:
        """Return how many of nuclearity, relation and class itself two classes have in common, 0 to 3, [C, C]."""
        nuclearity, class_index = 2 * self.left + self.right, torch.arange(len(self.relation))
        return sum((ids.unsqueeze(0) == ids.unsqueeze(1)).float() for ids in (self.relation, nuclearity, class_index))

    def restricted(self, labels: Tensor, side: Tensor) -> Tensor:
        """Sum probabilities by relation over classes where `side` (`left` or `right`) is True: [N, C] -> [N, R]."""
        is_counted = torch.zeros(len(self.relation), self.relations, dtype=labels.dtype, device=labels.device)
        is_counted[torch.arange(len(side)), self.relation] = side.to(is_counted)        # class by relation, [C, R]
        return labels @ is_counted


def nucleus_distribution(nodes: SplitPosterior, labels: Tensor, classes: LabelClasses, size: int) -> Tensor:
    """Return p(a, b, l) = P(EDU a is the nucleus of b under relation l) with `rows: nucleus`: double [E, E, R].

    EDU a is a nucleus of its own parent and in the nucleus of the lowest node over a and b, with relation l. There are
    N `nodes` over E = `size` EDUs; `labels`: P(class | node), [N, C].
    """
    nodes, labels = nodes._replace(probability=nodes.probability.double()), labels.double()
    # P(node with a relation whose left part is a nucleus), then the same for the right part, [N, R] each
    left_mass = classes.restricted(labels, classes.left) * nodes.probability.unsqueeze(1)
    right_mass = classes.restricted(labels, classes.right) * nodes.probability.unsqueeze(1)
    leaf_probs = nucleus_leaves(nodes, labels, classes, size)  # P(a is a nucleus of its parent | i..j), [E, E, E]
    before = _nucleus_triangle(nodes, left_mass, leaf_probs, "left", size)           # p(a, b, l) for a < b
    after = _nucleus_triangle(nodes, right_mass, leaf_probs, "right", size)          # p(a, b, l) for a > b
    return _join_triangles(before, after)


def _join_triangles(before: Tensor, after: Tensor) -> Tensor:
    """Combine p(a, b, l) for a < b with p(a, b, l) for a > b, [E, E, R] each, indexed by a and b; 0 for a = b."""
    upper = torch.ones(before.shape[:2], dtype=torch.bool, device=before.device).triu(1).unsqueeze(-1)
    return (before * upper + after * upper.transpose(0, 1)).clamp_(0, 1)  # sums may leave [0, 1] by rounding errors


def _span_table(nodes: SplitPosterior, mass: Tensor, size: int) -> Tensor:
    """Add each node's probability mass, [N, R], at its span and subtract it at both children's: a table [E, E, R]."""
    # so that a sum over the spans that contain two EDUs counts only those nodes that are their lowest common ancestor
    table = mass.new_zeros(size * size, mass.shape[1])
    table.index_add_(0, nodes.start * size + nodes.end, mass)  # the span itself
    table.index_add_(0, nodes.start * size + nodes.split, mass, alpha=-1)  # left child
    table.index_add_(0, (nodes.split + 1) * size + nodes.end, mass, alpha=-1)  # right child
    return table.view(size, size, -1)


def _sum_over_enclosing(spans: Tensor) -> Tensor:
    """Sum over the spans i..j that contain both a and b, in either order: [E (i), E (j), R] -> [E (a), E (b), R]."""
    enclosing = spans.cumsum(0).flip(1).cumsum(1).flip(1)  # the sum over i <= a and j >= b, at [a, b] with a < b
    is_upper = torch.ones(enclosing.shape[:2], dtype=enclosing.dtype, device=enclosing.device).triu(1)
    upper = enclosing * is_upper.unsqueeze(-1)
    return upper + upper.transpose(0, 1)


def span_masses(potentials: Potentials, marginals: list[WidthMarginals], labels: Tensor) -> Tensor:
    """Return P(span is a node, label) minus P(span is a child of a node, label of that node), [B, E, E, L].

    Summed over all spans that contain two EDUs, only nodes that are the lowest common ancestor of both remain. The L
    `labels` have probabilities of spans, [B, E, E, L], not of nodes, so that all nodes count, however improbable.
    """
    size, position = labels.shape[1], torch.arange(labels.shape[1], device=labels.device)
    masses = span_marginals(potentials, marginals).unsqueeze(-1) * labels
    children = Chart.zeros(masses)
    for first in range(0, len(marginals), _WIDTHS):
        block = marginals[first : first + _WIDTHS]  # of W widths, whose children are summed by one matrix product
        widest, narrowest = block[0].width, block[-1].width
        left = labels.new_zeros(len(labels), size - narrowest, len(block), widest)  # P(i, j, k) at [i, width, k - i]
        right = torch.zeros_like(left)  # at [j, width, k - j + widest], from j = `narrowest`
        for number, (width, nodes, splits) in enumerate(block):  # P(node and split), [B, starts, width]
            left[:, : nodes.shape[1], number, :width] = splits
            right[:, width - narrowest :, number, widest - width :] = splits
        widths = torch.arange(widest, narrowest - 1, -1, device=labels.device)
        start, end = position[: size - narrowest].unsqueeze(1), position[narrowest:].unsqueeze(1)
        # labels of the spans from each start, and to each end, [B, starts, W, L]; spans outside the text have no splits
        children.left[:, : len(start), :widest] += left.mT @ labels[:, start, (start + widths).clamp(max=size - 1)]
        children.right[:, narrowest:, size - widest :] += right.mT @ labels[:, (end - widths).clamp(min=0), end]
    i, j = torch.ones(size, size, device=labels.device).triu().nonzero(as_tuple=True)  # all spans i..j, i <= j
    masses[:, i, j] -= children.left[:, i, j - i] + children.right[:, j, size - 1 - (j - i)]  # as `Chart` stores i..j
    return masses


def side_distribution(spans: Tensor, nodes: SplitPosterior, change: Tensor, classes: LabelClasses) -> Tensor:
    """Return p(a, b, l) = P(EDU a is the nucleus of b under relation l) with `rows: side`, [E, E, R].

    EDU a is in the nucleus of the lowest node over a and b. All nodes get the class distribution of their span: `spans`
    are the `span_masses` of R relations with a nucleus on the left, then of R relations with a nucleus on the right,
    [E, E, 2 R]. For N `nodes` that were classified one by one, `change` adds P(class | node) - P(class | span), [N, C].
    """
    triangles = []  # p(a, b, l) for a < b, and for a > b
    for span_mass, side in zip(spans.chunk(2, -1), (classes.left, classes.right)):
        mass = classes.restricted(change, side) * nodes.probability.unsqueeze(1)     # [N, R]
        table = _span_table(nodes, mass, len(spans)).add_(span_mass)  # in place, since nothing else has the table
        triangles.append(_sum_over_enclosing(table))
    return _join_triangles(*triangles)


def nucleus_leaves(nodes: SplitPosterior, labels: Tensor, classes: LabelClasses, size: int) -> Tensor:
    """Return nu(i, j, a), the probability that EDU a is a nucleus of its parent if i..j is a node, [E, E, E].

    It is 1 where i = j = a, and 0 where a is outside i..j. `nodes` are over E = `size` EDUs; `labels`: P(class | node).
    """
    nodes, labels = nodes._replace(probability=nodes.probability.double()), labels.double()
    leaves = torch.eye(size, dtype=labels.dtype, device=labels.device)
    nu = labels.new_zeros(size, size, size)
    spans = nodes.start, nodes.end
    span_probs = labels.new_zeros(size, size).index_put_(spans, nodes.probability, accumulate=True)
    split_probs = nodes.probability / span_probs[spans]                              # P(split | span), [N]
    for width in range(1, size):  # children before their parents, whose nu is a sum over both children
        of_width = (nodes.end - nodes.start == width).nonzero().squeeze(1)  # indices of nodes of width + 1 EDUs, [n]
        if not len(of_width):
            continue
        start, split, end = (column[of_width] for column in (nodes.start, nodes.split, nodes.end))
        total = labels.new_zeros(len(of_width), size)  # probability that an EDU is a nucleus of its parent, [n, E]
        for first, last, side in ((start, split, classes.left), (split + 1, end, classes.right)):
            child_is_nucleus = labels[of_width] @ side.to(labels)              # P(child is a nucleus | node), [n]
            leaf_child = leaves[first] * child_is_nucleus.unsqueeze(1)               # if the child is one EDU, [n, E]
            total += torch.where((first == last).unsqueeze(1), leaf_child, nu[first, last])  # else nu of the child
        nu.view(-1, size).index_add_(0, start * size + end, total * split_probs[of_width].unsqueeze(1))  # sums splits
    return nu + leaves.unsqueeze(1) * leaves.unsqueeze(2)  # nu(a, a, a) = 1


def _nucleus_triangle(nodes: SplitPosterior, mass: Tensor, nu: Tensor, side: str, size: int) -> Tensor:
    """Sum mu(i, k, j, l) nu(nucleus, a) over nodes with a in the nucleus and b in the other part: [E (a), E (b), R].

    The nucleus is the part on a `side`, "left" or "right", and `mass` is mu = P(node i..j, split after k, relation l,
    this part is a nucleus), [N, R]; `nu` is P(a is a nucleus of its parent | span), see `nucleus_leaves`, [E, E, E].
    """
    parts = (nodes.start, nodes.split), (nodes.split + 1, nodes.end)                 # first and last EDUs, [N] each
    nucleus, other = parts if side == "left" else parts[::-1]
    relations = mass.shape[1]                                                        # R
    # a node adds the same weight for all b of its other part: it is added at the first b and subtracted after the last
    steps = mass.new_zeros(size + 1, size * relations)  # differences over b, [E (b) + 1, E (a) R]
    nodes_at_once = max(1, _MAX_ENTRIES // (size * relations))  # bounds memory
    for begin in range(0, len(mass), nodes_at_once):
        batch = slice(begin, begin + nodes_at_once)
        leaf_probs = nu[nucleus[0][batch], nucleus[1][batch]]                        # [n, E (a)]
        weight = (leaf_probs.unsqueeze(2) * mass[batch].unsqueeze(1)).flatten(1)     # [n, E (a) R]
        steps.index_add_(0, other[0][batch], weight)
        steps.index_add_(0, other[1][batch] + 1, weight, alpha=-1)
    return steps.cumsum(0)[:size].unflatten(1, (size, relations)).transpose(0, 1)  # sums: the values at each b


def extract_band(dense: Tensor, half_width: int) -> Tensor:
    """Return p of pairs at most `half_width` EDUs apart, as a band: [E, E, R] -> [E, 2 half_width + 1, R].

    In row a, column half_width + b - a holds p(a, b, l) for all relations l, zero for b outside the document.
    """
    size = len(dense)
    rows = torch.arange(size, device=dense.device).unsqueeze(1)
    columns = rows + torch.arange(-half_width, half_width + 1, device=dense.device)  # [E, 2 half_width + 1]
    inside = (columns >= 0) & (columns < size)
    return dense[rows, columns.clamp(0, size - 1)] * inside.unsqueeze(-1)


def chunked_gamma(blocks: list[Tensor], top: Tensor, nucleus: list[Tensor] | None) -> Tensor:
    """Return the importance of EDUs, gamma(a) = (1 / E) sum over b and l of p(a, b, l), [E]; see `chunked_band`."""
    sizes = top.new_tensor([len(block) for block in blocks])                         # EDUs of each chunk, [chunks]
    to_other_chunks = top.sum(-1) @ sizes  # for a in each chunk, sum of p(a, b, l) over b in other chunks, [chunks]
    sums = []
    for number, block in enumerate(blocks):
        leaf_probs = 1 if nucleus is None else nucleus[number]  # P(EDU is a nucleus of its parent), [E_c]
        sums.append(block.sum((1, 2)) + to_other_chunks[number] * leaf_probs)
    return torch.cat(sums) / sizes.sum()


def chunked_band(blocks: list[Tensor], top: Tensor, nucleus: list[Tensor] | None, half_width: int) -> Tensor:
    """Return p(a, b, l) = P(a is the nucleus of b under l) of a text in chunks, as a band, [E, 2 half_width + 1, R].

    Pairs within a chunk have the p of that chunk. The lowest common ancestor of two EDUs of different chunks is a node
    over chunks, so their p is that of the chunks; `rows: nucleus` multiplies it by P(a is a nucleus of its parent).

    Args:
        blocks: p within each chunk, of E_c EDUs, for R relations, [E_c, E_c, R].
        top: p over the chunks, [chunks, chunks, R].
        nucleus: for each chunk, the probability that an EDU is a nucleus of its parent, [E_c]; None with `rows: side`.
        half_width: maximum distance of a and b, whose p is at row a and column half_width + b - a.
    """
    sizes = torch.tensor([len(block) for block in blocks])
    chunk = torch.repeat_interleave(torch.arange(len(blocks)), sizes).to(top.device)  # chunk of each EDU, [E]
    size = len(chunk)
    edu_a = torch.arange(size, device=top.device).unsqueeze(1)                       # [E, 1]
    edu_b = edu_a + torch.arange(-half_width, half_width + 1, device=top.device)     # [E, 2 half_width + 1]
    inside = (edu_b >= 0) & (edu_b < size)
    band = top[chunk.unsqueeze(1), chunk[edu_b.clamp(0, size - 1)]]                  # [E, 2 half_width + 1, R]
    if nucleus is not None:
        band = band * torch.cat(nucleus).view(-1, 1, 1)
    band = band * inside.unsqueeze(-1)
    first = 0
    for block in blocks:  # overwrite the pairs of EDUs of the same chunk
        edus = slice(first, first + len(block))
        same_chunk = (edu_b[edus] >= first) & (edu_b[edus] < first + len(block))
        band[edus] = torch.where(same_chunk.unsqueeze(-1), extract_band(block, half_width), band[edus])
        first += len(block)
    return band
