"""`Batch`: output of DataModules and input of models."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def on_host() -> Any:
    """Return a dataclass field whose tensor stays in host memory, where control flow reads it without a wait."""
    return field(metadata={"host": True})


@dataclass
class Batch:
    """Base class of batches: a dataclass of tensors and lists."""

    ids: list[str]  # ids of the documents
    references: list[list[list[str]]]  # reference summaries of each document, each a list of sentences
    # factor of the loss on this rank: its share of the documents of all ranks, times the number of ranks; so the mean
    # of the loss over ranks is the mean over documents. 0 for a rank without documents, which repeats one
    weight: float = field(default=1.0, kw_only=True)
    # factor of the loss of this batch among those accumulated for one optimizer step: its share of their documents (of
    # all ranks), times `accumulate_grad_batches`, by which Lightning divides; so the step equals the step of one large
    # batch, even if batches at the end of an epoch are smaller or fewer
    accumulation_weight: float = field(default=1.0, kw_only=True)

    @property
    def batch_size(self) -> int:
        """Number of documents."""
        return len(self.ids)

    @property
    def loss_weight(self) -> float:
        """Factor of the loss in training."""
        return self.weight * self.accumulation_weight

    def _map(self, function) -> Self:
        """Return a copy with a function applied to each tensor, except fields marked `on_host`."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if not f.metadata.get("host")}
        return replace(self, **{name: function(value) for name, value in values.items() if isinstance(value, Tensor)})

    def to(self, device: torch.device | str) -> Self:
        """Return a copy on a device; fields marked `on_host` stay in host memory.

        Copies to the CPU or MPS are complete on return, since the program could otherwise read them too early. Copies
        to other devices are asynchronous.
        """
        non_blocking = torch.device(device).type not in ("cpu", "mps")
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Return a copy in page-locked memory, for asynchronous transfer."""
        return self._map(Tensor.pin_memory)


@dataclass
class TargetBatch(Batch):
    """Base class of batches with summaries that a model generates; see `target_fields`."""

    target: Tensor  # the first reference and the end symbol, [B, T]
    target_lengths: Tensor  # number of tokens of each target, [B]
    target_rows: Tensor  # indices, [N], of the N tokens that are not padding in the flattened target, [B T]


@dataclass
class SourceTargetBatch(TargetBatch):
    """Documents and summaries as ids."""

    source: Tensor  # input of the encoder, [B, S]
    source_mask: Tensor  # True at tokens, [B, S]


def pad(rows: list[list[int]] | list[list[float]], value: int = 0, dtype: torch.dtype = torch.long) -> Tensor:
    """Pad B rows of ids or numbers on the right with `value` to a tensor [B, longest row] of at least one column."""
    width = max([1, *(len(row) for row in rows)])
    return torch.tensor([row + [value] * (width - len(row)) for row in rows], dtype=dtype)


def pair_mask(pairs: Sequence[Sequence[Any]], size: int) -> Tensor:
    """Return a symmetric mask [B, L, L] of index pairs (or flat lists: i, j, i, j, ..) of B documents; `size` is L."""
    mask = torch.zeros(len(pairs), size, size, dtype=torch.bool)
    for document, indices in enumerate(pairs):
        first, second = torch.tensor(indices, dtype=torch.long).view(-1, 2).unbind(1)  # [pairs] each
        mask[document, first, second] = mask[document, second, first] = True
    return mask


def target_fields(targets: list[list[int]], padding: int) -> dict[str, Tensor]:
    """Return the fields of `TargetBatch` from the ids of each summary; `padding`: id with which `target` is padded."""
    lengths = torch.tensor([len(target) for target in targets])  # [B]
    target = pad(targets, padding)  # [B, T]
    is_token = torch.arange(target.shape[1]) < lengths[:, None]  # False at padding, [B, T]
    return {"target": target, "target_lengths": lengths, "target_rows": is_token.flatten().nonzero().squeeze(1)}


def pools(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield consecutive items in lists of `size`, the last one shorter; at most one list is in memory."""
    iterator = iter(items)
    while pool := list(islice(iterator, size)):
        yield pool


def groups_by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yield indices by length in groups of at most `max_tokens`, padding included; a longer document is alone."""
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):  # by length, ascending
        if group and (len(group) + 1) * lengths[index] > max_tokens:  # this document is the longest of the group
            yield group
            group = []
        group.append(index)
    if group:
        yield group
