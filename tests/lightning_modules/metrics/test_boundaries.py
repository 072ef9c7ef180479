import pytest
import torch

from lightning_modules.metrics.boundaries import BoundaryF1


def test_counts_over_all_texts():
    metric = BoundaryF1()
    metric.update({0, 4, 9}, {0, 5, 9, 12}, {0})  # two hits, one of them given
    metric.update({0, 3}, {0, 3}, {0})
    scores = {name: value.item() for name, value in metric.compute().items()}
    expected = {"precision": 4 / 5, "recall": 4 / 6, "f1": 8 / 11}
    inner = {"inner_precision": 2 / 3, "inner_recall": 2 / 4, "inner_f1": 4 / 7}
    assert scores == pytest.approx({name: 100 * value for name, value in (expected | inner).items()})


def test_nothing_found_where_nothing_is():
    metric = BoundaryF1()
    metric.update([0], [0], [0])
    assert metric.compute()["inner_f1"] == 100
    metric.update([0, 2], [0], [0])
    assert metric.compute()["inner_f1"] == 0 and metric.compute()["f1"] < 100
    metric.reset()
    metric.update([], [5])
    assert metric.compute()["f1"] == torch.tensor(0.0)
