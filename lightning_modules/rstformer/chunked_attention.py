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
    """Options of all chunks."""

    window: int  # number of tokens to each side
    operation: Operation | None  # of the table, if there is one
    dropout: float  # probability of dropping a weight
    seed: int  # of dropout, so that the backward pass drops the same weights
    chunk: int  # number of queries in a chunk


class _Document:
    """Masks, table and chunks of one document, without the padding after its last token.

    Shapes: H heads of width D, T tokens, G of them global, E EDUs; Q queries and K keys of a chunk. The table has the
    discourse values that scale, shift or replace the scores of EDUs at distances -b to b, [H, E, 2b + 1], or is None.
    """

    def __init__(
        self, token_mask: Tensor, is_global: Tensor, edu: Tensor, table: Tensor | None, options: _Options
    ) -> None:
        tokens = token_mask.nonzero()                                                 # positions of tokens
        self.length = int(tokens[-1]) + 1 if len(tokens) else 0                       # T without the padding at the end
        self.global_tokens = is_global.nonzero().flatten()                            # [G]
        self.token_mask = token_mask[: self.length]
        self.hidden = (~token_mask | is_global)[: self.length]  # to mask, [T]: padding, and global keys, scored apart
        self.edu = edu[: self.length]  # EDU of each token, -1 for none, [T]
        self.table = table
        self.options = options

    def chunks(self) -> Iterator[tuple[slice, slice]]:
        """Yield chunks of Q queries, and of the K keys inside the windows of these queries, as slices of positions."""
        for start in range(0, self.length, self.options.chunk):
            end = min(start + self.options.chunk, self.length)
            keys = slice(max(0, start - self.options.window), min(self.length, end + self.options.window))
            yield slice(start, end), keys

    def products(self, rows: Tensor, columns: Tensor, keys: slice) -> Tensor:
        """Return rows [H, Q, D] times columns [H, T, D] of global tokens and keys, [H, Q, G + K], at least float32."""
        first, count = len(self.global_tokens), keys.stop - keys.start  # G, which is the first column of a key; K
        out = rows.new_empty(*rows.shape[:2], first + count)
        torch.bmm(rows, columns[:, keys].transpose(1, 2), out=out[..., first:])
        out[..., :first] = rows @ columns[:, self.global_tokens].transpose(1, 2)
        return out if out.dtype == torch.double else out.float()

    def weighted_sum(self, weights: Tensor, columns: Tensor, keys: slice) -> Tensor:
        """Return weights @ columns over global tokens and keys, [H, Q, G + K], [H, T, D] -> [H, Q, D]."""
        first = len(self.global_tokens)  # weights[..., :first] are global
        weights = weights.to(columns.dtype)
        local = weights[..., first:] @ columns[:, keys]
        return local + weights[..., :first] @ columns[:, self.global_tokens]

    def add_column_grad_(self, total: Tensor, weights: Tensor, rows: Tensor, keys: slice) -> None:
        """Add weights^T @ rows (q or `grad`) to gradient `total` of k or v: [H, Q, G + K], [H, Q, D] -> [H, T, D]."""
        first = len(self.global_tokens)
        transposed = weights.to(rows.dtype).transpose(1, 2)                           # [H, G + K, Q]
        if total.dtype == rows.dtype:  # not for rows in half precision: `total` is at least float32
            total[:, keys].baddbmm_(transposed[:, first:], rows)  # without a tensor for the product
        else:
            total[:, keys] += transposed[:, first:] @ rows
        total[:, self.global_tokens] += (transposed[:, :first] @ rows).to(total.dtype)

    def mask_(self, scores: Tensor, queries: slice, keys: slice) -> None:
        """Mask keys outside the window, padding, and global tokens in scores [H, Q, K], in place.

        Scores of global tokens are computed separately, see `products`. The mask is the lowest finite number instead of
        -inf, so that the softmax of queries without a key (padding, a single global token) stays finite.
        """
        i = torch.arange(queries.start, queries.stop, device=scores.device)[:, None]  # [Q, 1]
        j = torch.arange(keys.start, keys.stop, device=scores.device)                 # [K]
        is_outside = (i - j).abs() > self.options.window                              # [Q, K]
        scores.masked_fill_(is_outside | self.hidden[keys], torch.finfo(scores.dtype).min)

    def table_indices(self, queries: slice, keys: slice) -> tuple[int, Tensor, Tensor, Tensor] | None:
        """Return where the table has the values for a chunk of queries and keys; None if the queries are in no EDU.

        Row i of the table is for queries in EDU i: keys in EDU j have column j - i + b of the 2b + 1. Return the first
        of the A consecutive EDUs of the queries; the row of each query, counted from that EDU, or A (a neutral row
        that `look_up` appends) in no EDU, [Q]; each key's column in the A rows, and whether it exists, [A, K].
        """
        query_edus, key_edus = self.edu[queries], self.edu[keys]
        in_edus = query_edus[query_edus >= 0]
        if self.table is None or not len(in_edus):
            return None
        first, last = int(in_edus.min()), int(in_edus.max())  # A = last - first + 1
        width = self.table.shape[-1]  # 2b + 1 columns, for distances -b to b between EDUs
        column = key_edus - torch.arange(first, last + 1, device=key_edus.device)[:, None] + width // 2     # [A, K]
        within = (key_edus >= 0) & (column >= 0) & (column < width)
        row = torch.where(query_edus >= 0, query_edus - first, last - first + 1)                           # [Q]
        return first, row, column.clamp(0, width - 1), within  # any valid column where `within` is False

    def look_up(self, queries: slice, keys: slice) -> Tensor | None:
        """Return the table's values for a chunk, [H, Q, K], read once per query EDU (A of them); None without EDUs."""
        if (indices := self.table_indices(queries, keys)) is None:
            return None
        first_edu, row, column, within = indices  # int; row of each query, [Q]; columns of keys and their mask, [A, K]
        keeps_score = neutral(self.options.operation)  # without effect: for pairs outside the table, queries in no EDU
        values = self.table[:, first_edu : first_edu + len(column)].gather(2, column.expand(len(self.table), -1, -1))
        values = values.masked_fill_(~within, keeps_score)                            # [H, A, K]
        values = torch.nn.functional.pad(values, (0, 0, 0, 1), value=keeps_score)     # [H, A + 1, K]
        return values.index_select(1, row)  # `row` is A for queries in no EDU

    def look_up_gradient_(self, total: Tensor, grad: Tensor, queries: slice, keys: slice) -> None:
        """Add the gradient of the result of `look_up`, [H, Q, K], to that of the table, `total`, [H, E, 2b + 1]."""
        if (indices := self.table_indices(queries, keys)) is None:
            return
        first_edu, row, column, within = indices  # int; row of each query, [Q]; columns of keys and their mask, [A, K]
        is_in_edu = (row == torch.arange(len(column), device=row.device)[:, None]).to(grad.dtype)  # [A, Q]
        by_edu = (is_in_edu @ grad) * within  # sums over an EDU's queries, 0 for pairs outside the table, [H, A, K]
        total[:, first_edu : first_edu + len(column)].scatter_add_(2, column.expand(len(total), -1, -1), by_edu)

    def weights(self, q: Tensor, k: Tensor, queries: slice, keys: slice) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return attention of a chunk [H, Q, G + K], values of the table, and scores before its operation [H, Q, K]."""
        scores = self.products(q[:, queries], k, keys)                                # [H, Q, G + K]
        values = self.look_up(queries, keys)
        local = scores[..., len(self.global_tokens) :]                                # a view of `scores`, [H, Q, K]
        old_scores = None  # a copy, kept only for the gradient of a table that scales
        if values is not None:
            if self.options.operation == "scale":
                if self.table.requires_grad:
                    old_scores = local.clone()
                local.mul_(values)
            elif self.options.operation == "shift":
                local.add_(values)
            else:  # replace; the value NaN keeps the score
                local.copy_(torch.where(values.isnan(), local, values))
        self.mask_(local, queries, keys)  # of local keys alone, since every query sees the global tokens
        return scores.softmax(-1), values, old_scores

    def dropped(self, weights: Tensor, queries: slice) -> Tensor:
        """Apply dropout to the weights of a chunk, with the same draws in the forward and the backward pass."""
        if not self.options.dropout:
            return weights
        generator = torch.Generator(weights.device).manual_seed(self.options.seed + queries.start)
        draws = torch.rand(weights.shape, generator=generator, device=weights.device)
        return weights * (draws >= self.options.dropout) / (1 - self.options.dropout)

    def forward_chunk(self, q: Tensor, k: Tensor, v: Tensor, queries: slice, keys: slice) -> Tensor:
        """Return the outputs of a chunk, 0 at padding, [H, Q, D]."""
        weights, *_ = self.weights(q, k, queries, keys)
        out = self.weighted_sum(self.dropped(weights, queries), v, keys)
        return out.masked_fill_(~self.token_mask[queries, None], 0)

    def backward_chunk_(
        self, q, k, v, out, grad, dq, dk, dv, dtable: Tensor | None, queries: slice, keys: slice
    ) -> None:
        """Add a chunk's part to the gradients dq, dk, dv, dtable; `grad` is that of `out`. [H, T, D], but dtable."""
        weights, values, old_scores = self.weights(q, k, queries, keys)  # computed again, because they are not stored
        grad = grad[:, queries]                                                              # [H, Q, D]
        self.add_column_grad_(dv, self.dropped(weights, queries), grad, keys)  # dropout as in the forward pass
        # d score = weight (d weight - inner): d weight = dropped(grad v^T), inner = sum weight d weight = grad . out
        inner = (grad * out[:, queries]).sum(-1, keepdim=True, dtype=weights.dtype)          # [H, Q, 1]
        dscores = self.dropped(self.products(grad, v, keys), queries).sub_(inner).mul_(weights)  # [H, Q, G + K]
        if values is not None:
            local = dscores[..., len(self.global_tokens) :]                                  # [H, Q, K]
            self.backward_through_table_(local, values, old_scores, dtable, queries, keys)
        dq[:, queries] = self.weighted_sum(dscores, k, keys)  # a query is in one chunk only, a key in several
        self.add_column_grad_(dk, dscores, q[:, queries], keys)

    def backward_through_table_(
        self, grad, values, old_scores, dtable: Tensor | None, queries: slice, keys: slice
    ) -> None:
        """Turn `grad`, of the scores after the table's operation, into that of `old_scores` before it, in place.

        These and `values` are [H, Q, K]. The gradient of the table is added to `dtable`, unless that is None.
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

    q, k, v and the result are [B, H, T, D]; the masks, and `edu`, the EDU of each token or -1, [B, T]; the table, the
    values by which discourse changes the scores of E EDUs with those at distances -b to b, [B, H, E, 2b + 1] or None.
    """

    @staticmethod
    def documents(token_mask, is_global, edu, table: Tensor | None, options: _Options) -> Iterator[_Document]:
        """Yield the masks and the table of each document; the dropout seeds of chunks differ between documents."""
        for n in range(len(token_mask)):
            table_n = None if table is None else table[n]
            options_n = options._replace(seed=options.seed + n * token_mask.shape[1])  # a chunk adds its first position
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
        # at least float32, as keys, values and the table add up the gradients of several chunks
        wide = torch.promote_types(q.dtype, torch.float32)
        dq = torch.zeros_like(q)
        dk = torch.zeros_like(k, dtype=wide)
        dv = torch.zeros_like(v, dtype=wide)
        dtable = None
        if ctx.needs_input_grad[3]:  # the table
            dtable = torch.zeros_like(table, dtype=torch.promote_types(table.dtype, torch.float32))
        grad = grad.masked_fill(~token_mask[:, None, :, None], 0)  # the output is 0 at padding; [B, H, T, D]
        for n, document in enumerate(_WindowAttention.documents(token_mask, is_global, edu, table, ctx.options)):
            tensors = (q[n], k[n], v[n], out[n], grad[n], dq[n], dk[n], dv[n], None if dtable is None else dtable[n])
            with torch.autocast(q.device.type, enabled=False):  # the caller may have enabled it
                for queries, keys in document.chunks():
                    document.backward_chunk_(*tensors, queries, keys)
        dtable = None if dtable is None else dtable.to(table.dtype)
        return dq, dk.to(k.dtype), dv.to(v.dtype), dtable, None, None, None, None


