"""Additive attention with coverage, without keeping its hidden layer."""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class _AdditiveEnergy(torch.autograd.Function):
    """v^T tanh(projected + query + coverage w_c) that stores its inputs and recomputes the tanh layer in the backward
    pass: autograd would keep one [B, K, S, A] tensor for every decoder step."""

    @staticmethod
    def hidden(projected: Tensor, query: Tensor, coverage: Tensor | None, w_c: Tensor) -> Tensor:
        layer = projected.unsqueeze(1) + query.unsqueeze(2)                          # [B, K, S, A]
        if coverage is not None:
            layer.addcmul_(coverage.unsqueeze(-1).to(layer.dtype), w_c.to(layer.dtype))
        return layer.tanh_()

    @staticmethod
    def forward(ctx, projected: Tensor, query: Tensor, coverage: Tensor | None, w_c: Tensor, v: Tensor) -> Tensor:
        ctx.has_coverage = coverage is not None
        ctx.save_for_backward(projected, query, *([coverage] if ctx.has_coverage else []), w_c, v)
        layer = _AdditiveEnergy.hidden(projected, query, coverage, w_c)
        return layer @ v.to(layer.dtype)                                             # [B, K, S]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        projected, query, *middle, w_c, v = ctx.saved_tensors
        coverage = middle[0] if ctx.has_coverage else None
        layer = _AdditiveEnergy.hidden(projected, query, coverage, w_c)              # [B, K, S, A]
        grad = grad.to(layer.dtype)
        grad_v = torch.mv(layer.flatten(0, 2).T, grad.flatten()).to(v.dtype)
        # d tanh = 1 - tanh^2, in place; then times v and the incoming gradient
        inner = layer.square_().neg_().add_(1).mul_(v.to(layer.dtype)).mul_(grad.unsqueeze(-1))
        grad_coverage = grad_w_c = None
        if coverage is not None:
            grad_coverage = (inner @ w_c.to(inner.dtype)).to(coverage.dtype)         # [B, K, S]
            grad_w_c = torch.mv(inner.flatten(0, 2).T, coverage.flatten().to(inner.dtype)).to(w_c.dtype)
        grad_projected = inner.squeeze(1) if inner.shape[1] == 1 else inner.sum(1)   # [B, S, A]
        return grad_projected, inner.sum(2), grad_coverage, grad_w_c, grad_v


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

    def forward(self, query: Tensor, projected: Tensor, mask: Tensor, coverage: Tensor, gate: float = 1.0) -> Tensor:
        """Attention of one decoder step, for K summaries of each of B documents.

        Args:
            query: decoder state d, [B, K, query_size].
            projected: W_h h, [B, S, hidden_size].
            mask: True at real tokens, [B, S]; every row has one.
            coverage: sum of the attention so far, [B, K, S].
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
