"""Additive attention with coverage, in memory independent of the size of its tanh layer."""

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lightning_modules.networks.output_layer import upcast_half

# elements of the tanh layer computed at once: 512 KB fit into a CPU's caches, 1 GB keeps a GPU busy
PART_ELEMENTS = {"cpu": 2**17, "cuda": 2**28}


class _AdditiveEnergy(torch.autograd.Function):
    """Energies v^T tanh(projected + query + coverage w_c); the backward pass computes the tanh again to save memory.

    Shapes: projected [B, S, A], query [B, K, A], coverage [B, K, S] or None, w_c and v [A] -> energies [B, K, S].
    """

    @staticmethod
    def activation(projected: Tensor, query: Tensor, coverage: Tensor | None, w_c: Tensor, out: Tensor) -> Tensor:
        """Compute tanh(x), or sigmoid(2x) where faster (on CPUs), at x = projected + query + coverage w_c, in `out`.

        For b documents and k summaries of each: [b, S, A], [b, k, A], [b, k, S] or None, [A] -> [b, k, S, A].
        """
        scale = 2 if _uses_sigmoid(query) else 1  # the factor of x
        layer = torch.add(scale * query.unsqueeze(2), projected.unsqueeze(1), alpha=scale, out=out)  # [b, k, S, A]
        if coverage is not None:
            layer.addcmul_(coverage.unsqueeze(-1).to(layer.dtype), w_c.to(layer.dtype), value=scale)
        return layer.sigmoid_() if _uses_sigmoid(query) else layer.tanh_()

    @staticmethod
    def forward(ctx, projected: Tensor, query: Tensor, coverage: Tensor | None, w_c: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(projected, query, coverage, w_c, v)
        energy = query.new_empty(*query.shape[:2], projected.shape[1])                       # [B, K, S]
        v = v.to(query.dtype)
        for b, k, layer in _batch_slices(projected, query):  # of documents and their summaries, to bound its size
            part_coverage = None if coverage is None else coverage[b, k]
            energy[b, k] = _AdditiveEnergy.activation(projected[b], query[b, k], part_coverage, w_c, layer) @ v
        # if `activation` returned sigmoid(2x): tanh(x) = 2 sigmoid(2x) - 1, so v^T tanh(x) = 2 v^T sigmoid(2x) - sum v
        return energy.mul_(2).sub_(v.sum()) if _uses_sigmoid(query) else energy

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_energy: Tensor):
        """Return the gradients of all arguments of `forward`, given the gradient of the energies, [B, K, S]."""
        projected, query, coverage, w_c, v = ctx.saved_tensors
        grad_projected = torch.zeros_like(projected)
        grad_query = torch.empty_like(query)
        grad_v = torch.zeros_like(v)
        grad_energy, v = grad_energy.to(query.dtype), v.to(query.dtype)
        grad_coverage = None if coverage is None else torch.empty_like(coverage)
        grad_w_c = None if coverage is None else torch.zeros_like(w_c)
        one = query.new_ones(())  # 1 as a tensor, which `addcmul` takes
        for b, k, layer in _batch_slices(projected, query):  # of documents and their summaries
            part_coverage = None if coverage is None else coverage[b, k]
            inner = _AdditiveEnergy.activation(projected[b], query[b, k], part_coverage, w_c, layer)  # [b, k, S, A]
            if _uses_sigmoid(query):  # from sigmoid(2x) to tanh(x) = 2 sigmoid(2x) - 1, in one pass
                torch.add(-one, inner, alpha=2, out=inner)
            grad_v += torch.mv(inner.flatten(0, 2).T, grad_energy[b, k].flatten())
            # from tanh to (1 - tanh^2) times the gradient; the factor v follows after the sums, on smaller tensors
            torch.addcmul(one, inner, inner, value=-1, out=inner).mul_(grad_energy[b, k].unsqueeze(-1))
            grad_query[b, k] = inner.sum(2) * v
            grad_projected[b].addcmul_(inner.sum(1) if inner.shape[1] > 1 else inner.squeeze(1), v)  # no copy if k = 1
            if coverage is not None:
                grad_coverage[b, k] = inner @ (w_c.to(v.dtype) * v)
                grad_w_c += torch.mv(inner.flatten(0, 2).T, part_coverage.flatten().to(v.dtype)) * v
        return grad_projected, grad_query, grad_coverage, grad_w_c, grad_v


