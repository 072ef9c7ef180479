"""Labelled discourse distributions (LDD): bands, their one-byte form, and those of one tree or of chance.

An LDD is p(edu_i is the nucleus of edu_j under relation l). Its band of half-width b is a tensor [E, 2b + 1, R] whose
entry [i, b + d, l] is p(edu_i, edu_(i + d), l); the diagonal (d = 0) and what lies outside the document are zero.
"""

from typing import Literal

import torch
from torch import Tensor

Rows = Literal["side", "nucleus"]

# Ids of nuclearity: which of the two children of a node is a nucleus.
NUCLEARITIES = ("NS", "SN", "NN")
_LEFT_NUCLEUS, _RIGHT_NUCLEUS = (0, 2), (1, 2)


def inside(size: int, band: int) -> Tensor:
    """Where a band holds pairs of two EDUs of the document: bool [E, 2b + 1], False on the diagonal."""
    other = torch.arange(size)[:, None] + torch.arange(-band, band + 1)
    within = (other >= 0) & (other < size)
    within[:, band] = False
    return within


def to_dense(band: Tensor) -> Tensor:
    """The dense LDD of a band that reaches every pair: [E, 2b + 1, R] with b >= E - 1 -> [E, E, R].

    Raises:
        ValueError: if the band does not reach every pair.
    """
    size, half = band.shape[0], band.shape[1] // 2
    if half < size - 1:
        raise ValueError(f"a band of {half} EDUs to each side does not hold all pairs of {size} EDUs")
    offset = torch.arange(size) - torch.arange(size)[:, None] + half
    return band[torch.arange(size)[:, None], offset]


def resize(band: Tensor, half: int) -> Tensor:
    """A band cut, or filled up with zeros, to another half-width: [E, 2b + 1, R] -> [E, 2 half + 1, R]."""
    more = half - band.shape[1] // 2
    if more <= 0:
        return band[:, -more : band.shape[1] + more]
    return torch.nn.functional.pad(band, (0, 0, more, more))


def encode(p: Tensor) -> Tensor:
    """Probabilities in one byte, round(255 sqrt(p)), uint8: the error is at most sqrt(p) / 255 + 4e-6, and the smallest
    value beside zero 1.5e-5 (small probabilities matter where their logarithm is taken).

    Raises:
        ValueError: if a value is no probability.
    """
    if p.numel() and not (p.min() >= -1e-4 and p.max() <= 1 + 1e-4):  # so written, NaN fails too
        raise ValueError(f"an LDD holds probabilities, got values from {p.min():.4g} to {p.max():.4g}")
    return p.float().clamp(0, 1).sqrt().mul(255).round().to(torch.uint8)


