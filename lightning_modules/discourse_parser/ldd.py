"""Labelled discourse distributions (LDD): p(a, b, l), the probability that EDU a is the nucleus of EDU b under l.

Every pair of EDUs has one lowest common ancestor in a tree, a node over i..j split after k with i <= a <= k < b <= j.
With mu(i, k, j, c) the probability of that node with class c (nuclearity and relation),

    p(a, b, l) = sum over i <= a <= k < b <= j of mu(i, k, j, l), classes in which the left part is a nucleus

for a < b, and with the right part for a > b. A node is the pair's lowest common ancestor if it contains both and none
of its two parts does. So p is the expected number of nodes that contain both, less that of their parts that do: one
prefix sum over a table of spans.

`rows` says which EDUs carry probability: `side`, as above, every EDU of a nucleus's side; `nucleus`, those that are
besides the nucleus of their own parent:

    p(a, b, l) = sum of mu(i, k, j, l) nu(i, k, a),   nu(i, k, a) = P(leaf a is a nucleus | span i..k), nu(a, a, a) = 1
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_modules.discourse_parser.chart import Chart, Potentials, SplitPosterior, inside, split_marginals

ROWS = ("side", "nucleus")


class LabelClasses(NamedTuple):
    """What the classes of a label scorer mean.

    Attributes:
        relation: index of each class's relation, [C].
        left: whether the left part is a nucleus (NS and NN), [C].
        right: whether the right part is a nucleus (SN and NN), [C].
        relations: number of relations R.
    """

    relation: Tensor
    left: Tensor
    right: Tensor
    relations: int

    @classmethod
    def of(cls, nuclearities: list[str], relations: list[int], count: int) -> "LabelClasses":
        """From each class's nuclearity, "NS", "SN" or "NN", and relation below `count`."""
        sides = [torch.tensor([name[side] == "N" for name in nuclearities], dtype=torch.bool) for side in (0, 1)]
        return cls(torch.tensor(relations, dtype=torch.int64), *sides, count)

    def restricted(self, labels: Tensor, side: Tensor) -> Tensor:
        """Probability of each relation in classes with a nucleus on that side: [N, C] -> [N, R]."""
        table = torch.zeros(len(self.relation), self.relations, dtype=labels.dtype, device=labels.device)
        table[torch.arange(len(side)), self.relation] = side.to(table)
        return labels @ table


def discourse_distribution(
    nodes: SplitPosterior, labels: Tensor, classes: LabelClasses, size: int, rows: str = "side"
) -> Tensor:
    """The distribution over one document's trees; of a single tree if its nodes have probability one.

    Args:
        nodes: the probable nodes of one document; `document` is not read.
        labels: P(class | node), [N, C].
        classes: what the classes are.
        size: EDUs E.
        rows: `side` or `nucleus`.

    Returns:
        p in double precision, zero on the diagonal, [E, E, R].

    Raises:
        ValueError: `rows` is neither of the two.
    """
    if rows not in ROWS:
        raise ValueError(f"rows={rows!r} is none of {', '.join(ROWS)}")
    nodes, labels = nodes._replace(probability=nodes.probability.double()), labels.double()
    joint = [classes.restricted(labels, side) for side in (classes.left, classes.right)]
    joint = [mass * nodes.probability.unsqueeze(1) for mass in joint]
    if rows == "side":
        before, after = (_holding_both(_of_nodes(nodes, mass, size)) for mass in joint)
    else:
        share = nucleus_leaves(nodes, labels, classes, size)
        before, after = (_by_leaf(nodes, mass, share, side, size) for side, mass in zip(("left", "right"), joint))
    return _joined(before, after)


def _joined(before: Tensor, after: Tensor) -> Tensor:
    """p from what holds where a < b, and where a > b, both [E, E, R]."""
    upper = torch.ones(before.shape[:2], dtype=torch.bool, device=before.device).triu(1).unsqueeze(-1)
    return (before * upper + after * upper.transpose(0, 1)).clamp_(0, 1)


def _of_nodes(nodes: SplitPosterior, mass: Tensor, size: int) -> Tensor:
    """Each span's mass as a node, less that of its parents: [N, R] -> [E, E, R]."""
    table = mass.new_zeros(size * size, mass.shape[1])
    table.index_add_(0, nodes.start * size + nodes.end, mass)
    table.index_add_(0, nodes.start * size + nodes.split, mass, alpha=-1)
    table.index_add_(0, (nodes.split + 1) * size + nodes.end, mass, alpha=-1)
    return table.view(size, size, -1)


