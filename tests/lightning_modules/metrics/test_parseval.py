import math
import random

import pytest
import torch
from conftest import GUM, needs_gum

from datamodules.discourse.relations import coarsened
from datamodules.discourse.treebanks import read_treebank
from lightning_modules.discourse_parser.right_branching import right_branching
from lightning_modules.metrics.boundaries import BoundaryF1
from lightning_modules.metrics.parseval import LEVELS, Parseval, parseval_counts, parseval_scores

# over EDUs 0 1 2 3: ((0 1) (2 3)) and (0 ((1 2) 3)), and one that differs from the first in labels alone
TARGET = [(0, 1, 3, "NN", "list"), (0, 0, 1, "NS", "cause"), (2, 2, 3, "SN", "elab")]
OTHER = [(0, 0, 3, "NN", "list"), (1, 2, 3, "NS", "cause"), (1, 1, 2, "SN", "elab")]


def random_tree(rng: random.Random, start: int, end: int) -> list[tuple]:
    if start == end:
        return []
    split = rng.randrange(start, end)
    node = (start, split, end, rng.choice(["NS", "SN", "NN"]), rng.choice("abc"))
    return [node, *random_tree(rng, start, split), *random_tree(rng, split + 1, end)]


def as_sets(nodes: list[tuple], characters: list[int], variant: str) -> tuple[set, ...]:
    """Nodes as sets of the positions that they cover, by a plain loop."""

    def covered(first: int, last: int) -> frozenset:
        ends = [*characters[1:], 99]
        return frozenset(range(characters[first], ends[last]))

    labelled = []
    for start, split, end, letters, relation in nodes:
        if variant == "original":
            labelled.append((covered(start, end), letters, relation))
            continue
        for extent, letter in (((start, split), letters[0]), ((split + 1, end), letters[1])):
            single = letters != "NN" and letter == "N"
            labelled.append((covered(*extent), letter, "span" if single else relation))
    return (
        {node[:1] for node in labelled},
        {node[:2] for node in labelled},
        {(node[0], node[2]) for node in labelled},
        set(labelled),
    )


@pytest.mark.parametrize("variant", ["original", "rst"])
@pytest.mark.parametrize("seed", range(20))
def test_equals_sets_of_characters(variant, seed):
    rng = random.Random(seed)
    starts = [[0, *sorted(rng.sample(range(1, 20), rng.randrange(12)))] for _ in range(2)]
    ours, theirs = (random_tree(rng, 0, len(begins) - 1) for begins in starts)
    expected = [as_sets(nodes, begins, variant) for nodes, begins in zip((ours, theirs), starts)]
    counts = parseval_counts(ours, theirs, variant, *starts)
    assert counts[:4].tolist() == [len(one & other) for one, other in zip(*expected)]
    factor = 1 if variant == "original" else 2
    assert counts[4:].tolist() == [factor * len(ours), factor * len(theirs)]
    assert parseval_counts(ours, ours, variant).eq(factor * len(ours)).all()
    # where a text begins is no matter, where an EDU ends neither
    assert parseval_counts(TARGET, TARGET, variant, [2, 3, 6, 9], [0, 3, 6, 9]).eq(factor * 3).all()


def test_metric_is_micro_averaged():
    f1 = parseval_scores(torch.tensor([2, 2, 1, 1, 2, 3]))
    torch.testing.assert_close(f1, torch.tensor([80.0, 80.0, 40.0, 40.0]))
    metric = Parseval()
    metric.update([], [])  # a document of one EDU
    assert math.isnan(metric.compute()["original_parseval/S"])
    metric.reset()
    for predicted, target in ((TARGET, TARGET), (OTHER, TARGET), ([], [])):
        metric.update(predicted, target)
    found = metric.compute()
    assert set(found) == {f"{variant}_parseval/{level}" for variant in ("original", "rst") for level in LEVELS}
    assert found["original_parseval/S"] == pytest.approx(100 * 4 / 6)
    assert found["rst_parseval/S"] == pytest.approx(100 * 10 / 12)
    assert found["rst_parseval/N"] == pytest.approx(100 * 8 / 12)
    halves = [Parseval(), Parseval()]
    for half, tree in zip(halves, (TARGET, OTHER)):
        half.update(tree, TARGET)
    assert metric.totals.equal(halves[0].totals + halves[1].totals), "as two processes would sum them"


def test_what_cannot_be_compared():
    for arguments, said in [
        ((TARGET, TARGET, "marcu"), "unknown Parseval 'marcu'"),
        ((TARGET[1:], TARGET), "3 and 4 EDUs; give predicted_starts"),
        ((TARGET, TARGET, "original", [0, 1, 2], [0, 1, 2, 3]), "predicted tree has 4 EDUs, but 3 starts"),
        ((TARGET, TARGET, "original", [0, 1, 2, 3], [0, 1, 1, 3]), "target starts do not increase"),
        (([(0, 1, 3, "NN", "x")], TARGET[:1]), "a node lies outside"),
    ]:
        with pytest.raises(ValueError, match=said):
            parseval_counts(*arguments)


@needs_gum
def test_right_branching_on_gum():
    """Measured once for this baseline by another program: 52.1, 22.7, 12.0, 12.0."""
    metric = Parseval()
    for document in coarsened(read_treebank(GUM / "val.jsonl.gz")):
        metric.update(right_branching(document).spans(), document.tree.binary().spans())
    found = {name: round(float(value), 1) for name, value in metric.compute().items()}
    assert [found[f"original_parseval/{level}"] for level in LEVELS] == [52.1, 22.7, 12.0, 12.0]
    assert found["rst_parseval/S"] > 70


def test_boundaries_are_counted_over_all_texts():
    metric = BoundaryF1()
    metric.update({0, 4, 9}, {0, 5, 9, 12}, {0})  # two hits, one of them given
    metric.update({0, 3}, {0, 3}, {0})
    scores = {name: value.item() for name, value in metric.compute().items()}
    expected = {"precision": 4 / 5, "recall": 4 / 6, "f1": 8 / 11}
    inner = {"inner_precision": 2 / 3, "inner_recall": 2 / 4, "inner_f1": 4 / 7}
    assert scores == pytest.approx({name: 100 * value for name, value in (expected | inner).items()})
    metric.reset()  # where there is no boundary, none is found
    metric.update([0], [0], [0])
    assert metric.compute()["inner_f1"] == 100
    metric.update([0, 2], [0], [0])
    assert metric.compute()["inner_f1"] == 0 and metric.compute()["f1"] < 100
    metric.reset()
    metric.update([], [5])
    assert metric.compute()["f1"] == torch.tensor(0.0)
