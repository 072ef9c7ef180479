"""Sliding-window attention for short texts, with all scores at once, and for GPUs, by chunks of queries."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lightning_modules.rstformer.injection import HeadTable, View

# Tokens up to which all scores of a batch are kept. On one CPU core, forward and backward of the attention of 32
# documents then take 1.6 ms instead of the chunked path's 46 ms (18 tokens), 111 instead of 261 ms (160 tokens); at
# 512 tokens, if the window excludes most scores, the chunked path is faster.
SHORT = 192


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, view: View, table: HeadTable | None, window: int, dropout: float = 0.0
) -> Tensor:
    """Return the result of `chunked_attention`, with the same arguments, from all scores at once, [B, H, T, T]."""
    positions = torch.arange(q.shape[2], device=q.device)
    is_near = (positions[:, None] - positions).abs() <= window                        # [T, T]
    visible = (is_near | view.is_global[:, None]) & view.token_mask[:, None]  # [B, T, T]: the window and global keys
    out = attend(q, k, v, visible, dropout, table, view.token_edu, view.token_edu)
    return out.masked_fill(~view.token_mask[:, None, :, None], 0)  # the caller replaces outputs at global tokens


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Tensor,
    dropout: float,
    table: HeadTable | None = None,
    query_edu: Tensor | None = None,
    key_edu: Tensor | None = None,
) -> Tensor:
    """Return dense attention of queries to keys, [B, H, Q, D]; a query that sees no key gets the mean of all values.

    Queries, divided by sqrt(D), are [B, H, Q, D], keys and values [B, H, K, D]; `visible` is True where a query sees a
    key, [B, Q or 1, K]. A table changes scores by the discourse units (EDUs) of tokens, [B, Q] and [B, K], -1 for none.
    """
    with torch.autocast(q.device.type, enabled=False):  # dtypes are chosen below
        scores = q @ k.transpose(-1, -2)                                              # [B, H, Q, K]
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # half precision is too coarse
        if table is not None:
            scores = with_discourse(scores, table, query_edu, key_edu)
        # the lowest number rather than -inf: the weights of queries that see no key stay finite
        weights = scores.masked_fill(~visible[:, None], torch.finfo(scores.dtype).min).softmax(-1)
        return torch.nn.functional.dropout(weights, dropout).to(v.dtype) @ v  # `dropout` is 0 in evaluation


def with_discourse(scores: Tensor, table: HeadTable, query_edu: Tensor, key_edu: Tensor) -> Tensor:
    """Apply a table to the scores of pairs of tokens, [B, H, Q, K]; pairs that are not in the table keep their scores.

    EDUs (elementary discourse units) of queries and keys are [B, Q] and [B, K], -1 for none.
    """
    width = table.values.shape[-1]  # 2b + 1: column b + d of row a is for queries in EDU a and keys in EDU a + d
    query = query_edu[:, :, None]                                                     # [B, Q, 1]
    key = key_edu[:, None, :]                                                         # [B, 1, K]
    column = key - query + width // 2  # distance d = 0 is in the middle, at b        # [B, Q, K]
    is_in_table = (query >= 0) & (key >= 0) & (column >= 0) & (column < width)
    entry = query.clamp(min=0) * width + column.clamp(0, width - 1)  # index in the flattened table [E width]
    entry = entry.flatten(1).unsqueeze(1).expand(-1, scores.shape[1], -1)             # [B, H, Q K]
    values = table.values.flatten(2).gather(2, entry).view_as(scores)  # [B, H, E, width] -> [B, H, Q, K]
    changed = {"scale": scores * values, "shift": scores + values, "replace": values}[table.operation]
    return torch.where(is_in_table[:, None], changed.to(scores.dtype), scores)


CHUNK = 512  # queries at a time


def batched_attention(
    q: Tensor, k: Tensor, v: Tensor, view: View, table: HeadTable | None, window: int, dropout: float = 0.0
) -> Tensor:
    """Return the result of `chunked_attention`, computed for `CHUNK` queries of all B documents at a time.

    No value of a tensor is read, so that the host never waits for the device. Scores are computed again in the backward
    pass, so that memory is linear in length. The Q queries of a chunk see G global keys and K keys in their windows.
    """
    length = q.shape[2]
    outputs = []
    positions, is_present = _global_positions(view)                                   # [B, G] each
    documents = torch.arange(len(q), device=q.device)[:, None]  # [B, 1]; with `positions`, an index into [B, T, H, D]
    global_k, global_v = (x.transpose(1, 2)[documents, positions].transpose(1, 2) for x in (k, v))  # [B, H, G, D]
    no_edu = torch.full_like(positions, -1)  # of global tokens: discourse does not change attention to them
    for start in range(0, length, CHUNK):
        end = min(start + CHUNK, length)
        keys = slice(max(0, start - window), min(length, end + window))
        i = torch.arange(start, end, device=q.device)[:, None]                        # [Q, 1]
        j = torch.arange(keys.start, keys.stop, device=q.device)                      # [K]
        # global tokens are the first G columns, so they are masked among the K local keys
        is_local = ((i - j).abs() <= window) & (view.token_mask & ~view.is_global)[:, None, keys]  # [B, Q, K]
        visible = torch.cat([is_present[:, None].expand(-1, end - start, -1), is_local], -1)     # [B, Q, G + K]
        output = checkpoint(
            attend,
            q[:, :, start:end],
            torch.cat([global_k, k[:, :, keys]], 2),
            torch.cat([global_v, v[:, :, keys]], 2),
            visible,
            dropout,
            table,
            view.token_edu[:, start:end],
            torch.cat([no_edu, view.token_edu[:, keys]], 1),
            use_reentrant=False,
            preserve_rng_state=dropout > 0,  # so that the backward pass drops the same weights
        )
        outputs.append(output)
    return torch.cat(outputs, 2).masked_fill(~view.token_mask[:, None, :, None], 0)


def _global_positions(view: View) -> tuple[Tensor, Tensor]:
    """Return positions of the global tokens of each document, padded with 0, and a mask, False at padding, [B, G]."""
    max_count = max((tokens.shape[1] for _, tokens in view.global_groups), default=0)  # G
    positions = view.token_edu.new_zeros(len(view.token_mask), max_count)
    is_present = torch.zeros_like(positions, dtype=torch.bool)
    for documents, tokens in view.global_groups:  # N documents with the same number of global tokens; [N], [N, count]
        count = tokens.shape[1]
        positions[:, :count] = positions[:, :count].index_copy(0, documents, tokens)
        is_present[:, :count] = is_present[:, :count].index_fill(0, documents, True)
    return positions, is_present & view.token_mask.gather(1, positions)  # a global mask may be set at padding