def _holding_both(spans: Tensor) -> Tensor:
    """Sum over the spans that hold both a and b, whichever is first: [E (i), E (j), R] -> [E (a), E (b), R]."""
    both = spans.cumsum(0).flip(1).cumsum(1).flip(1)                                 # i <= first, j >= last
    upper = both * torch.ones(both.shape[:2], dtype=both.dtype, device=both.device).triu(1).unsqueeze(-1)
    return upper + upper.transpose(0, 1)


def span_masses(potentials: Potentials, sizes: Tensor, labels: Tensor, chart: Chart | None = None) -> Tensor:
    """Each span's labelled probability as a node, less that of its parents, where labels depend on spans alone.

    All nodes count, however improbable, without a list of them.

    Args:
        potentials: the scores.
        sizes: EDUs of each document, [B].
        labels: P(label | span), [B, E, E, L].
        chart: the `inside`, where it is known already.

    Returns:
        What `side_distribution` takes, in double precision, [B, E, E, L].
    """
    size, place = labels.shape[1], torch.arange(labels.shape[1], device=labels.device)
    masses = torch.zeros_like(labels, dtype=torch.double)
    parts = Chart.zeros(masses)
    for width, nodes, splits in split_marginals(potentials, chart or inside(potentials), sizes):
        starts = nodes.shape[1]
        of_width = labels[:, place[:starts], place[:starts] + width].double()        # [B, starts, L]
        masses[:, place[:starts], place[:starts] + width] += nodes.unsqueeze(-1) * of_width
        for part in parts.splits(width, starts):
            part += splits.unsqueeze(-1) * of_width.unsqueeze(2)                     # [B, starts, width, L]
    i, j = torch.ones(size, size, device=labels.device).triu().nonzero(as_tuple=True)
    masses[:, i, j] -= parts.left[:, i, j - i] + parts.right[:, j, size - 1 - (j - i)]
    return masses


def side_distribution(spans: Tensor, nodes: SplitPosterior, change: Tensor, classes: LabelClasses) -> Tensor:
    """The distribution of one document with `rows: side`, from all nodes with the labels of their spans, and from some
    nodes with labels of their own.

    Args:
        spans: `span_masses` with the relations of classes whose left part is a nucleus, then of those whose right part
            is, [E, E, 2 R].
        nodes: the nodes with labels of their own.
        change: P(class | node) less P(class | span), [N, C].
        classes: what the classes are.

    Returns:
        [E, E, R], in double precision.
    """
    both = []
    for table, side in zip(spans.chunk(2, -1), (classes.left, classes.right)):
        mass = classes.restricted(change.double(), side) * nodes.probability.double().unsqueeze(1)
        both.append(_holding_both(table + _of_nodes(nodes, mass, len(spans))))
    return _joined(*both)


def nucleus_leaves(nodes: SplitPosterior, labels: Tensor, classes: LabelClasses, size: int) -> Tensor:
    """nu(i, j, a): the probability that leaf a is the nucleus of its own parent, given that span i..j is in the tree.

    Args:
        nodes: the probable nodes of one document.
        labels: P(class | node), [N, C].
        classes: what the classes are.
        size: EDUs E.

    Returns:
        [E, E, E], one where i = j = a, zero where a lies outside.
    """
    nodes, labels = nodes._replace(probability=nodes.probability.double()), labels.double()
    leaves = torch.eye(size, dtype=labels.dtype, device=labels.device)
    share = labels.new_zeros(size, size, size)
    within = labels.new_zeros(size, size).index_put_((nodes.start, nodes.end), nodes.probability, accumulate=True)
    given = nodes.probability / within[nodes.start, nodes.end]
    width = nodes.end - nodes.start
    for w in range(1, size):                                                         # parts before wholes
        of_width = (width == w).nonzero().squeeze(1)
        if not len(of_width):
            continue
        start, split, end = (column[of_width] for column in (nodes.start, nodes.split, nodes.end))
        total = labels.new_zeros(len(of_width), size)
        for first, last, side in ((start, split, classes.left), (split + 1, end, classes.right)):
            nucleus = labels[of_width] @ side.to(labels)                             # [n]
            leaf = leaves[first] * nucleus.unsqueeze(1)
            total += torch.where((first == last).unsqueeze(1), leaf, share[first, last])
        share.view(-1, size).index_add_(0, start * size + end, total * given[of_width].unsqueeze(1))
    return share + leaves.unsqueeze(1) * leaves.unsqueeze(2)


