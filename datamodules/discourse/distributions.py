"""Labeled discourse distributions (LDD): bands, one-byte encoding, LDDs of single trees and random LDDs.

An LDD is p(edu_i is the nucleus of edu_j under relation l). Its band of half-width b is a tensor [E, 2b + 1, R] whose
entry [i, b + d, l] is p(edu_i, edu_(i + d), l); the diagonal (d = 0) and pairs outside the document are zero.
"""

from typing import Literal

import torch
from torch import Tensor

from datamodules.discourse.trees import Node, Tree

Rows = Literal["side", "nucleus"]

ROUNDING = 1e-4  # largest error of a probability, or of a mean of probabilities, that is clamped instead of reported
# Ids of nuclearity: which of the two children of a node is a nucleus.
NUCLEARITIES = ("NS", "SN", "NN")
_NS, _SN = 0, 1


def inside(size: int, band: int) -> Tensor:
    """Return the mask [E, 2b + 1] of a band, b = `band`: [i, b + d] is True if d is not 0 and EDU i + d exists."""
    column_edu = torch.arange(size)[:, None] + torch.arange(-band, band + 1)  # j = i + d, [E, 2b + 1]
    is_pair = (column_edu >= 0) & (column_edu < size)
    is_pair[:, band] = False  # the diagonal, d = 0
    return is_pair


def to_dense(band: Tensor) -> Tensor:
    """Expand a band of R relations to all pairs of E EDUs, [E, 2b + 1, R] -> [E, E, R]; ValueError if b < E - 1."""
    size, half_width = band.shape[0], band.shape[1] // 2
    if half_width < size - 1:
        raise ValueError(f"a band of {half_width} EDUs to each side does not include all pairs of {size} EDUs")
    i = torch.arange(size)[:, None]
    return band[i, torch.arange(size) - i + half_width]  # column of each pair (i, j) in the band, [E, E]


def resize(band: Tensor, half_width: int) -> Tensor:
    """Truncate or zero-pad the band of E EDUs and R relations: [E, 2b + 1, R] -> [E, 2 half_width + 1, R]."""
    extra = half_width - band.shape[1] // 2  # columns to add on each side, or to remove if negative
    return torch.nn.functional.pad(band, (0, 0, extra, extra))  # dimension R by 0, columns by `extra`


def encode(p: Tensor) -> Tensor:
    """Encode probabilities in one byte, round(255 sqrt(p)), uint8.

    Rounding causes an error of at most sqrt(p) / 255 + 1 / 510^2. The square root makes the steps between small
    probabilities small (the smallest positive value is 1.5e-5), since models may use their logarithm.

    Raises:
        ValueError: if a value is not a probability, apart from an error of at most `ROUNDING`.
    """
    if p.numel() and not (p.min() >= -ROUNDING and p.max() <= 1 + ROUNDING):  # this form also rejects NaN
        raise ValueError(f"an LDD holds probabilities, got values from {p.min():.4g} to {p.max():.4g}")
    return p.float().clamp(0, 1).sqrt().mul(255).round().to(torch.uint8)


