"""Batching and order of documents, and resumption within an epoch."""

import json
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any, Self

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from datamodules.batch import pools
from datamodules.documents import UserError
from datamodules.text.hashing import text_digest
from datamodules.text.lines import counted


def order_seed(seed: int | None) -> int:
    """Return the seed of the order in training: the argument, else the seed of the run (`seed_everything`), else 0."""
    return int(os.environ.get("PL_GLOBAL_SEED", 0)) if seed is None else seed


def at_least(minimum: int, **values: int | None) -> None:
    """Raise a `ValueError` if a named argument of a DataModule is below a minimum; None, for no limit, is allowed."""
    for name, value in values.items():
        if value is not None and value < minimum:
            raise ValueError(f"data.{name} must be at least {minimum}, got {value}")


@dataclass(eq=False, repr=False)
class BatchSampler(Sampler[list[int]]):
    """Batches of documents of similar length, in an order that is a pure function of seed and epoch.

    Each global batch of batch_size x num_replicas documents is split over the ranks, so that r ranks with batch size b
    process the same documents per step as one rank with batch size r b. With shuffling, the shuffled documents are
    split into pools of `pool` global batches, each pool is sorted by length and split into batches, and the batches are
    shuffled. Nothing is dropped: one global batch may be smaller, and the ranks' shares of it differ by at most one
    document. In training, where every rank takes part in every step, `weights` compensates for unequal shares, and a
    rank without a share repeats a document with weight 0.
    """

    lengths: Sequence[int]  # lengths of the documents, by which they are sorted
    batch_size: int  # number of documents per rank and batch
    shuffle: bool  # in training only
    seed: int = 0  # the order depends on it and the epoch
    pool: int = 50  # number of global batches that are sorted together; 0 for no sorting
    num_replicas: int = 1
    rank: int = 0
    # number of times each batch is delivered in training, for several updates on it; all batches of an optimizer step,
    # `accumulated` in number, are delivered before they are repeated
    repeats: int = 1
    accumulated: int = field(default=1, init=False)  # batches per optimizer step, set by `ResumableLoader`
    epoch: int = field(default=0, init=False)
    # both set by `ResumableLoader`: whether all epochs have the order of epoch 0, and how many batches to leave out of
    # the next iteration, on resuming
    repeats_order: bool = field(default=False, init=False)
    start: int = field(default=0, init=False)

    @property
    def sampler(self) -> Self:
        """The sampler itself: Lightning calls `set_epoch` of the attribute `sampler` of a batch sampler."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order."""
        self.epoch = epoch

    @property
    def global_batch_size(self) -> int:
        """Number of documents per step, over all ranks."""
        return self.batch_size * self.num_replicas

    def __len__(self) -> int:
        full_batches, remainder = divmod(len(self.lengths), self.global_batch_size)
        if self.shuffle:
            return (full_batches + (remainder > 0)) * self.repeats
        return full_batches + (remainder > self.rank)  # a rank without a share of the last batch skips it in evaluation

    def order_digest(self) -> int:
        """Return a digest of what determines the order of documents in training, except epoch and batch size."""
        accumulated = self.accumulated if self.repeats > 1 else 1  # it changes only the order of repeats
        values = [self._lengths_digest, self.seed, self.pool, self.repeats, accumulated]
        return int(text_digest(json.dumps(values))[:15], 16)  # 60 bits: fits into a signed 64-bit integer

    @cached_property
    def _lengths_digest(self) -> str:  # of the documents' number and lengths
        return text_digest(json.dumps(list(self.lengths)))

    def _global_batches(self) -> list[list[int]]:
        """Return the indices of the documents of each global batch of this epoch, in order."""
        size = self.global_batch_size
        if not self.shuffle:
            return list(pools(range(len(self.lengths)), size))  # in the order of the corpus
        epoch = 0 if self.repeats_order else self.epoch
        # the factor exceeds any number of epochs, so that each pair (seed, epoch) has a generator seed of its own
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = torch.randperm(len(self.lengths), generator=generator).tolist()
        incomplete = order[len(order) - len(order) % size :]  # random ones, since pools are not sorted by length yet
        order = order[: len(order) - len(incomplete)]
        if self.pool:
            order = [i for pool in pools(order, size * self.pool) for i in sorted(pool, key=self.lengths.__getitem__)]
        batches = list(pools(order, size)) + ([incomplete] if incomplete else [])
        batches = [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]
        steps = pools(batches, self.accumulated)  # the batches of each optimizer step
        return [batch for step in steps for _ in range(self.repeats) for batch in step]

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the share of this rank in each global batch, as indices of documents."""
        start, self.start = self.start, 0  # only the first epoch after resuming begins with a later batch
        for batch in self._global_batches()[start:]:
            share = batch[self.rank :: self.num_replicas]
            if share or self.shuffle:
                yield share or batch[:1]  # a rank without a share trains on a document with weight 0, see `weights`

    def weights(self) -> list[float]:
        """Return the weight of this rank in each batch of this epoch, see `Batch.weight`; 1 without shuffling."""
        if not self.shuffle:
            return [1.0] * len(self)
        batches = self._global_batches()
        shares = (len(batch[self.rank :: self.num_replicas]) for batch in batches)
        return [share * self.num_replicas / len(batch) for share, batch in zip(shares, batches)]  # mean over ranks: 1

    def accumulation_weights(self, batches: int) -> list[float]:
        """Return the weight of each batch, so that documents of a step count equally, if an epoch runs `batches`."""
        sizes = [len(batch) for batch in self._global_batches()]  # number of documents of each
        weights: list[float] = []
        for step in pools(sizes[:batches], self.accumulated):
            weights += [self.accumulated * size / sum(step) for size in step]  # Lightning divides by `accumulated`
        return weights + [1.0] * (len(sizes) - len(weights))  # of batches that the trainer does not run


MAX_WORKERS = 4  # loader processes for each training process


def default_workers(device: str, processes: int = 1) -> int:
    """Return the number of loader processes of a training process on a type of device, `cpu` or `cuda`.

    On a CPU there are none, since they would take cores from the training. With GPUs there are up to `MAX_WORKERS`: the
    cores of the machine are divided between its training `processes`, each of which needs one core itself.
    """
    if device == "cpu":
        return 0
    # cores that this process may use, which batch systems restrict; macOS has no such function
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(0, min(MAX_WORKERS, cores // processes - 1))


def _worth_workers(dataset: Dataset, collate: Callable, documents: int) -> bool:
    """Return whether a batch of `documents` (their number) takes longer to make than to pass between processes."""
    collate([dataset[0]])  # the first call opens files, which would distort the measurement
    start = perf_counter()
    batch = collate([dataset[i] for i in range(documents)])
    collated = perf_counter()
    pickle.loads(pickle.dumps(batch, pickle.HIGHEST_PROTOCOL))  # about what a loader process does to pass a batch on
    return collated - start > perf_counter() - collated


def loader_of(
    dataset: Dataset,
    lengths: Sequence[int],
    batch_size: int,
    collate: Callable,
    split: str,
    trainer: Any = None,
    num_workers: int | None = None,
    **order: Any,
) -> "ResumableLoader":
    """Return the loader of this rank for the documents of a split; `order` has arguments of `BatchSampler`.

    `lengths` are the lengths of the documents; errors name the `split`. By default, `num_workers` is `default_workers`;
    it is 0 if making a batch is faster than passing it between processes, or without a trainer, which knows the device.

    Raises:
        UserError: if there are fewer documents than ranks.
    """
    rank, ranks = (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)
    if len(lengths) < ranks:
        documents = counted(len(lengths), "document")
        raise UserError(f"{split}: {documents} for {ranks} processes; lower --trainer.devices")
    if num_workers is None:
        num_workers = 0 if trainer is None else default_workers(trainer.strategy.root_device.type, trainer.num_devices)
        if num_workers and not _worth_workers(dataset, collate, min(batch_size, len(lengths))):
            num_workers = 0
    sampler = BatchSampler(lengths, batch_size, num_replicas=ranks, rank=rank, **order)
    return ResumableLoader(dataset, sampler, collate, num_workers, trainer)


class ResumableLoader:
    """Loader whose position is part of checkpoints, so that a run can resume in the middle of an epoch.

    It wraps a DataLoader instead of being one, because Lightning would re-instantiate it with another sampler for
    `predict`. In training, each batch gets the weights of its loss (`Batch.weight` and `Batch.accumulation_weight`).
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_sampler: BatchSampler,
        collate_fn: Callable,
        num_workers: int = 0,
        trainer: Any = None,
    ) -> None:
        self.batch_sampler = batch_sampler
        self.trainer = trainer  # knows the batches per step and epoch
        self.loader = DataLoader(
            dataset,
            batch_sampler=batch_sampler,
            collate_fn=collate_fn,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            pin_memory=torch.cuda.is_available(),
        )
        self.delivered = 0  # number of batches delivered in this epoch, including batches skipped on resuming
        self._position: dict[str, Any] | None = None  # `state_dict` of the checkpoint to resume from, until it is used

    # Lightning ends the processes of a loader by this attribute of a DataLoader; left to Python, each may take 5 s
    _iterator = property(lambda self: self.loader._iterator, lambda self, new: setattr(self.loader, "_iterator", new))

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator:
        """Yield the batches of this epoch with weights of their losses; a resumed epoch skips processed batches."""
        weights: dict[str, list[float]] = {}  # field of `Batch` -> its value in each batch of the epoch
        if self.trainer is not None and self.batch_sampler.shuffle:  # in training; the order below depends on this
            self.batch_sampler.accumulated = self.trainer.accumulate_grad_batches  # a callback may change it
            self.batch_sampler.repeats_order = bool(self.trainer.overfit_batches)
            weights["accumulation_weight"] = self.batch_sampler.accumulation_weights(self.trainer.num_training_batches)
        weights["weight"] = self.batch_sampler.weights()
        self.delivered = self.batch_sampler.start = self._resumed_batches()
        for batch in self.loader:
            for name, batch_weights in weights.items():
                if batch_weights[self.delivered] != 1:  # 1 is the default of both fields
                    setattr(batch, name, batch_weights[self.delivered])
            self.delivered += 1  # before `yield`, so that a checkpoint during the step counts this batch as processed
            yield batch

    def _resumed_batches(self) -> int:
        """Return how many batches a resumed epoch skips, else 0; raise a `UserError` if their size or order changed."""
        position, self._position = self._position, None  # set by `load_state_dict`, and used only once
        if position is None or position["epoch"] != self.batch_sampler.epoch:
            return 0
        size, before = self.batch_sampler.global_batch_size, position["global_batch_size"]
        if position["batches"] and before != size:  # between epochs the size may change
            raise UserError(
                f"the checkpoint is from the middle of an epoch with batches of {before} documents, and this run has "
                f"{size} (data.batch_size x devices), so that documents would be repeated or left out; resume with "
                "the same numbers, or start another run from these weights with --start_from"
            )
        order = self.batch_sampler.order_digest()
        if position["batches"] and position.get("order", order) != order:  # checkpoints of old versions lack `order`
            raise UserError(
                "the checkpoint is from the middle of an epoch with another order of documents, which depends on their "
                "number and lengths, data.seed, data.pool and repeated updates, so that some would be repeated or left "
                "out; resume with the same values, or start another run from these weights with --start_from"
            )
        return position["batches"]

    def state_dict(self) -> dict[str, Any]:
        """Return epoch, delivered batches, global batch size and order; as loaded until a resumed epoch begins."""
        if self._position is not None:
            return dict(self._position)
        return {
            "epoch": self.batch_sampler.epoch,
            "batches": self.delivered % len(self),  # 0 after the last batch of the epoch: the next one begins
            "global_batch_size": self.batch_sampler.global_batch_size,
            "order": self.batch_sampler.order_digest(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the epoch in `state` skip batches that were processed; any other epoch begins with its first batch."""
        self._position = dict(state)
