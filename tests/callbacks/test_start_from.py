import shutil

import pytest
import torch
import yaml
from cases import CASES
from test_harness import Recorder, same_weights, trainer_with

from callbacks import BestCheckpoint, CoverageAnnealing, StartFrom
from datamodules.documents import UserError
from precis.runs.run_folder import load_run

pytestmark = pytest.mark.integration

CASE = next(case for case in CASES if case.name == "pointer-coverage")


@pytest.mark.parametrize("what", ["folder", "checkpoint"])
def test_training_starts_from_the_weights_of_a_run_with_a_fresh_optimizer(what, trained, tiny_config, precis, tmp_path):
    run, source = tmp_path / "run", trained if what == "folder" else trained / "checkpoints" / "last.ckpt"
    flags = [f"--start_from={source}", "--optimizer=SGD", "--optimizer.lr=0", "--trainer.max_steps=2"]
    precis("fit", "--config", tiny_config, *flags, "--run_dir", run).succeeded()
    taken = load_run(trained, trained / "checkpoints" / ("best.ckpt" if what == "folder" else "last.ckpt")).model
    assert same_weights(load_run(run, run / "checkpoints" / "last.ckpt").model, taken)
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 2 and saved["optimizer_states"][0]["param_groups"][0]["lr"] == 0


def test_a_resumed_run_continues_with_its_own_weights(trained, run_folder, precis):
    flags = ["--start_from=nowhere", "--trainer.max_epochs=3"]
    precis("fit", "--run", run_folder, *flags).succeeded()
    assert torch.load(run_folder / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 21


def test_the_seed_names_the_run_and_its_text_comes_along(trained, tiny_config, precis, tmp_path):
    place, run = tmp_path / "run_{seed}", tmp_path / "tuned"
    shutil.copytree(trained, tmp_path / "run_7")
    flags = [f"--start_from={place}", "--seed_everything=7", "--trainer.max_steps=1"]
    precis("fit", "--config", tiny_config, *flags, "--run_dir", run).succeeded()
    kept = yaml.safe_load((run / "config.yaml").read_text())
    assert kept["start_from"] == str(place) and kept["data"]["init_args"]["tokenizer_dir"] == f"{tmp_path}/run_7/text"
    shutil.rmtree(tmp_path / "run_7")  # a run goes on from its own folder alone
    precis("fit", "--run", run, "--trainer.max_steps=2").succeeded()
    done = precis("fit", "--config", tiny_config, *flags, "--seed_everything=8", "--run_dir", tmp_path / "other")
    assert done.status == 1 and "run_8: no such checkpoint" in done.err
    assert not (tmp_path / "other").exists()


def test_what_does_not_fit_is_refused(corpus_files, trained, tmp_path):
    def fit(run, **model):
        made, data = CASE.build_model(**model), CASE.build_data(corpus_files)
        trainer_with(StartFrom(run), Recorder(), max_steps=1, limit_val_batches=0).fit(made, data)

    fit(trained)
    with pytest.raises(UserError, match="no checkpoint"):
        fit(tmp_path)
    with pytest.raises(UserError, match="does not fit the model"):
        fit(trained, hidden_size=8)


def test_a_run_with_coverage_is_not_resumed_from_weights_without_it():
    with pytest.raises(UserError, match=r"network\.attention\.coverage is absent there"):
        CASE.build_model().on_load_checkpoint({"state_dict": CASE.build_model(coverage=False).state_dict()})


def trained_for_a_step(files, folder, *callbacks, **model):
    """Train a model for a step, with a checkpoint; return it."""
    saved = BestCheckpoint(folder / "checkpoints", filename="best", every_n_train_steps=1)
    before = CASE.build_model(**model)
    trainer_with(*callbacks, saved, max_steps=1, limit_val_batches=0).fit(before, CASE.build_data(files))
    return before


def test_coverage_is_added_to_a_trained_model_without_it(corpus_files, tmp_path):
    before, model = trained_for_a_step(corpus_files, tmp_path, coverage=False), CASE.build_model()
    initial = model.network.attention.coverage.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0)
    model.configure_optimizers = lambda: optimizer
    trainer_with(StartFrom(tmp_path), max_steps=1, limit_val_batches=0).fit(model, CASE.build_data(corpus_files))
    weights = model.state_dict()
    torch.testing.assert_close(weights.pop("network.attention.coverage"), initial, rtol=0, atol=0)
    assert weights.keys() == before.state_dict().keys()
    for name, tensor in before.state_dict().items():
        torch.testing.assert_close(weights[name], tensor, rtol=0, atol=0)


def test_coverage_is_on_although_the_first_run_never_switched_it_on_unless_that_is_tested_or_resumed(
    corpus_files, tmp_path
):
    before = trained_for_a_step(corpus_files, tmp_path, CoverageAnnealing(start_step=9))
    assert before.coverage_gate == 0 and before.loss_weights["coverage"] == 0
    model, data = CASE.build_model(), CASE.build_data(corpus_files)
    trainer = trainer_with(StartFrom(tmp_path), max_steps=1, limit_val_batches=0)
    trainer.fit(model, data)
    assert model.coverage_gate == 1 and model.loss_weights["coverage"] == 1
    terms = {name: trainer.callback_metrics[f"train/{name}"] for name in ("loss", "nll", "coverage")}
    assert terms["coverage"] > 0
    torch.testing.assert_close(terms["loss"], terms["nll"] + terms["coverage"])
    for verb in ("test", "fit"):
        model, trainer = CASE.build_model(), trainer_with(max_steps=2)
        getattr(trainer, verb)(model, data, ckpt_path=tmp_path / "checkpoints" / "best.ckpt")
        assert model.coverage_gate == 0 and model.loss_weights["coverage"] == 0
