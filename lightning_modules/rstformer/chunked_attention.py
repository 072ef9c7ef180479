"""Sliding-window and global attention by chunks of queries: linear in length, scores never stored."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightning_modules.rstformer.dense_attention import batched_attention
from lightning_modules.rstformer.injection import HeadTable, Operation, View, neutral

CHUNK = 64  # queries at a time, so that a chunk's scores stay in the processor's cache


class _Options(NamedTuple):
    """Options of windowed attention, the same for all chunks of queries."""

    window: int  # number of tokens to each side
    operation: Operation | None  # by which the table changes scores: scale, shift, replace; None without a table
    dropout: float  # probability of dropping a weight
    seed: int  # of dropout, so that the backward pass drops the weights that the forward pass dropped
    chunk: int  # number of queries in a chunk


class _Document:
    """Windowed attention of one document by chunks of queries, without the padding after its last token.

    Shapes: H heads of width D, T tokens, G of them global; Q queries and K keys of a chunk. The table, [H, E, 2b + 1],
    scales, shifts or replaces scores: column b + d of row a is for queries in EDU (elementary discourse unit) a and
    keys in EDU a + d, where E is the number of EDUs. None for plain attention.
    """

    def __init__(self, token_mask, is_global, edu: Tensor, table: Tensor | None, options: _Options) -> None:
        positions = token_mask.nonzero()                                              # of tokens
        self.length = int(positions[-1]) + 1 if len(positions) else 0                 # T without the padding at the end
        self.global_tokens = is_global.nonzero().flatten()                            # positions, [G]
        self.token_mask = token_mask[: self.length]
        self.not_local = (~token_mask | is_global)[: self.length]  # keys that `mask_` excludes, [T]
        self.edu = edu[: self.length]  # EDU of each token, -1 for none, [T]
        self.table, self.options = table, options

    def chunks(self) -> Iterator[tuple[slice, slice]]:
        """Yield chunks of Q queries, and of the K keys inside the windows of these queries, as slices of positions."""
        for start in range(0, self.length, self.options.chunk):
            end = min(start + self.options.chunk, self.length)
            keys = slice(max(0, start - self.options.window), min(self.length, end + self.options.window))
            yield slice(start, end), keys

    def products(self, query_vectors: Tensor, vectors: Tensor, keys: slice) -> Tensor:
        """Return query vectors @ vectors^T for G global tokens, then K keys: [H, Q, D], [H, T, D] -> [H, Q, G + K]."""
        num_global, num_keys = len(self.global_tokens), keys.stop - keys.start        # G, K
        out = query_vectors.new_empty(*query_vectors.shape[:2], num_global + num_keys)
        torch.bmm(query_vectors, vectors[:, keys].transpose(1, 2), out=out[..., num_global:])
        out[..., :num_global] = query_vectors @ vectors[:, self.global_tokens].transpose(1, 2)
        return out if out.dtype == torch.double else out.float()  # half precision is too coarse for scores

    def weighted_sum(self, weights: Tensor, vectors: Tensor, keys: slice) -> Tensor:
        """Sum vectors [H, T, D] of G global tokens and K keys by their weights [H, Q, G + K] -> [H, Q, D]."""
        num_global = len(self.global_tokens)                                          # G
        weights = weights.to(vectors.dtype)
        local = weights[..., num_global:] @ vectors[:, keys]
        return local + weights[..., :num_global] @ vectors[:, self.global_tokens]

    def add_key_gradient_(self, total: Tensor, weights: Tensor, query_vectors: Tensor, keys: slice) -> None:
        """Add weights^T [H, G + K, Q] @ query vectors [H, Q, D] to `total`, the gradient of k or v, [H, T, D]."""
        num_global = len(self.global_tokens)                                          # G
        transposed = weights.to(query_vectors.dtype).transpose(1, 2)                  # [H, G + K, Q]
        if total.dtype == query_vectors.dtype:  # not in half precision: `total` is at least float32
            total[:, keys].baddbmm_(transposed[:, num_global:], query_vectors)  # without a tensor for the product
        else:
            total[:, keys] += transposed[:, num_global:] @ query_vectors
        total[:, self.global_tokens] += (transposed[:, :num_global] @ query_vectors).to(total.dtype)

    def mask_(self, scores: Tensor, queries: slice, keys: slice) -> None:
        """Mask keys outside the window, padding, and global tokens in local scores [H, Q, K], in place.

        Global tokens have columns of their own, see `products`. The mask is the lowest finite number instead of -inf,
        so that the softmax stays finite for a query that sees no key, such as padding.
        """
        i = torch.arange(queries.start, queries.stop, device=scores.device)[:, None]  # [Q, 1]
        j = torch.arange(keys.start, keys.stop, device=scores.device)                 # [K]
        is_outside = (i - j).abs() > self.options.window                              # [Q, K]
        scores.masked_fill_(is_outside | self.not_local[keys], torch.finfo(scores.dtype).min)

    def table_indices(self, queries: slice, keys: slice) -> tuple[int, Tensor, Tensor, Tensor] | None:
        """Return the indices of a chunk's queries and keys in the table; None if no query is in an EDU.

        A chunk needs A consecutive rows of the table, one per EDU, from its queries' first EDU to their last. Returns
        (1) this first EDU; (2) the row of each query among the A, or A for a query in no EDU, [Q]; (3) for each row,
        of EDU i, the column j - i + b of each key, in EDU j, [A, K]; (4) whether the table has this column, [A, K].
        """
        query_edus, key_edus = self.edu[queries], self.edu[keys]
        in_edus = query_edus[query_edus >= 0]
        if self.table is None or not len(in_edus):
            return None
        first_edu, last_edu = int(in_edus.min()), int(in_edus.max())  # A = last_edu - first_edu + 1
        width = self.table.shape[-1]  # 2b + 1 columns, for distances -b to b between EDUs
        key_column = key_edus - torch.arange(first_edu, last_edu + 1, device=key_edus.device)[:, None] + width // 2
        has_column = (key_edus >= 0) & (key_column >= 0) & (key_column < width)                            # [A, K]
        query_row = torch.where(query_edus >= 0, query_edus - first_edu, last_edu - first_edu + 1)         # [Q]
        return first_edu, query_row, key_column.clamp(0, width - 1), has_column  # any valid column for keys without one

    def look_up(self, queries: slice, keys: slice) -> Tensor | None:
        """Return the table's value for each query and key of a chunk, [H, Q, K]; None if no query is in an EDU."""
        if (indices := self.table_indices(queries, keys)) is None:
            return None
        first_edu, query_row, key_column, has_column = indices  # int, [Q], [A, K] twice, for the A EDUs of the queries
        no_effect = neutral(self.options.operation)  # value that keeps a score: for pairs outside the table
        columns = key_column.expand(len(self.table), -1, -1)                          # [H, A, K]
        values = self.table[:, first_edu : first_edu + len(key_column)].gather(2, columns)
        values = values.masked_fill_(~has_column, no_effect)                          # [H, A, K], once per query EDU
        values = torch.nn.functional.pad(values, (0, 0, 0, 1), value=no_effect)       # [H, A + 1, K]
        return values.index_select(1, query_row)  # `query_row` is A for queries in no EDU

    def look_up_gradient_(self, total: Tensor, grad: Tensor, queries: slice, keys: slice) -> None:
        """Add `grad`, of the values of `look_up`, [H, Q, K], to `total`, the gradient of the table, [H, E, 2b + 1]."""
        if (indices := self.table_indices(queries, keys)) is None:
            return
        first_edu, query_row, key_column, has_column = indices  # int, [Q], [A, K] twice, for the A EDUs of the queries
        is_in_edu = (query_row == torch.arange(len(key_column), device=query_row.device)[:, None]).to(grad.dtype)
        edu_grad = (is_in_edu @ grad) * has_column  # summed over each EDU's queries: [A, Q] @ [H, Q, K] -> [H, A, K]
        columns = key_column.expand(len(total), -1, -1)                               # [H, A, K]
        total[:, first_edu : first_edu + len(key_column)].scatter_add_(2, columns, edu_grad)

    def weights(self, q: Tensor, k: Tensor, queries: slice, keys: slice) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return a chunk's weights [H, Q, G + K]; table values or None, and unscaled scores or None, [H, Q, K]."""
        scores = self.products(q[:, queries], k, keys)                                # [H, Q, G + K]
        values = self.look_up(queries, keys)
        local = scores[..., len(self.global_tokens) :]  # of keys, [H, Q, K]; changes in place also change `scores`
        old_scores = None  # [H, Q, K]
        if values is not None:
            if self.options.operation == "scale":
                if self.table.requires_grad:
                    old_scores = local.clone()  # for the gradient of the table
                local.mul_(values)
            elif self.options.operation == "shift":
                local.add_(values)
            else:  # replace; the value NaN keeps the score
                local.copy_(torch.where(values.isnan(), local, values))
        self.mask_(local, queries, keys)  # not of global tokens, which every query sees
        return scores.softmax(-1), values, old_scores

    def dropped(self, weights: Tensor, queries: slice) -> Tensor:
        """Apply dropout to the weights of a chunk, with the same draws in the forward and the backward pass."""
        if not self.options.dropout:
            return weights
        generator = torch.Generator(weights.device).manual_seed(self.options.seed + queries.start)  # one per chunk
        draws = torch.rand(weights.shape, generator=generator, device=weights.device)
        return weights * (draws >= self.options.dropout) / (1 - self.options.dropout)

    def forward_chunk(self, q: Tensor, k: Tensor, v: Tensor, queries: slice, keys: slice) -> Tensor:
        """Return the outputs of a chunk, 0 at padding: q, k, v [H, T, D] -> [H, Q, D]."""
        weights, *_ = self.weights(q, k, queries, keys)
        out = self.weighted_sum(self.dropped(weights, queries), v, keys)
        return out.masked_fill_(~self.token_mask[queries, None], 0)

    def backward_chunk_(
        self, q, k, v, out, grad, dq, dk, dv, dtable: Tensor | None, queries: slice, keys: slice
    ) -> None:
        """Add a chunk's part to the gradients dq, dk, dv [H, T, D] and dtable; `grad` is the gradient of `out`."""
        weights, values, old_scores = self.weights(q, k, queries, keys)  # computed again, because they are not stored
        grad = grad[:, queries]                                                              # [H, Q, D]
        self.add_key_gradient_(dv, self.dropped(weights, queries), grad, keys)  # dropout as in the forward pass
        # d score = weight (d weight - inner): d weight = dropped(grad v^T), inner = sum weight d weight = grad . out
        inner = (grad * out[:, queries]).sum(-1, keepdim=True, dtype=weights.dtype)          # [H, Q, 1]
        dscores = self.dropped(self.products(grad, v, keys), queries).sub_(inner).mul_(weights)  # [H, Q, G + K]
        if values is not None:
            local = dscores[..., len(self.global_tokens) :]                                  # [H, Q, K]
            self.backward_through_table_(local, values, old_scores, dtable, queries, keys)
        dq[:, queries] = self.weighted_sum(dscores, k, keys)  # a query is in one chunk only, a key in several
        self.add_key_gradient_(dk, dscores, q[:, queries], keys)

    def backward_through_table_(
        self, grad, values, old_scores, dtable: Tensor | None, queries: slice, keys: slice
    ) -> None:
        """Turn `grad`, of scores after the table's operation, into the gradient of scores before it, in place.

        These and the table's `values` are [H, Q, K]. The gradient of the table is added to `dtable`, unless it is None.
        """
        operation = self.options.operation
        is_kept = values.isnan() if operation == "replace" else None  # scores that the table does not replace
        if dtable is not None:
            table_grad = grad  # with t, a value of the table: d (score + t) / dt = 1
            if operation != "shift":  # d (score * t) / dt = score; replace: 1 where t takes the place of the score
                table_grad = grad * (old_scores if operation == "scale" else ~is_kept)
            self.look_up_gradient_(dtable, table_grad, queries, keys)
        if operation != "shift":
            grad.mul_(values if operation == "scale" else is_kept)