def _by_leaf(nodes: SplitPosterior, mass: Tensor, share: Tensor, side: str, size: int) -> Tensor:
    """Sum of mu(i, k, j, l) nu(part of a, a) over the nodes whose other part holds b: [N, R] -> [E (a), E (b), R]."""
    parts = (nodes.start, nodes.split), (nodes.split + 1, nodes.end)
    own, other = parts if side == "left" else parts[::-1]
    relations = mass.shape[1]
    steps = mass.new_zeros(size + 1, size * relations)                               # differences along b
    rows_at_once = max(1, 2**22 // max(1, size * relations))
    for begin in range(0, len(mass), rows_at_once):
        some = slice(begin, begin + rows_at_once)
        leaf = share[own[0][some], own[1][some]]                                     # [n, E]
        weight = (leaf.unsqueeze(2) * mass[some].unsqueeze(1)).flatten(1)            # [n, E R]
        steps.index_add_(0, other[0][some], weight).index_add_(0, other[1][some] + 1, weight, alpha=-1)
    return steps.cumsum(0)[:size].unflatten(1, (size, relations)).transpose(0, 1)


def band_of(dense: Tensor, width: int) -> Tensor:
    """The pairs at most `width` EDUs apart: [E, E, R] -> [E, 2 width + 1, R], column width + b - a; zero outside."""
    size = len(dense)
    rows = torch.arange(size, device=dense.device).unsqueeze(1)
    columns = rows + torch.arange(-width, width + 1, device=dense.device)            # [E, 2 width + 1]
    inside = (columns >= 0) & (columns < size)
    return dense[rows, columns.clamp(0, size - 1)] * inside.unsqueeze(-1)


def chunked_gamma(blocks: list[Tensor], top: Tensor, nucleus: list[Tensor] | None) -> Tensor:
    """gamma(a) = (1 / E) sum over b and l of p(a, b, l), over all EDUs b of the document, however far apart.

    Args:
        blocks, top, nucleus: as in `banded`.

    Returns:
        [E].
    """
    sizes = top.new_tensor([len(block) for block in blocks])                         # [chunks]
    across = top.sum(-1) @ sizes                                                     # [chunks], to EDUs of other chunks
    parts = []
    for number, block in enumerate(blocks):
        share = 1 if nucleus is None else nucleus[number]
        parts.append(block.sum((1, 2)) + across[number] * share)
    return torch.cat(parts) / sizes.sum()


def banded(blocks: list[Tensor], top: Tensor, nucleus: list[Tensor] | None, width: int) -> Tensor:
    """The band of a long document that was parsed in chunks: a chart in every chunk, and a chart over the chunks.

    Pairs within a chunk have their chunk's p. The lowest common ancestor of two EDUs of different chunks is a node
    over chunks, so theirs is the chunks' p, times P(a is a nucleus leaf | a's chunk) with `rows: nucleus`.

    Args:
        blocks: p of every chunk, [E_c, E_c, R].
        top: p over the chunks, [chunks, chunks, R].
        nucleus: nu(chunk, a) of every chunk, [E_c]; None with `rows: side`.
        width: EDUs to each side.

    Returns:
        [E, 2 width + 1, R], column width + b - a.
    """
    sizes = torch.tensor([len(block) for block in blocks])
    chunk = torch.repeat_interleave(torch.arange(len(blocks)), sizes).to(top.device)  # [E]
    size = len(chunk)
    rows = torch.arange(size, device=top.device).unsqueeze(1)
    columns = rows + torch.arange(-width, width + 1, device=top.device)
    inside = (columns >= 0) & (columns < size)
    band = top[chunk.unsqueeze(1), chunk[columns.clamp(0, size - 1)]]                # [E, 2 width + 1, R]
    if nucleus is not None:
        band = band * torch.cat(nucleus).view(-1, 1, 1)
    band = band * inside.unsqueeze(-1)
    first = 0
    for block in blocks:
        # a chunk's pairs stand in its own rows and, where both EDUs are in it, in these columns
        own = slice(first, first + len(block))
        same = (columns[own] >= first) & (columns[own] < first + len(block))
        band[own] = torch.where(same.unsqueeze(-1), band_of(block, width), band[own])
        first += len(block)
    return band
