"""Labelled discourse distributions (LDD): p(a, b, l), the probability that EDU a is the nucleus of EDU b under l.

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

ROWS = ("side", "nucleus")


class LabelClasses(NamedTuple):
    """Nuclearity and relation of each class of a label scorer."""

    relation: Tensor  # index of each class's relation, [C]
    left: Tensor  # whether the left part is a nucleus (NS and NN), [C]
    right: Tensor  # whether the right part is a nucleus (SN and NN), [C]
    relations: int  # number of relations R

    @classmethod
    def of(cls, nuclearities: list[str], relations: list[int], count: int) -> "LabelClasses":
        """Build from the nuclearity ("NS", "SN" or "NN") and the relation index (below `count`) of each class."""
        sides = [torch.tensor([name[side] == "N" for name in nuclearities], dtype=torch.bool) for side in (0, 1)]
        return cls(torch.tensor(relations, dtype=torch.int64), *sides, count)

    def agreement(self) -> Tensor:
        """Return how many of nuclearity, relation and class two classes have in common, [C, C]."""
        columns = self.relation, 2 * self.left + self.right, torch.arange(len(self.relation))
        return sum((column.unsqueeze(0) == column.unsqueeze(1)).float() for column in columns)

    def restricted(self, labels: Tensor, side: Tensor) -> Tensor:
        """Sum class probabilities by relation, over the classes with a nucleus on one side: [N, C] -> [N, R]."""
        table = torch.zeros(len(self.relation), self.relations, dtype=labels.dtype, device=labels.device)
        table[torch.arange(len(side)), self.relation] = side.to(table)
        return labels @ table


def discourse_distribution(
    nodes: SplitPosterior, labels: Tensor, classes: LabelClasses, size: int, rows: str = "side"
) -> Tensor:
    """Return p of one document in double precision, 0 on the diagonal, [E, E, R]; for one tree, all nodes have P = 1.

    The `nodes` are the probable ones of a document of E = `size` EDUs, `labels` are P(class | node), [N, C].

    Raises:
        ValueError: if `rows` is neither `side` nor `nucleus`.
    """
    if rows not in ROWS:
        raise ValueError(f"rows={rows!r} is none of {', '.join(ROWS)}")
    nodes, labels = nodes._replace(probability=nodes.probability.double()), labels.double()
    joint = [classes.restricted(labels, side) for side in (classes.left, classes.right)]
    joint = [mass * nodes.probability.unsqueeze(1) for mass in joint]
    # `before` holds p(a, b, l) for a < b, `after` for a > b
    if rows == "side":
        before, after = (_sum_over_enclosing(_span_table(nodes, mass, size)) for mass in joint)
    else:
        share = nucleus_leaves(nodes, labels, classes, size)
        before = _nucleus_triangle(nodes, joint[0], share, "left", size)
        after = _nucleus_triangle(nodes, joint[1], share, "right", size)
    return _join_triangles(before, after)


def _join_triangles(before: Tensor, after: Tensor) -> Tensor:
    """Combine p for a < b with p for a > b (indexed [b, a]), both [E, E, R]."""
    upper = torch.ones(before.shape[:2], dtype=torch.bool, device=before.device).triu(1).unsqueeze(-1)
    return (before * upper + after * upper.transpose(0, 1)).clamp_(0, 1)


def _span_table(nodes: SplitPosterior, mass: Tensor, size: int) -> Tensor:
    """Return the mass of each span as a node minus its mass as a child: [N, R] -> [E, E, R]."""
    table = mass.new_zeros(size * size, mass.shape[1])
    table.index_add_(0, nodes.start * size + nodes.end, mass)
    table.index_add_(0, nodes.start * size + nodes.split, mass, alpha=-1)
    table.index_add_(0, (nodes.split + 1) * size + nodes.end, mass, alpha=-1)
    return table.view(size, size, -1)


def _sum_over_enclosing(spans: Tensor) -> Tensor:
    """Sum over the spans that contain both a and b, in either order: [E (i), E (j), R] -> [E (a), E (b), R]."""
    enclosing = spans.cumsum(0).flip(1).cumsum(1).flip(1)                            # i <= first, j >= last
    is_upper = torch.ones(enclosing.shape[:2], dtype=enclosing.dtype, device=enclosing.device).triu(1)
    upper = enclosing * is_upper.unsqueeze(-1)
    return upper + upper.transpose(0, 1)


def span_masses(potentials: Potentials, marginals: list[WidthMarginals], labels: Tensor) -> Tensor:
    """Return labelled probabilities of spans as nodes minus those as children, for labels that depend only on spans.

    All nodes are included, however improbable, without listing them. `labels` are P(label | span), [B, E, E, L], as is
    the result, the `spans` argument of `side_distribution`.
    """
    size, position = labels.shape[1], torch.arange(labels.shape[1], device=labels.device)
    masses = span_marginals(potentials, marginals).unsqueeze(-1) * labels
    parts = Chart.zeros(masses)
    for width, nodes, splits in marginals:
        starts = nodes.shape[1]
        of_width = labels[:, position[:starts], position[:starts] + width]           # [B, starts, L]
        for part in parts.splits(width, starts):
            part.addcmul_(splits.unsqueeze(-1), of_width.unsqueeze(2))               # [B, starts, width, L]
    i, j = torch.ones(size, size, device=labels.device).triu().nonzero(as_tuple=True)
    masses[:, i, j] -= parts.left[:, i, j - i] + parts.right[:, j, size - 1 - (j - i)]
    return masses


def side_distribution(spans: Tensor, nodes: SplitPosterior, change: Tensor, classes: LabelClasses) -> Tensor:
    """Return the distribution of one document with `rows: side`, [E, E, R], in double precision.

    All nodes are included with the class distribution of their span (`span_masses` with the relations of classes whose
    left part is a nucleus, then of those whose right part is, [E, E, 2 R]). For the nodes whose own classes were
    scored, the change P(class | node) - P(class | span), [N, C], is added.
    """
    triangles = []
    for table, side in zip(spans.chunk(2, -1), (classes.left, classes.right)):
        mass = classes.restricted(change.double(), side) * nodes.probability.double().unsqueeze(1)
        triangles.append(_sum_over_enclosing(_span_table(nodes, mass, len(spans)).add_(table)))
    return _join_triangles(*triangles)


def nucleus_leaves(nodes: SplitPosterior, labels: Tensor, classes: LabelClasses, size: int) -> Tensor:
    """Return nu(i, j, a), the probability that EDU a is a nucleus of its parent if i..j is a node, [E, E, E].

    It is one where i = j = a, and zero where a is outside i..j. The arguments are those of `discourse_distribution`.
    """
    nodes, labels = nodes._replace(probability=nodes.probability.double()), labels.double()
    leaves = torch.eye(size, dtype=labels.dtype, device=labels.device)
    share = labels.new_zeros(size, size, size)
    within = labels.new_zeros(size, size).index_put_((nodes.start, nodes.end), nodes.probability, accumulate=True)
    conditional = nodes.probability / within[nodes.start, nodes.end]
    width = nodes.end - nodes.start
    for w in range(1, size):                                                         # children before parents
        of_width = (width == w).nonzero().squeeze(1)
        if not len(of_width):
            continue
        start, split, end = (column[of_width] for column in (nodes.start, nodes.split, nodes.end))
        total = labels.new_zeros(len(of_width), size)
        for first, last, side in ((start, split, classes.left), (split + 1, end, classes.right)):
            nucleus = labels[of_width] @ side.to(labels)                             # [n]
            leaf = leaves[first] * nucleus.unsqueeze(1)
            total += torch.where((first == last).unsqueeze(1), leaf, share[first, last])
        share.view(-1, size).index_add_(0, start * size + end, total * conditional[of_width].unsqueeze(1))
    return share + leaves.unsqueeze(1) * leaves.unsqueeze(2)


def _nucleus_triangle(nodes: SplitPosterior, mass: Tensor, share: Tensor, side: str, size: int) -> Tensor:
    """Sum mu(i, k, j, l) nu(part of a, a) over the nodes whose other part contains b: [N, R] -> [E (a), E (b), R]."""
    parts = (nodes.start, nodes.split), (nodes.split + 1, nodes.end)
    nucleus, satellite = parts if side == "left" else parts[::-1]
    relations = mass.shape[1]
    steps = mass.new_zeros(size + 1, size * relations)                               # differences along b
    rows_at_once = max(1, 2**22 // max(1, size * relations))
    for begin in range(0, len(mass), rows_at_once):
        chunk = slice(begin, begin + rows_at_once)
        leaf = share[nucleus[0][chunk], nucleus[1][chunk]]                                     # [n, E]
        weight = (leaf.unsqueeze(2) * mass[chunk].unsqueeze(1)).flatten(1)            # [n, E R]
        steps.index_add_(0, satellite[0][chunk], weight).index_add_(0, satellite[1][chunk] + 1, weight, alpha=-1)
    return steps.cumsum(0)[:size].unflatten(1, (size, relations)).transpose(0, 1)


def extract_band(dense: Tensor, half_width: int) -> Tensor:
    """Return the band of pairs at most `half_width` EDUs apart: [E, E, R] -> [E, 2 half_width + 1, R].

    Column half_width + b - a holds p(a, b), zero outside the document.
    """
    size = len(dense)
    rows = torch.arange(size, device=dense.device).unsqueeze(1)
    columns = rows + torch.arange(-half_width, half_width + 1, device=dense.device)  # [E, 2 half_width + 1]
    inside = (columns >= 0) & (columns < size)
    return dense[rows, columns.clamp(0, size - 1)] * inside.unsqueeze(-1)


def chunked_gamma(blocks: list[Tensor], top: Tensor, nucleus: list[Tensor] | None) -> Tensor:
    """Return gamma(a) = (1 / E) sum over EDUs b and relations l of p(a, b, l), [E]; arguments as in `chunked_band`."""
    sizes = top.new_tensor([len(block) for block in blocks])                         # [chunks]
    across = top.sum(-1) @ sizes                                                     # [chunks], to EDUs of other chunks
    parts = []
    for number, block in enumerate(blocks):
        share = 1 if nucleus is None else nucleus[number]
        parts.append(block.sum((1, 2)) + across[number] * share)
    return torch.cat(parts) / sizes.sum()


def chunked_band(blocks: list[Tensor], top: Tensor, nucleus: list[Tensor] | None, half_width: int) -> Tensor:
    """Return the LDD band of a document parsed in chunks, [E, 2 half_width + 1, R]; see `extract_band`.

    Pairs within a chunk have the p of that chunk. The lowest common ancestor of two EDUs of different chunks is a node
    over chunks, so their p is that of the two chunks, times P(a is a nucleus leaf | a's chunk) with `rows: nucleus`.

    Args:
        blocks: p of every chunk, [E_c, E_c, R].
        top: p over the chunks, [chunks, chunks, R].
        nucleus: nu(chunk, a) of every chunk, [E_c]; None with `rows: side`.
        half_width: number of EDUs to each side.
    """
    sizes = torch.tensor([len(block) for block in blocks])
    chunk = torch.repeat_interleave(torch.arange(len(blocks)), sizes).to(top.device)  # [E]
    size = len(chunk)
    rows = torch.arange(size, device=top.device).unsqueeze(1)
    columns = rows + torch.arange(-half_width, half_width + 1, device=top.device)
    inside = (columns >= 0) & (columns < size)
    band = top[chunk.unsqueeze(1), chunk[columns.clamp(0, size - 1)]]                # [E, 2 half_width + 1, R]
    if nucleus is not None:
        band = band * torch.cat(nucleus).view(-1, 1, 1)
    band = band * inside.unsqueeze(-1)
    first = 0
    for block in blocks:
        # the pairs of a chunk are in the rows of its EDUs and, where both EDUs are in it, in these columns
        edus = slice(first, first + len(block))
        same_chunk = (columns[edus] >= first) & (columns[edus] < first + len(block))
        band[edus] = torch.where(same_chunk.unsqueeze(-1), extract_band(block, half_width), band[edus])
        first += len(block)
    return band