class _WindowAttention(torch.autograd.Function):
    """Autograd function that recomputes the weights of each chunk in the backward pass instead of storing them.

    q, k, v and the result are [B, H, T, D]; masks, and `edu`, each token's EDU or -1, [B, T]. Discourse changes scores
    by the table, [B, H, E, 2b + 1] or None: column b + d of row a is for queries in EDU a and keys in EDU a + d.
    """

    @staticmethod
    def documents(token_mask, is_global, edu, table: Tensor | None, options: _Options) -> Iterator[_Document]:
        """Yield the masks and the table of each document; the dropout seeds of chunks differ between documents."""
        for n in range(len(token_mask)):
            table_n = None if table is None else table[n]
            options_n = options._replace(seed=options.seed + n * token_mask.shape[1])  # n T; a chunk adds its position
            yield _Document(token_mask[n], is_global[n], edu[n], table_n, options_n)

    @staticmethod
    def forward(ctx, q, k, v, table, token_mask, is_global, edu, options: _Options) -> Tensor:
        out = torch.zeros_like(v)  # stays 0 at the padding after each document
        for n, document in enumerate(_WindowAttention.documents(token_mask, is_global, edu, table, options)):
            for queries, keys in document.chunks():
                out[n, :, queries] = document.forward_chunk(q[n], k[n], v[n], queries, keys)
        ctx.save_for_backward(q, k, v, table, token_mask, is_global, edu, out)
        ctx.options = options
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, k, v, table, token_mask, is_global, edu, out = ctx.saved_tensors
        # at least float32, since gradients of k, v and the table are sums over several chunks
        sum_dtype = torch.promote_types(q.dtype, torch.float32)
        dq = torch.zeros_like(q)
        dk = torch.zeros_like(k, dtype=sum_dtype)
        dv = torch.zeros_like(v, dtype=sum_dtype)
        dtable = None
        if ctx.needs_input_grad[3]:  # of the table
            dtable = torch.zeros_like(table, dtype=torch.promote_types(table.dtype, torch.float32))
        grad = grad.masked_fill(~token_mask[:, None, :, None], 0)  # the output is 0 at padding; [B, H, T, D]
        for n, document in enumerate(_WindowAttention.documents(token_mask, is_global, edu, table, ctx.options)):
            tensors = (q[n], k[n], v[n], out[n], grad[n], dq[n], dk[n], dv[n], None if dtable is None else dtable[n])
            with torch.autocast(q.device.type, enabled=False):  # the caller may have enabled it
                for queries, keys in document.chunks():
                    document.backward_chunk_(*tensors, queries, keys)
        dtable = None if dtable is None else dtable.to(table.dtype)
        return dq, dk.to(k.dtype), dv.to(v.dtype), dtable, None, None, None, None  # None for masks, edu, options