@torch.compiler.disable  # the number of chunks depends on values of the mask
def chunked_attention(
    q: Tensor, k: Tensor, v: Tensor, view: View, table: HeadTable | None, window: int, dropout: float = 0.0
) -> Tensor:
    """Return the sliding-window attention of Longformer with discourse, [B, H, T, D]; 0 at padding.

    Token i attends to token j if |i - j| <= window or j is global, and j is not padding. Time and memory are linear in
    T: scores, and the values of the table for pairs of tokens, are computed for one chunk of queries at a time, in the
    backward pass as well. A CPU computes one document at a time, without its padding; other devices all of them at once
    (`batched_attention`). Results at global tokens, which need `global_attention`, are left to the caller to replace.
    q, k and v are [B, H, T, D], q already divided by sqrt(D). Without a table of discourse values, attention is plain.
    """
    if q.device.type != "cpu":
        return batched_attention(q, k, v, view, table, window, dropout)
    seed = int(torch.randint(2**31, ())) if dropout else 0  # from the global generator, which runs are seeded by
    operation, values = (table.operation, table.values) if table else (None, None)  # scale, shift or replace scores
    options = _Options(window=window, operation=operation, dropout=dropout, seed=seed, chunk=CHUNK)
    with torch.autocast(q.device.type, enabled=False):  # `_Document` chooses the dtype of each product itself
        return _WindowAttention.apply(q, k, v, values, view.token_mask, view.is_global, view.token_edu, options)


def global_attention(q: Tensor, k: Tensor, v: Tensor, token_mask: Tensor, dropout: float = 0.0) -> Tensor:
    """Return the plain attention of global tokens to all tokens, [B, H, G, D]; queries q are divided by sqrt(D)."""
    scores = (q @ k.transpose(-1, -2)).to(torch.promote_types(q.dtype, torch.float32))  # [B, H, G, T]
    hidden = ~token_mask[:, None, None]                                                 # [B, 1, 1, T]
    # the lowest number instead of -inf: a document without tokens stays finite
    weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1).to(v.dtype)
    return torch.nn.functional.dropout(weights, dropout) @ v
