import json
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from cases import BY_NAME, Case
from conftest import change_config
from pytorch_lightning import Callback, seed_everything
from pytorch_lightning.callbacks import GradientAccumulationScheduler, LambdaCallback, ModelCheckpoint
from pytorch_lightning.demos.boring_classes import BoringModel
from quiet_trainer import quiet_trainer
from test_harness import trainer_with

from callbacks import BestCheckpoint, CoverageAnnealing, LengthCurriculum, MonitorCheck, SelfCritical
from callbacks.schedules import all_switches
from precis.runs.run_folder import best_checkpoint

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
        trainer = SimpleNamespace(lightning_module=SimpleNamespace(has_coverage=True))
        assert [annealing.switches(trainer, step)["coverage_weight"].value for step in range(8)] == expected
    assert CoverageAnnealing(start_step=0).switches(trainer, 0)["coverage_weight"].fully_on
    for arguments in ({}, {"start_step": 1, "start_epoch": 1}):
        with pytest.raises(ValueError, match="CoverageAnnealing needs"):
            CoverageAnnealing(**arguments)
    model = SimpleNamespace(loss_weights={})
    with pytest.raises(ValueError, match="needs a model with coverage"):
        annealing.setup(None, model, "fit")
    annealing.setup(None, model, "test")


@pytest.mark.parametrize("accumulate, steps", [(1, 14), (3, 6), ({0: 3, 1: 2}, 7)], ids=str)
def test_an_epoch_is_counted_in_optimizer_steps(accumulate, steps, corpus_files):
    rows = []

    def see(trainer, model, *_):
        rows.append((trainer.global_step, model.coverage_gate, model.loss_weights["coverage"]))

    callbacks = [CoverageAnnealing(start_epoch=1), LambdaCallback(on_train_batch_start=see)]
    if isinstance(accumulate, dict):
        callbacks, accumulate = [*callbacks, GradientAccumulationScheduler(accumulate)], 1
    trained_with(callbacks, corpus_files, accumulate)
    assert len(rows) == 14 and rows[-1][0] == steps - 1
    assert [row[1:] for row in rows] == [(0.0, 0.0)] * 7 + [(1.0, 1.0)] * 7  # seven batches an epoch


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
    trainer = quiet_trainer(curriculum, seen, max_steps=4, limit_val_batches=0)
    trainer.fit(model, data)
    assert trainer.callback_metrics["train/max_source"] == 6, "the length of this step, not of the next one"
    assert data.lengths_now == (data.max_source, data.max_target) == (30, 12)
    trainer.test(model, data, verbose=False)
    assert train == [(6, 2)] * 4 and tested and all(source > 18 and target == 8 for source, target in tested)


def fit(case: Case, files, callbacks: list, folder: Path, monitor: str = "val/loss", **arguments):
    """Train with 14 steps and a validation after each second one; return the trainer and the best checkpoint's path."""
    seed_everything(5, verbose=False)
    best = BestCheckpoint(folder, filename="best", monitor=monitor, mode="min", enable_version_counter=False)
    trainer = trainer_with(*callbacks, best, val_check_interval=2, limit_val_batches=1, **arguments)
    trainer.fit(case.build_model(val_summaries=0), case.build_data(files))
    return trainer, best.best_model_path


def test_the_step_before_the_validation_counts(corpus_files, tmp_path):
    """A validation at the very step at which coverage starts scores weights that never saw it."""
    for start, ramp, expected in ((3, 0, 4), (4, 0, 6), (2, 7, 9)):  # steps 2 to 8 ramp
        annealing = CoverageAnnealing(start, ramp_steps=ramp)
        _, path = fit(COVERAGE, corpus_files, [annealing], tmp_path / str(start), "train/coverage_weight")
        assert torch.load(path, weights_only=True)["global_step"] == expected
    # a model without coverage does not wait for it
    _, path = fit(BY_NAME["pointer"], corpus_files, [CoverageAnnealing(start_step=9)], tmp_path)
    assert torch.load(path, weights_only=True)["switches"] == {}