def _uses_sigmoid(query: Tensor) -> bool:
    """Return whether tanh(x) is computed as 2 sigmoid(2x) - 1, with an error of 1e-7."""
    # MKL's tanh takes 6 times as long on AMD processors, 0.7 times on Intel's; half precision would lose digits near 0
    return query.device.type == "cpu" and query.dtype not in (torch.float16, torch.bfloat16)


def _batch_slices(projected: Tensor, query: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield slices, of b documents and k summaries, whose tanh layer fits into `PART_ELEMENTS`, and a buffer for it.

    `projected` is [B, S, A], `query` [B, K, A]. All slices share the buffer, [b, k, S, A], which takes 0.86 times the
    time on a CPU. If the K summaries of a document do not fit, b = 1, and k >= 1.
    """
    (B, K, A), S = query.shape, projected.shape[1]
    max_elements = PART_ELEMENTS.get(query.device.type, PART_ELEMENTS["cuda"])  # other accelerators like a GPU
    max_summaries = max_elements // max(1, S * A)  # S may be 0
    num_documents = max(1, min(B, max_summaries // K))  # of a slice
    num_summaries = max(1, min(K, max_summaries))
    layer = query.new_empty(num_documents, num_summaries, S, A, dtype=torch.result_type(query, projected))
    starts = product(range(0, B, num_documents), range(0, K, num_summaries))  # first document and summary of each
    for b, k in starts:  # the last slices may be smaller
        yield slice(b, b + num_documents), slice(k, k + num_summaries), layer[: B - b, : K - k]


class CoverageAttention(nn.Module):
    """Additive (Bahdanau) attention with coverage.

    Equations 1, 2 and 11 of See et al. 2017 (arXiv 1704.04368), of encoder states h_i, decoder state d, coverage c_i:

        e_i = v^T tanh(W_h h_i + W_s d + b + w_c c_i),    a = softmax(e)

    The projection W_h h does not depend on the decoder state, so the caller computes it once per document (`project`)
    and passes it to every step. `memory_size`, `query_size` and `hidden_size` are the widths of h, d and tanh(...).
    """

    def __init__(self, memory_size: int, query_size: int, hidden_size: int, coverage: bool = True) -> None:
        super().__init__()
        self.project = nn.Linear(memory_size, hidden_size, bias=False)  # W_h
        self.query = nn.Linear(query_size, hidden_size)  # W_s and b
        self.coverage = nn.Parameter(torch.empty(hidden_size)) if coverage else None  # w_c
        self.score = nn.Parameter(torch.empty(hidden_size))  # v
        for vector in (self.coverage, self.score):
            if vector is not None:
                nn.init.xavier_uniform_(vector.data.view(1, -1))  # as a matrix, because Xavier needs two dimensions

    def forward(
        self, query: Tensor, projected: Tensor, mask: Tensor, coverage: Tensor | None, gate: float = 1.0
    ) -> Tensor:
        """Return the attention weights of one decoder step, for K summaries of each document: [B, K, S], float32 or 64.

        Args:
            query, projected: decoder states d, [B, K, query_size]; W_h h from `project`, [B, S, hidden_size].
            mask: True at tokens, [B, S]; every row has at least one.
            coverage: sum of the weights of all previous steps, [B, K, S]; None for a layer without coverage.
            gate: 1 to use coverage, 0 to ignore it (w_c then gets a zero gradient).
        """
        query = self.query(query)                                        # W_s d + b, [B, K, A], A = `hidden_size`
        if self.coverage is None or gate == 0:
            gated_coverage, w_c = None, self.score  # w_c is not read then, so any tensor will do
        else:
            gated_coverage, w_c = coverage * gate, self.coverage
        energy = _AdditiveEnergy.apply(projected, query, gated_coverage, w_c, self.score)    # [B, K, S]
        energy = upcast_half(energy)  # softmax in half precision is too coarse
        if self.coverage is not None and gate == 0:
            energy = energy + 0 * self.coverage.sum()  # no effect, but DDP needs w_c in the graph
        return energy.masked_fill(~mask.unsqueeze(1), float("-inf")).softmax(-1)