@torch.compiler.disable  # the number of chunks depends on values of the mask
def chunked_attention(
    q: Tensor, k: Tensor, v: Tensor, view: View, table: HeadTable | None, window: int, dropout: float = 0.0
) -> Tensor:
    """Return the sliding-window attention of Longformer with discourse, [B, H, T, D]; 0 at padding.

    Token i attends to token j if |i - j| <= window or j is global, and j is not padding. Time and memory are linear in
    T: scores, and the values of the table for pairs of tokens, are computed for one chunk of queries at a time, in the
    backward pass as well. A CPU computes one document at a time, without its padding; other devices compute all at once
    (`batched_attention`). Results at global tokens, which attend to all tokens, are left to the caller to replace.
    q, k and v are [B, H, T, D], q already divided by sqrt(D). Discourse changes scores by the table, unless it is None.
    """
    if q.device.type != "cpu":
        return batched_attention(q, k, v, view, table, window, dropout)
    seed = int(torch.randint(2**31, ())) if dropout else 0  # from the global generator, so that runs are reproducible
    operation, values = (table.operation, table.values) if table else (None, None)  # scale, shift or replace scores
    options = _Options(window=window, operation=operation, dropout=dropout, seed=seed, chunk=CHUNK)
    with torch.autocast(q.device.type, enabled=False):  # `_Document` chooses the dtype of each product itself
        return _WindowAttention.apply(q, k, v, values, view.token_mask, view.is_global, view.token_edu, options)
