"""Order and resumption: which documents make a batch, and where an interrupted epoch goes on."""

import os
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils.data import DataLoader, Dataset, Sampler


def order_seed(seed: int | None) -> int:
    """Return the seed of the training order: the given one, else the run's own (`seed_everything`), else 0."""
    return int(os.environ.get("PL_GLOBAL_SEED", 0)) if seed is None else seed


class BatchSampler(Sampler[list[int]]):
    """Batches of documents of similar length, in an order that is a pure function of seed and epoch.

    Each global batch of batch_size x num_replicas documents is dealt out to the ranks, so that r ranks with batch size
    b see in every step the documents that one rank with batch size r b sees. With shuffling, the shuffled documents are
    cut into pools of `pool` global batches, each pool is sorted by length and cut into batches, and the batches are
    shuffled. Nothing is dropped: the last global batch is smaller, and the ranks' shares of it differ by one at most.
    In training, where every rank takes part in every step, `weights` makes up for that, and a rank without a share
    repeats a document with a weight of 0.

    Args:
        lengths: of the documents; only their order matters.
        batch_size: documents per rank and batch.
        shuffle: training order; otherwise the documents' own.
        seed: of the order.
        pool: global batches that are sorted together; 0 leaves lengths mixed.
        num_replicas: number of ranks.
        rank: this one.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        shuffle: bool,
        seed: int = 0,
        pool: int = 50,
        num_replicas: int = 1,
        rank: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.lengths, self.batch_size, self.shuffle, self.seed, self.pool = lengths, batch_size, shuffle, seed, pool
        self.num_replicas, self.rank = num_replicas, rank
        self.epoch = 0
        self._training_order: tuple[int, list[list[int]]] = (-1, [])  # epoch, its global batches
        self.start = 0  # batches to leave out of the next iteration
        self.sampler = self  # where Lightning looks for set_epoch

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order."""
        self.epoch = epoch

    def __len__(self) -> int:
        size = self.batch_size * self.num_replicas
        full, rest = divmod(len(self.lengths), size)
        if self.shuffle:
            return full + (rest > 0)
        return full + (rest > self.rank)  # without repetition a rank may lack a share of the last batch

    def _global_batches(self) -> list[list[int]]:
        size = self.batch_size * self.num_replicas
        if not self.shuffle:
            order = list(range(len(self.lengths)))
            return [order[i : i + size] for i in range(0, len(order), size)]
        if self._training_order[0] != self.epoch:
            self._training_order = self.epoch, self._shuffled(size)
        return self._training_order[1]

    def _shuffled(self, size: int) -> list[list[int]]:
        """Return the global batches of this epoch, of `size` documents each."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self.lengths), generator=generator).tolist()
        last = order[len(order) - len(order) % size :]  # taken before sorting, so that its lengths are no extremes
        order = order[: len(order) - len(last)]
        step = size * self.pool or len(order) or 1
        if self.pool:
            pools = [order[i : i + step] for i in range(0, len(order), step)]
            order = [i for pool in pools for i in sorted(pool, key=self.lengths.__getitem__)]
        batches = [order[i : i + size] for i in range(0, len(order), size)] + ([last] if last else [])
        return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]

    def __iter__(self) -> Iterator[list[int]]:
        start, self.start = self.start, 0
        for batch in self._global_batches()[start:]:
            share = batch[self.rank :: self.num_replicas]
            if share or self.shuffle:
                yield share or batch[:1]

    def weights(self) -> list[float]:
        """Return the weight of each batch of this epoch, see `Batch.weight`; 1 outside of training."""
        if not self.shuffle:
            return [1.0] * len(self)
        batches = self._global_batches()
        shares = (len(batch[self.rank :: self.num_replicas]) for batch in batches)
        return [share * self.num_replicas / len(batch) for share, batch in zip(shares, batches)]


class ResumableLoader:
    """Batches that Lightning saves in checkpoints: an epoch goes on after the last one that was handed out.

    It has a DataLoader and is none: Lightning would make that anew for `predict`, with a sampler of its own.
    """

    def __init__(
        self, dataset: Dataset, batch_sampler: BatchSampler, collate_fn: Callable, num_workers: int = 0
    ) -> None:
        self.batch_sampler = batch_sampler
        self.loader = DataLoader(
            dataset,
            batch_sampler=batch_sampler,
            collate_fn=collate_fn,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            pin_memory=torch.cuda.is_available(),
        )
        self.delivered = 0

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator:
        self.delivered = self.batch_sampler.start
        weights = self.batch_sampler.weights()
        for batch in self.loader:
            if weights[self.delivered] != 1:
                batch.weight = weights[self.delivered]
            self.delivered += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """How many batches of the epoch are done; 0 at its end."""
        return {"batches": self.delivered % max(1, len(self))}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Leaves out what is done, once."""
        self.batch_sampler.start = state["batches"]