def test_states_of_switches(corpus_files, tmp_path):
    callbacks = [CoverageAnnealing(4, ramp_steps=2), SelfCritical(start_step=6, gamma=0.5), LengthCurriculum(8, 3, 3)]
    trainer, _ = fit(COVERAGE, corpus_files, callbacks, tmp_path, max_steps=1)
    lengths = {0: (8, 3), 4: (15, 6), 6: (23, 9), 9: (30, 12)}
    for step, gate, weight, gamma in ((0, 0, 0, 0), (4, 1, 0.5, 0), (6, 1, 1, 0.5), (9, 1, 1, 0.5)):
        assert all_switches(trainer, step) == {
            "coverage_gate": (gate, 1), "coverage_weight": (weight, 1), "gamma": (gamma, 0.5),
            "max_source": (lengths[step][0], 30), "max_target": (lengths[step][1], 12),
        }  # fmt: skip


@pytest.mark.integration
def test_the_command_tests_what_is_fully_on_and_says_if_nothing_is(tiny_config, tmp_path, precis, caplog):
    """In 14 steps with coverage from step 8, and a validation after each second step; and in the first 7 of them."""
    changes = {
        "model.init_args.val_summaries": 0,
        "trainer.val_check_interval": 2,
        "trainer.callbacks": [{"class_path": "callbacks.CoverageAnnealing", "init_args": {"start_step": 8}}],
        "checkpoint": {"monitor": "train/coverage_weight", "mode": "min"},
    }
    config, run = change_config(tiny_config, changes, tmp_path / "config.yaml"), tmp_path / "run"
    precis("fit", "--config", config, "--run_dir", run).succeeded()
    precis("test", "--run", run).succeeded()
    best = run / "checkpoints" / "best.ckpt"
    assert f"{best}: trained for 9 steps; coverage_gate 1 (fully on); coverage_weight 1 (fully on)" in caplog.text
    record = json.loads((run / "predictions.checkpoint.json").read_text(encoding="utf-8"))
    switches = {"coverage_gate": [1.0, 1.0], "coverage_weight": [1.0, 1.0]}
    assert record == {"checkpoint": str(best), "step": 9, "loss_weights": {"coverage": 1.0}, "switches": switches}
    run = tmp_path / "short"
    with pytest.warns(UserWarning, match="there is no best checkpoint, and `precis test` scores the last one"):
        assert precis("fit", "--config", config, "--run_dir", run, "--trainer.max_steps=7").status == 0
    assert best_checkpoint(run).name == "last.ckpt"
    with pytest.warns(UserWarning, match="was saved before coverage_gate, coverage_weight was fully on"):
        assert precis("test", "--run", run).status == 0
    assert "last.ckpt: trained for 7 steps; coverage_gate 0 of 1; coverage_weight 0 of 1" in caplog.text
    record = json.loads((run / "predictions.checkpoint.json").read_text(encoding="utf-8"))
    assert record["step"] == 7 and record["switches"]["coverage_gate"] == [0.0, 1.0]


class Scored(BoringModel):
    language = "en"

    def __init__(self, losses: list[float], scores: list[float]) -> None:
        super().__init__()
        self.losses, self.scores = losses, scores

    def training_step(self, batch, batch_idx):
        self.log("train/loss", self.losses[self.current_epoch], batch_size=1)
        return self.layer.weight.sum()

    def validation_step(self, batch, batch_idx):
        self.log("val/rouge1", self.scores[self.current_epoch], batch_size=1)


def warned(folder, losses: list[float], scores: list[float]) -> list[str]:
    saving = ModelCheckpoint(folder, monitor="val/rouge1", mode="max")
    trainer = quiet_trainer(MonitorCheck(), saving, max_epochs=len(losses), enable_checkpointing=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(Scored(losses, scores), [0], [0])
    return [str(warning.message) for warning in caught if "val/rouge1" in str(warning.message)]


def test_a_score_that_never_moves_while_the_loss_falls_is_one_warning(tmp_path):
    (warning,) = warned(tmp_path, [5.0, 4.9, 4.8, 4.7, 4.6, 3.0, 2.0], [0.0] * 7)
    assert warning == (
        "checkpoint.monitor val/rouge1 is 0 in all 6 validations, while train/loss falls from 5 to 3, so that no "
        "checkpoint is better than the first; set --data.language if the texts are not in language 'en' (xx for any), "
        "or monitor another value with --checkpoint.monitor"
    )
    assert not warned(tmp_path, [5.0, 4.0, 3.0, 2.0], [0.0] * 4), "few validations"
    assert not warned(tmp_path, [5.0] * 7, [0.0] * 7), "the loss stays"
    assert not warned(tmp_path, [5.0, 4.0, 3.0, 2.0, 1.0], [0.0] * 4 + [0.1]), "the score moves"
