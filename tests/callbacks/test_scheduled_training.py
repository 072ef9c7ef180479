"""Coverage and lengths that change while a model is trained."""

from types import SimpleNamespace

import pytest
import torch
from cases import BY_NAME
from pytorch_lightning import Callback, seed_everything
from pytorch_lightning.callbacks import LambdaCallback
from quiet_trainer import quiet_trainer

from callbacks import CoverageAnnealing, LengthCurriculum

COVERAGE, PLAIN = BY_NAME["pointer-coverage"], BY_NAME["seq2seq"]


def lengths_of_batches() -> tuple[list, list, LambdaCallback]:
    """Longest document and summary of each batch in training, and in validation or test, and what collects them."""
    train, other = [], []

    def collect(rows: list):
        return lambda trainer, model, batch, *_: rows.append((batch.source.shape[1], batch.target.shape[1]))

    starts = {f"on_{stage}_batch_start": collect(other) for stage in ("validation", "test")}
    return train, other, LambdaCallback(on_train_batch_start=collect(train), **starts)


def trained_with(callbacks: list[Callback], files, accumulate: int = 1, **model):
    seed_everything(3, verbose=False)
    trainer = quiet_trainer(*callbacks, max_epochs=2, limit_val_batches=0, accumulate_grad_batches=accumulate)
    trained = COVERAGE.build_model(**model)
    trainer.fit(trained, COVERAGE.build_data(files))
    return trained.state_dict()


def test_weight_is_a_ramp_and_one_start_and_a_model_with_coverage_are_needed():
    for ramp, weight, expected in ((0, 1.0, [0, 0, 0, 1, 1, 1, 1, 1]), (2, 3.0, [0, 0, 0, 1.5, 3, 3, 3, 3])):
        annealing = CoverageAnnealing(start_step=3, ramp_steps=ramp, weight=weight)
        assert [annealing.weight_at(step, 3) for step in range(8)] == expected
    assert CoverageAnnealing(start_step=0).weight_at(0, 0) == 1
    for arguments in ({}, {"start_step": 1, "start_epoch": 1}):
        with pytest.raises(ValueError, match="CoverageAnnealing needs"):
            CoverageAnnealing(**arguments)
    model = SimpleNamespace(loss_weights={})
    with pytest.raises(ValueError, match="needs a model with coverage"):
        annealing.setup(None, model, "fit")
    annealing.setup(None, model, "test")


@pytest.mark.parametrize("accumulate, steps", [(1, 7), (3, 3)])
def test_an_epoch_is_counted_in_optimizer_steps(accumulate, steps, corpus_files):
    rows = []
    seen = LambdaCallback(
        on_train_batch_start=lambda trainer, model, *_: rows.append(
            (trainer.global_step, model.coverage_gate, model.loss_weights["coverage"])
        )
    )
    trained_with([CoverageAnnealing(start_epoch=1), seen], corpus_files, accumulate)
    assert len(rows) == 14 and rows[-1][0] == 2 * steps - 1
    assert [gate for _, gate, _ in rows] == [0.0] * 7 + [1.0] * 7  # seven batches an epoch
    assert all(gate == weight for _, gate, weight in rows)


def test_a_model_built_without_coverage_trains_as_if_it_were_not_there(corpus_files):
    with_it = trained_with([CoverageAnnealing(start_step=1)], corpus_files, coverage=False)
    without = trained_with([], corpus_files, coverage=False)
    assert all(torch.equal(with_it[name], without[name]) for name in without)


def test_lengths_grow_in_equal_stages_and_data_that_cannot_be_cut_is_refused_in_training_only():
    curriculum = LengthCurriculum(source=100, target=25, steps=10, stages=4)
    table = {0: (100, 25), 9: (100, 25), 10: (200, 50), 19: (200, 50), 20: (300, 75), 30: (400, 100), 10**6: (400, 100)}
    assert {step: curriculum.lengths_at(step, (400, 100)) for step in table} == table
    # never longer than the data's own lengths, also where those are short
    assert {curriculum.lengths_at(step, (60, 100))[0] for step in range(40)} == {60}
    for attributes, message in (
        ({"num_workers": None}, "SimpleNamespace does not truncate documents"),
        ({"num_workers": 2, "lengths_now": (1, 1)}, "needs --data.num_workers 0"),
    ):
        trainer = SimpleNamespace(datamodule=SimpleNamespace(**attributes))
        with pytest.raises(ValueError, match=message):
            curriculum.setup(trainer, None, "fit")
        curriculum.setup(trainer, None, "test")


def test_batches_are_cut_while_training_and_whole_in_validation_and_test(corpus_files):
    data, model, (train, validated, seen) = PLAIN.build_data(corpus_files), PLAIN.build_model(), lengths_of_batches()
    curriculum = LengthCurriculum(source=6, target=2, steps=4, stages=3)  # 6, 18 and 30 source tokens, four steps each
    quiet_trainer(curriculum, seen, max_epochs=2, val_check_interval=3, num_sanity_val_steps=1).fit(model, data)
    documents = {split: [len(row["source"]) for row in data.features(split)] for split in ("train", "val")}
    assert min(documents["train"] + documents["val"]) > 18
    # the last stage is that of the data, 30 and 12; all summaries have 8 tokens
    assert train[:8] == [(6, 2)] * 4 + [(18, 7)] * 4 and len(train) == 14
    assert all(18 < source <= 30 and target == 8 for source, target in train[8:])
    # the sanity check, then twice an epoch, two batches each
    assert len(validated) == 1 + 4 * 2 and all(source > 18 and target == 8 for source, target in validated)
    # a test after a training that ended in the first stage
    data, (train, tested, seen) = PLAIN.build_data(corpus_files), lengths_of_batches()
    trainer = quiet_trainer(curriculum, seen, max_steps=2, limit_val_batches=0)
    trainer.fit(model, data)
    assert data.lengths_now == (data.max_source, data.max_target) == (30, 12)
    trainer.test(model, data, verbose=False)
    assert train == [(6, 2)] * 2 and tested and all(source > 18 and target == 8 for source, target in tested)
