from types import SimpleNamespace

import pytest
import torch
from cases import CASES
from pytorch_lightning import Callback, seed_everything
from quiet_trainer import quiet_trainer

from callbacks import CoverageAnnealing

CASE = next(case for case in CASES if case.name == "pointer-coverage")


class Seen(Callback):
    """The optimizer step that each batch belongs to, and gate and weight that it is trained with."""

    def __init__(self):
        self.rows = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.rows.append((trainer.global_step, pl_module.coverage_gate, pl_module.loss_weights["coverage"]))


def trained_with(callbacks: list[Callback], files, accumulate: int = 1, **model):
    seed_everything(3, verbose=False)
    trainer = quiet_trainer(*callbacks, max_epochs=2, limit_val_batches=0, accumulate_grad_batches=accumulate)
    trained = CASE.build_model(**model)
    trainer.fit(trained, CASE.build_data(files))
    return trained.state_dict()


@pytest.mark.parametrize(
    "ramp, weight, expected",
    [
        (0, 1.0, [0, 0, 0, 1, 1, 1, 1, 1]),
        (4, 1.0, [0, 0, 0, 0.25, 0.5, 0.75, 1, 1]),
        (2, 3.0, [0, 0, 0, 1.5, 3, 3, 3, 3]),
    ],
)
def test_weight_is_a_ramp(ramp, weight, expected):
    annealing = CoverageAnnealing(start_step=3, ramp_steps=ramp, weight=weight)
    assert [annealing.weight_at(step, 3) for step in range(8)] == expected
    assert CoverageAnnealing(start_step=0).weight_at(0, 0) == 1


@pytest.mark.parametrize("accumulate, steps", [(1, 7), (3, 3)])
def test_an_epoch_is_counted_in_optimizer_steps(accumulate, steps, corpus_files):
    seen = Seen()
    trained_with([CoverageAnnealing(start_epoch=1), seen], corpus_files, accumulate)
    assert len(seen.rows) == 14 and seen.rows[-1][0] == 2 * steps - 1
    assert [gate for _, gate, _ in seen.rows] == [0.0] * 7 + [1.0] * 7  # seven batches an epoch
    assert all(gate == weight for _, gate, weight in seen.rows)


def test_one_start_is_needed():
    for arguments in ({}, {"start_step": 1, "start_epoch": 1}):
        with pytest.raises(ValueError, match="CoverageAnnealing needs"):
            CoverageAnnealing(**arguments)


def test_a_model_without_the_term_is_refused_in_training_only():
    model, annealing = SimpleNamespace(loss_weights={}), CoverageAnnealing(start_step=1)
    with pytest.raises(ValueError, match="needs a model with coverage"):
        annealing.setup(None, model, "fit")
    annealing.setup(None, model, "test")


def test_a_model_built_without_coverage_trains_as_if_it_were_not_there(corpus_files):
    with_it = trained_with([CoverageAnnealing(start_step=1)], corpus_files, coverage=False)
    without = trained_with([], corpus_files, coverage=False)
    assert all(torch.equal(with_it[name], without[name]) for name in without)
