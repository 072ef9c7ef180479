import random
from collections import defaultdict
from itertools import islice
from statistics import mean
from types import SimpleNamespace

import pytest
import torch

from datamodules.documents import UserError
from datamodules.loading import BatchSampler, ResumableLoader


def lengths(number):
    return [random.Random(i).randint(1, 99) for i in range(number)]


@pytest.mark.parametrize("number", [1, 7, 24, 25, 53])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("pool", [0, 2, 50])
def test_one_rank_sees_every_document_once(number, shuffle, pool):
    sampler = BatchSampler(lengths(number), 4, shuffle, pool=pool)
    batches = list(sampler)
    assert sorted(i for batch in batches for i in batch) == list(range(number)) and len(batches) == len(sampler)
    assert sorted(map(len, batches))[1:] == [4] * (len(batches) - 1)


def loaders(number, ranks, batch_size=2):
    """A loader for each rank, over batches of document numbers."""
    for rank in range(ranks):
        sampler = BatchSampler(lengths(number), batch_size, True, seed=3, num_replicas=ranks, rank=rank)
        sampler.set_epoch(2)
        yield ResumableLoader(range(number), sampler, lambda rows: SimpleNamespace(rows=rows, weight=1.0))


@pytest.mark.parametrize("number", [5, 24, 25, 50, 53])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_share_the_batches_of_one_rank_with_a_larger_batch(number, ranks):
    shares = [list(loader) for loader in loaders(number, ranks)]
    assert len({len(share) for share in shares}) == 1, "every rank takes part in every step"
    whole = [batch.rows for (loader,) in [loaders(number, 1, 2 * ranks)] for batch in loader]
    values = [random.Random(i).random() for i in range(number)]
    for parts, batch in zip(zip(*shares), whole, strict=True):
        assert sorted(i for part in parts if part.weight for i in part.rows) == sorted(batch)
        # the mean over ranks of what each one computes is the mean over the documents of the batch
        means = [part.weight * mean(values[i] for i in part.rows) for part in parts]
        assert mean(means) == pytest.approx(mean(values[i] for i in batch)) and all(part.rows for part in parts)


@pytest.mark.parametrize("number, batches", [(25, 99), (28, 99), (48, 99), (48, 7)])
@pytest.mark.parametrize("ranks", [1, 2])
def test_accumulated_batches_have_the_mean_of_their_documents(number, batches, ranks):
    """Also with fewer batches in the last step, and a smaller one among them."""
    values, sums, documents = [random.Random(i).random() for i in range(number)], defaultdict(float), defaultdict(list)
    for loader in loaders(number, ranks):
        loader.trainer = SimpleNamespace(accumulate_grad_batches=4, num_training_batches=batches, overfit_batches=0)
        for place, batch in enumerate(islice(loader, batches)):
            weight = batch.weight * getattr(batch, "accumulation_weight", 1.0)
            sums[place // 4] += weight * mean(values[i] for i in batch.rows) / 4 / ranks
            documents[place // 4] += batch.rows if batch.weight else []
    assert sums == pytest.approx({step: mean(values[i] for i in rows) for step, rows in documents.items()})


@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_batches_of_a_step_are_repeated_together(accumulated):
    once, thrice = (BatchSampler(lengths(30), 4, True, seed=5, repeats=repeats) for repeats in (1, 3))
    thrice.accumulated, batches = accumulated, list(once)
    expected = []
    for start in range(0, len(batches), accumulated):
        expected += 3 * batches[start : start + accumulated]
    assert list(thrice) == expected and len(thrice) == len(thrice.weights()) == len(expected) == 24


@pytest.mark.parametrize("number", [5, 24, 25])
@pytest.mark.parametrize("rank", range(2))
def test_evaluation_repeats_nothing_and_deals_out_in_turn(number, rank):
    sampler = BatchSampler(lengths(number), 3, False, num_replicas=2, rank=rank)
    batches = list(sampler)
    assert [i for batch in batches for i in batch] == list(range(rank, number, 2)) and len(sampler) == len(batches)


def test_the_order_is_a_function_of_seed_and_epoch_and_pools_bring_similar_lengths_together():
    orders = []
    for seed, epoch in ((1, 0), (1, 0), (1, 1), (2, 1)):
        sampler = BatchSampler(lengths(40), 4, True, seed=seed)
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
    assert orders[0] == orders[1] != orders[2] != orders[3]
    sizes = lengths(400)

    def padding(pool):
        batches = list(BatchSampler(sizes, 8, True, pool=pool))
        return sum(max(sizes[i] for i in batch) * len(batch) - sum(sizes[i] for i in batch) for batch in batches)

    assert padding(50) < padding(0) / 4


def loader_of_epoch(epoch, batch_size=4, number=30, **order):
    sampler = BatchSampler(lengths(number), batch_size, True, **{"seed": 5} | order)
    sampler.set_epoch(epoch)
    return ResumableLoader(torch.arange(number), sampler, torch.stack)


def test_overfitting_reads_the_same_batches_in_each_epoch():
    loaders_of_epochs = [loader_of_epoch(epoch) for epoch in (0, 1)]
    for loader in loaders_of_epochs:
        loader.trainer = SimpleNamespace(accumulate_grad_batches=1, num_training_batches=8, overfit_batches=2)
    first, second = ([batch.tolist() for batch in loader] for loader in loaders_of_epochs)
    assert first == second and loaders_of_epochs[1].state_dict()["epoch"] == 1


def test_an_interrupted_epoch_continues_after_the_last_batch_handed_out_and_one_that_ended_early_does_not():
    whole = [batch.tolist() for batch in loader_of_epoch(2)]
    interrupted, resumed = loader_of_epoch(2), loader_of_epoch(2)
    batches = iter(interrupted)
    for _ in range(3):
        next(batches)
    middle = interrupted.state_dict()
    resumed.load_state_dict(middle)
    assert resumed.state_dict() == middle, "a checkpoint may be written before the first batch"
    assert [batch.tolist() for batch in resumed] == whole[3:]
    assert [batch.tolist() for batch in resumed] == whole, "the next epoch is complete"
    assert resumed.state_dict()["batches"] == 0, "an epoch's end is the start of the next"
    # an epoch after one that ended early starts with its first batch
    following = loader_of_epoch(3)
    following.load_state_dict(middle)
    assert [batch.tolist() for batch in following] == [batch.tolist() for batch in loader_of_epoch(3)]
    # with batches of another size, or in another order, it does not continue
    changes = [{"batch_size": 5}, {"pool": 0}, {"seed": 6}, {"number": 34}, {"repeats": 2}]
    for change, problem in zip(changes, ["batches of 4 documents, and this run has 5", *["another order"] * 4]):
        other = loader_of_epoch(2, **change)
        other.load_state_dict(middle)
        with pytest.raises(UserError, match=problem):
            list(other)