def decode(code: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Decode the bytes of `encode`, on their device."""
    return code.to(torch.float32).div_(255).square_().to(dtype)


def tree_ldd(
    tree: Tensor, size: int, relations: int, rows: Rows = "side", band: int | None = None,
    probability: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the labeled discourse distribution (LDD) of one binary tree.

    It is 1 where edu_i is the nucleus of edu_j at their lowest common ancestor. A node is identified by its split s,
    the last EDU of its left child. The lowest common ancestor of EDUs i < j is the node with the longest span among
    those with i <= s < j, so one cumulative maximum over j finds it for all pairs.

    Args:
        tree: nodes (start, split, end, nuclearity, relation) over EDUs start ... split and split + 1 ... end, inclusive
            as in `trees.Span`, [E - 1, 5].
        size: number of EDUs E.
        relations: number of relations R.
        rows: which EDUs i carry probability: with `side`, those on a nucleus side of the lowest common ancestor; with
            `nucleus`, only those that are also a nucleus of their own parent.
        band: half-width b; E - 1 by default, which includes every pair.
        probability: value of each node instead of 1, [E - 1].

    Returns:
        The band, p(edu_i, edu_j, l) in [i, b + j - i, l], float32 [E, 2b + 1, R]; 0 and 1 without `probability`.

    Raises:
        ValueError: if the nodes are not a binary tree over the EDUs.
    """
    tree = check_tree(tree, size, relations).long()
    band = max(0, size - 1) if band is None else band
    ldd = torch.zeros(size, 2 * band + 1, relations)  # [E, 2b + 1, R]
    reach = min(band, size - 1)  # largest distance j - i
    if reach <= 0:
        return ldd
    by_split = torch.zeros(size - 1, 5, dtype=torch.long)  # node of each split, [E - 1, 5]
    by_split[tree[:, 1]] = tree
    value = torch.ones(size - 1)  # of the node of each split, [E - 1]
    if probability is not None:
        value[tree[:, 1]] = probability.float()
    # A maximum of these numbers selects the longest span, and modulo `size` gives the split of this node.
    length_and_split = (by_split[:, 2] - by_split[:, 0]) * size + torch.arange(size - 1)
    padded = torch.cat([length_and_split, length_and_split.new_zeros(reach)])  # no pair uses the padding
    windows = padded.unfold(0, reach, 1)[: size - 1]  # the splits i, i + 1, ... in row i, [E - 1, reach]
    ancestor = windows.cummax(1).values % size  # split of the ancestor of i and j = i + 1 + column, [E - 1, reach]
    i = torch.arange(size - 1)[:, None].expand(-1, reach)
    distance = torch.arange(1, reach + 1).expand(size - 1, -1)  # j - i
    is_pair = i + distance < size
    i, distance, ancestor = i[is_pair], distance[is_pair], ancestor[is_pair]  # each [pairs]
    nuclearity, relation = by_split[ancestor, 3], by_split[ancestor, 4]  # each [pairs]
    value = value[ancestor]  # [pairs]
    left = nuclearity != _SN  # whether EDU i is the nucleus
    right = nuclearity != _NS  # whether EDU j is; both with NN
    ldd[i[left], band + distance[left], relation[left]] = value[left]  # p(i, j, relation)
    ldd[(i + distance)[right], band - distance[right], relation[right]] = value[right]  # p(j, i, relation)
    if rows == "nucleus":
        ldd *= nucleus_leaves(tree, size)[:, None, None]
    return ldd


def tree_gamma(tree: Tensor, size: int, rows: Rows = "side", probability: Tensor | None = None) -> Tensor:
    """Return gamma of each EDU a, (1 / E) sum of p(a, b, l) over EDUs b and relations l, with `tree_ldd` as p, [E]."""
    start, split, end, nuclearity = tree[:, :4].long().unbind(1)  # each [E - 1]
    value = torch.ones(len(tree)) if probability is None else probability.float()  # of each node, [E - 1]
    change = torch.zeros(size + 1)  # sum of p(a, b, l) minus that of EDU a - 1; `cumsum` gives the sums
    # An EDU on a nucleus side of a node is the nucleus of all EDUs on the other side.
    for is_nucleus, first, last, sibling_size in (  # whether a child is a nucleus, its EDUs, size of its sibling
        (nuclearity != _SN, start, split, end - split),
        (nuclearity != _NS, split + 1, end, split + 1 - start),
    ):
        mass = sibling_size * value * is_nucleus  # for EDUs first ... last, [E - 1]
        change.index_add_(0, first, mass).index_add_(0, last + 1, mass, alpha=-1)
    gamma = change.cumsum(0)[:size] / size
    return gamma * nucleus_leaves(tree, size) if rows == "nucleus" else gamma  # 0 for satellites


def band_gamma(band: Tensor) -> Tensor:
    """Estimate gamma of EDUs (importance as nuclei, `tree_gamma`) from a band p of R relations: [E, 2b + 1, R] -> [E].

    The estimate is the sum of p over relations, averaged over the pairs of an EDU in the band, times (E - 1) / E, since
    gamma divides the sum over E - 1 other EDUs by E. It is exact if the band includes every pair.
    """
    size = len(band)
    num_pairs = inside(size, band.shape[1] // 2).sum(1).clamp(min=1).to(band.device)  # [E]; 0 for a single EDU
    return band.sum((1, 2)) / num_pairs * ((size - 1) / size)


def nucleus_leaves(tree: Tensor, size: int) -> Tensor:
    """Return the mask of the `size` EDUs that are a nucleus of their parent, bool [E]; True for a single EDU."""
    is_nucleus = torch.ones(size, dtype=torch.bool)
    start, split, end, nuclearity = tree[:, :4].long().unbind(1)  # each [E - 1]
    left_leaf, right_leaf = split == start, end == split + 1  # left child: start ... split; True if it is a single EDU
    is_nucleus[start[left_leaf]] = nuclearity[left_leaf] != _SN  # NS or NN
    is_nucleus[end[right_leaf]] = nuclearity[right_leaf] != _NS  # SN or NN
    return is_nucleus


def check_tree(tree: Tensor, size: int, relations: int) -> Tensor:
    """Return nodes unchanged; ValueError unless they are a binary tree of `size` EDUs with ids below `relations`."""
    num_nodes = max(0, size - 1)
    if tree.shape != (num_nodes, 5):
        raise ValueError(f"a binary tree over {size} EDUs has nodes [{num_nodes}, 5], got {list(tree.shape)}")
    start, split, end, nuclearity, relation = tree.long().unbind(1)  # left child: EDUs start ... split
    invalid = (start < 0) | (start > split) | (split >= end) | (end >= size)
    invalid |= (nuclearity < 0) | (nuclearity >= len(NUCLEARITIES)) | (relation < 0) | (relation >= relations)
    if invalid.any():
        node = tree[invalid][0].tolist()
        raise ValueError(f"node {node} of a tree over {size} EDUs and {relations} relations is invalid")
    nodes = [Node.of((start, split + 1), end, "NN", "") for start, split, end, _, _ in tree.tolist()]
    Tree(size, tuple(nodes))  # raises a TreeError, which is a ValueError, if they are not nested as a tree
    return tree


def random_ldd(size: int, band: int, relations: int, seed: int = 0) -> Tensor:
    """Return a random labeled discourse distribution p(i, j, l) for |j - i| <= b, float32 [E, 2b + 1, R].

    It is 0 for i = j and j outside the E EDUs. Others, in [0, 1), depend only on i, j, l and the seed, not on E or b.
    """
    i = torch.arange(size)[:, None, None]  # [E, 1, 1]
    j = i + torch.arange(-band, band + 1)[:, None]  # [E, 2b + 1, 1]
    pairs = _mix_bits(_mix_bits(_mix_bits(torch.tensor(seed) + 1) + i) + j)  # hash of (seed, i, j); + 1: 0 has hash 0
    hashes = _mix_bits(pairs + torch.arange(relations))  # [E, 2b + 1, R], 32 bits
    values = (hashes >> 8).float() / 2**24  # the upper 24 bits, which float32 represents exactly
    return values * inside(size, band).unsqueeze(-1)


def _mix_bits(x: Tensor) -> Tensor:
    """Hash 32-bit integers bijectively: in each round, xor with the upper half and multiply by an odd number."""
    for factor in (0x45D9F3B, 0x45D9F3B, 1):  # two rounds of a common hash constant, then only the xor
        x = x & 0xFFFFFFFF  # also for negative numbers
        x = ((x ^ (x >> 16)) * factor) & 0xFFFFFFFF
    return x