def decode(code: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Probabilities of `encode`'s bytes, on their device."""
    return code.to(torch.float32).div_(255).square_().to(dtype)


def tree_ldd(
    tree: Tensor,
    size: int,
    relations: int,
    rows: Rows = "side",
    band: int | None = None,
    probability: Tensor | None = None,
) -> Tensor:
    """The LDD of one binary tree: 1 where edu_i is the nucleus of edu_j at their lowest common ancestor.

    With `side`, i lies on a nucleus side of that node; with `nucleus`, i's own leaf is a nucleus besides. Each node is
    named by its split; a pair's lowest common ancestor is the one with the longest span among the splits between the
    two, so one running maximum along the offset finds it for all pairs.

    Args:
        tree: nodes (start, split, end, nuclearity, relation) over EDUs start ... split and split + 1 ... end, inclusive
            as in `trees.Span`, [E - 1, 5].
        size: number of EDUs E.
        relations: number of relations R.
        rows: the reading of "only nucleus EDUs carry probability".
        band: half-width b; None is E - 1, that is every pair.
        probability: value of each node instead of 1, [E - 1].

    Returns:
        The band [E, 2b + 1, R], float32; of zeros and ones where no probabilities are given.

    Raises:
        ValueError: if the nodes are no binary tree over the EDUs.
    """
    tree = check_tree(tree, size, relations).long()
    band = max(0, size - 1) if band is None else band
    out = torch.zeros(size, 2 * band + 1, relations)
    reach = min(band, size - 1)
    if reach <= 0:
        return out
    by_split, value = torch.zeros(size - 1, 5, dtype=torch.long), torch.ones(size - 1)
    by_split[tree[:, 1]] = tree
    if probability is not None:
        value[tree[:, 1]] = probability.float()
    # the longest span wins, and its split is carried along; behind the document there are zeros
    key = (by_split[:, 2] - by_split[:, 0]) * size + torch.arange(size - 1)
    key = torch.cat([key, key.new_zeros(reach)])
    top = key.unfold(0, reach, 1)[: size - 1].cummax(1).values % size  # [E - 1, reach]: split of lca(i, i + 1 + column)
    first = torch.arange(size - 1)[:, None].expand(-1, reach)
    offset = torch.arange(1, reach + 1).expand(size - 1, -1)
    real = first + offset < size
    first, offset, node, value = first[real], offset[real], by_split[top[real]], value[top[real]]
    left, right = (torch.isin(node[:, 3], torch.tensor(ids)) for ids in (_LEFT_NUCLEUS, _RIGHT_NUCLEUS))
    out[first[left], band + offset[left], node[left, 4]] = value[left]
    out[(first + offset)[right], band - offset[right], node[right, 4]] = value[right]
    if rows == "nucleus":
        out *= nucleus_leaves(tree, size)[:, None, None]
    return out


def tree_gamma(tree: Tensor, size: int, rows: Rows = "side", probability: Tensor | None = None) -> Tensor:
    """gamma of one binary tree: the mean over all EDUs b of the sum over relations of `tree_ldd`'s p(a, b, l).

    An EDU of a nucleus side of a node is the nucleus of all EDUs of the node's other side.

    Args:
        tree, size, rows, probability: as in `tree_ldd`.

    Returns:
        [E], float32.
    """
    start, split, end, nuclearity = tree[:, :4].long().unbind(1)
    value = torch.ones(len(tree)) if probability is None else probability.float()
    total = torch.zeros(size + 1)  # differences along the EDUs
    for ids, first, last, others in (
        (_LEFT_NUCLEUS, start, split, end - split),
        (_RIGHT_NUCLEUS, split + 1, end, split + 1 - start),
    ):
        mass = others * value * torch.isin(nuclearity, torch.tensor(ids))            # [E - 1]
        total.index_add_(0, first, mass).index_add_(0, last + 1, mass, alpha=-1)
    gamma = total.cumsum(0)[:size] / max(1, size)
    return gamma * nucleus_leaves(tree, size) if rows == "nucleus" else gamma


def band_gamma(band: Tensor) -> Tensor:
    """gamma of each EDU as far as a band says: the sum over relations, a mean over the pairs that it holds, times
    (E - 1) / E for the EDU itself. Exact where the band reaches every pair: [E, 2b + 1, R] -> [E].
    """
    size = len(band)
    pairs = inside(size, band.shape[1] // 2).sum(1).clamp(min=1).to(band.device)
    return band.sum((1, 2)) / pairs * ((size - 1) / max(1, size))


def nucleus_leaves(tree: Tensor, size: int) -> Tensor:
    """Which EDUs are a nucleus of the node right above them: bool [E]; a single EDU is one."""
    nuclei = torch.ones(size, dtype=torch.bool)
    start, split, end, nuclearity = tree[:, :4].long().unbind(1)
    left, right = split == start, end == split + 1
    nuclei[start[left]] = torch.isin(nuclearity, torch.tensor(_LEFT_NUCLEUS))[left]
    nuclei[end[right]] = torch.isin(nuclearity, torch.tensor(_RIGHT_NUCLEUS))[right]
    return nuclei


def check_tree(tree: Tensor, size: int, relations: int) -> Tensor:
    """The same nodes, if they are a binary tree over EDUs 0 ... E - 1 (in any order).

    Raises:
        ValueError: if not, with the first node that is wrong.
    """
    if tree.shape != (max(0, size - 1), 5):
        raise ValueError(f"a binary tree over {size} EDUs has nodes [{max(0, size - 1)}, 5], got {list(tree.shape)}")
    start, split, end, nuclearity, relation = tree.long().unbind(1)
    wrong = (start < 0) | (start > split) | (split >= end) | (end >= size)
    wrong |= (nuclearity < 0) | (nuclearity >= len(NUCLEARITIES)) | (relation < 0) | (relation >= relations)
    if wrong.any():
        raise ValueError(f"node {tree[wrong][0].tolist()} of a tree over {size} EDUs and {relations} relations: wrong")
    if size > 1:
        # every span but the whole and the leaves is split by one node and a child of one: a tree
        split_spans = set(zip(start.tolist(), end.tolist()))
        children = [*zip(start.tolist(), split.tolist()), *zip((split + 1).tolist(), end.tolist())]
        wanted = {(0, size - 1), *(span for span in children if span[0] < span[1])}
        if len(set(children)) < len(children) or split_spans != wanted:
            odd = sorted(split_spans ^ wanted) or sorted(span for span in children if children.count(span) > 1)
            raise ValueError(f"the nodes are no binary tree over {size} EDUs; see the one over EDUs {odd[0]}")
    return tree


def random_ldd(size: int, band: int, relations: int, share: float = 1.0, seed: int = 0) -> Tensor:
    """Chance instead of discourse (the ablation RIA): a value in [0, 1) that depends on i, j, l and the seed alone, so
    that it is identical in every document and for every band.

    Args:
        size: number of EDUs E.
        band: half-width b.
        relations: number of relations R.
        share: share of values that are not zero.
        seed: of the values.

    Returns:
        The band [E, 2b + 1, R], float32, zero on the diagonal and outside the document.
    """
    code = _random_codes(size, band, relations, seed)  # [E, 2b + 1, R]
    values = _unit(code)
    if share < 1:
        values = values * (_unit(_scrambled(code + 1)) < share)
    return values * inside(size, band).unsqueeze(-1)


def random_draws(size: int, band: int, relations: int, seed: int = 0) -> Tensor:
    """What decides in `random_ldd` which values are zero: those whose draw is not below `share`, [E, 2b + 1, R]."""
    return _unit(_scrambled(_random_codes(size, band, relations, seed) + 1))


def _random_codes(size: int, band: int, relations: int, seed: int) -> Tensor:
    """32-bit numbers that depend on i, j, l and the seed, int64 [E, 2b + 1, R]."""
    i = torch.arange(size)[:, None, None]
    j = i + torch.arange(-band, band + 1)[:, None]
    code = _scrambled(_scrambled(_scrambled(torch.tensor(seed) + 1) + i) + j)
    return _scrambled(code + torch.arange(relations))


def _scrambled(x: Tensor) -> Tensor:
    """A bijection of 32-bit numbers whose every bit depends on every bit (multiply and shift)."""
    for shift, factor in ((16, 0x45D9F3B), (16, 0x45D9F3B), (16, 1)):
        x = x & 0xFFFFFFFF
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    return x


def _unit(code: Tensor) -> Tensor:
    """32-bit numbers to [0, 1), float32."""
    return (code >> 8).float() / 2**24
