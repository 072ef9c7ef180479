"""Additive attention with coverage, without keeping its hidden layer."""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# elements of the tanh layer alive at once: 512 KB stay in a CPU's caches, 1 GB fills a GPU
PART_ELEMENTS = {"cpu": 2**17, "cuda": 2**28}


def tanh_(x: Tensor) -> Tensor:
    """tanh in place. On a CPU as 2 sigmoid(2x) - 1, which errs by 1e-7 and is three times as fast or more: PyTorch has
    a vector loop for sigmoid, but for tanh calls a library that is slow on some processors. Half precision is
    finer near 0 than near 1, so it keeps tanh."""
    if x.device.type != "cpu" or x.dtype in (torch.float16, torch.bfloat16):
        return x.tanh_()
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)


class _AdditiveEnergy(torch.autograd.Function):
    """v^T tanh(projected + query + coverage w_c) that stores its inputs and recomputes the tanh layer in the backward
    pass: autograd would keep one [B, K, S, A] tensor for every decoder step."""

    @staticmethod
    def hidden(
        projected: Tensor, query: Tensor, coverage: Tensor | None, w_c: Tensor, out: Tensor | None = None
    ) -> Tensor:
        layer = torch.add(projected.unsqueeze(1), query.unsqueeze(2), out=out)       # [b, k, S, A]
        if coverage is not None:
            layer.addcmul_(coverage.unsqueeze(-1).to(layer.dtype), w_c.to(layer.dtype))
        return tanh_(layer)

    @staticmethod
    def forward(ctx, projected: Tensor, query: Tensor, coverage: Tensor | None, w_c: Tensor, v: Tensor) -> Tensor:
        ctx.has_coverage = coverage is not None
        ctx.save_for_backward(projected, query, *([coverage] if ctx.has_coverage else []), w_c, v)
        energy, v = query.new_empty(*query.shape[:2], projected.shape[1]), v.to(query.dtype)
        layer = None
        for b, k in _parts(projected, query):
            seen = coverage[b, k] if ctx.has_coverage else None
            if layer is not None and layer.shape[:2] != query[b, k].shape[:2]:
                layer = None  # the last part may be smaller; otherwise one buffer serves them all
            layer = _AdditiveEnergy.hidden(projected[b], query[b, k], seen, w_c, layer)
            energy[b, k] = layer @ v
        return energy                                                                # [B, K, S]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        projected, query, *middle, w_c, v = ctx.saved_tensors
        grad, weight = grad.to(query.dtype), v.to(query.dtype)
        grad_projected, grad_query, grad_v = torch.zeros_like(projected), torch.empty_like(query), torch.zeros_like(v)
        grad_coverage, grad_w_c = (torch.empty_like(middle[0]), torch.zeros_like(w_c)) if middle else (None, None)
        for b, k in _parts(projected, query):
            seen = middle[0][b, k] if middle else None
            inner = _AdditiveEnergy.hidden(projected[b], query[b, k], seen, w_c)     # [b, k, S, A]
            grad_v += torch.mv(inner.flatten(0, 2).T, grad[b, k].flatten())
            # d tanh = 1 - tanh^2; v follows where it is cheap
            inner.square_().neg_().add_(1).mul_(grad[b, k].unsqueeze(-1))
            grad_query[b, k] = inner.sum(2) * weight
            grad_projected[b].addcmul_(inner.sum(1) if inner.shape[1] > 1 else inner.squeeze(1), weight)
            if middle:
                grad_coverage[b, k] = inner @ (w_c.to(weight.dtype) * weight)
                grad_w_c += torch.mv(inner.flatten(0, 2).T, seen.flatten().to(weight.dtype)) * weight
        return grad_projected, grad_query, grad_coverage, grad_w_c, grad_v


def _parts(projected: Tensor, query: Tensor) -> list[tuple[slice, slice]]:
    """Documents and summaries of [B, K, A] that are computed together: as many documents as `PART_ELEMENTS` allow, and
    of a document that is too large by itself as many summaries."""
    B, K, A = query.shape
    room = PART_ELEMENTS.get(query.device.type, PART_ELEMENTS["cuda"]) // max(1, projected.shape[1] * A)  # summaries
    documents, summaries = max(1, min(B, room // K)), max(1, min(K, room))
    return [
        (slice(b, b + documents), slice(k, k + summaries))
        for b in range(0, B, documents)
        for k in range(0, K, summaries)
    ]


class CoverageAttention(nn.Module):
    """Bahdanau attention that sees what it has attended to before.

    Equations 1, 2 and 11 of See et al. 2017 (arXiv 1704.04368):

        e_i = v^T tanh(W_h h_i + W_s d + b + w_c c_i),    a = softmax(e)

    The projection W_h h does not depend on the decoder, so it is computed once a document (`project`) and passed back
    in at every step.

    Args:
        memory_size: width of the encoder states h.
        query_size: width of the decoder state d.
        hidden_size: width of the tanh layer.
        coverage: whether there is a w_c.
    """

    def __init__(self, memory_size: int, query_size: int, hidden_size: int, coverage: bool = True) -> None:
        super().__init__()
        self.project = nn.Linear(memory_size, hidden_size, bias=False)
        self.query = nn.Linear(query_size, hidden_size)
        self.coverage = nn.Parameter(torch.empty(hidden_size)) if coverage else None
        self.score = nn.Parameter(torch.empty(hidden_size))
        for vector in (self.coverage, self.score):
            if vector is not None:
                nn.init.xavier_uniform_(vector.data.view(1, -1))

    def forward(
        self, query: Tensor, projected: Tensor, mask: Tensor, coverage: Tensor | None, gate: float = 1.0
    ) -> Tensor:
        """Attention of one decoder step, for K summaries of each of B documents.

        Args:
            query: decoder state d, [B, K, query_size].
            projected: W_h h, [B, S, hidden_size].
            mask: True at real tokens, [B, S]; every row has one.
            coverage: sum of the attention so far, [B, K, S]; not read by a layer without coverage, None will do there.
            gate: 0 leaves coverage out (w_c keeps a gradient of zero), 1 lets it in.

        Returns:
            Weights that sum to one over the real tokens, [B, K, S], in float32 or wider.
        """
        query = self.query(query)                                                    # [B, K, A]
        seen, w_c = (None, self.score) if self.coverage is None or gate == 0 else (coverage * gate, self.coverage)
        energy = _AdditiveEnergy.apply(projected, query, seen, w_c, self.score)      # [B, K, S]
        energy = energy if energy.dtype == torch.float64 else energy.float()
        if self.coverage is not None and gate == 0:
            energy = energy + 0 * self.coverage.sum()  # the closed gate: in the graph for DDP, without an effect
        return energy.masked_fill(~mask.unsqueeze(1), float("-inf")).softmax(-1)


def coverage_loss(attention: Tensor, coverage: Tensor) -> Tensor:
    """Overlap with what was attended to before, sum_i min(a_i, c_i) (equation 12): [..., S] -> [...], in [0, 1]."""
    return torch.minimum(attention, coverage).sum(-1)
