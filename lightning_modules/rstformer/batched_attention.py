"""Sliding-window and global attention by chunks of queries of all documents at once: the chunked path of GPUs.

Nothing reads a value of a tensor, so that the host never waits for the device. The scores of a chunk are computed again
in the backward pass, so that memory is linear in length.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lightning_modules.rstformer.dense_attention import attend
from lightning_modules.rstformer.injection import HeadTable, View

CHUNK = 512  # queries at a time


def batched_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    view: View,
    table: HeadTable | None,
    window: int,
    dropout: float = 0.0,
    chunk: int = CHUNK,
) -> Tensor:
    """Return the result of `chunked_attention`, with the same arguments, by `chunk` queries at a time."""
    length, parts = q.shape[2], []
    columns, are_global = _global_columns(view)                                       # [B, G]
    rows = torch.arange(len(q), device=q.device)[:, None]                             # [B, 1]
    global_k, global_v = (x.transpose(1, 2)[rows, columns].transpose(1, 2) for x in (k, v))  # [B, H, G, D]
    no_edu = torch.full_like(columns, -1)
    for start in range(0, length, chunk):
        end = min(start + chunk, length)
        keys = slice(max(0, start - window), min(length, end + window))
        i = torch.arange(start, end, device=q.device)[:, None]                        # [Q, 1]
        j = torch.arange(keys.start, keys.stop, device=q.device)                      # [K]
        # global tokens have columns of their own
        local = ((i - j).abs() <= window) & (view.token_mask & ~view.is_global)[:, None, keys]   # [B, Q, K]
        visible = torch.cat([are_global[:, None].expand(-1, end - start, -1), local], -1)        # [B, Q, G + K]
        part = checkpoint(
            attend,
            q[:, :, start:end],
            torch.cat([global_k, k[:, :, keys]], 2),
            torch.cat([global_v, v[:, :, keys]], 2),
            visible,
            table,
            view.token_edu[:, start:end],
            torch.cat([no_edu, view.token_edu[:, keys]], 1),
            dropout,
            use_reentrant=False,
            preserve_rng_state=dropout > 0,
        )
        parts.append(part)
    return torch.cat(parts, 2).masked_fill(~view.token_mask[:, None, :, None], 0)


def _global_columns(view: View) -> tuple[Tensor, Tensor]:
    """Return the positions of global tokens, 0 to fill up, and whether they are there, two of [B, G]."""
    most = max((tokens.shape[1] for _, tokens in view.global_groups), default=0)
    columns = view.token_edu.new_zeros(len(view.token_mask), most)
    present = torch.zeros_like(columns, dtype=torch.bool)
    for documents, tokens in view.global_groups:
        count = tokens.shape[1]
        columns[:, :count] = columns[:, :count].index_copy(0, documents, tokens)
        present[:, :count] = present[:, :count].index_fill(0, documents, True)
    return columns, present & view.token_mask.gather(1, columns)
