import shutil

import pytest
import torch
import yaml
from cases import BY_NAME
from test_harness import same_weights, trainer_with

from callbacks import BestCheckpoint, CoverageAnnealing, StartFrom
from datamodules.documents import UserError
from precis.runs.run_folder import load_run

pytestmark = pytest.mark.integration

CASE = BY_NAME["pointer-coverage"]


@pytest.mark.parametrize("what", ["folder", "checkpoint"])
def test_training_starts_from_the_weights_of_a_run_with_a_fresh_optimizer(what, trained, tiny_config, precis, tmp_path):
    run, source = tmp_path / "run", trained if what == "folder" else trained / "checkpoints" / "last.ckpt"
    flags = [f"--start_from={source}", "--optimizer=SGD", "--optimizer.lr=0", "--trainer.max_steps=2"]
    flags += ["--trainer.callbacks+=EMAWeightAveraging", "--trainer.callbacks.update_starting_at_step=9"]
    precis("fit", "--config", tiny_config, *flags, "--run_dir", run).succeeded()
    taken = load_run(trained, trained / "checkpoints" / ("best.ckpt" if what == "folder" else "last.ckpt")).model
    assert same_weights(load_run(run, run / "checkpoints" / "last.ckpt").model, taken)
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 2 and saved["optimizer_states"][0]["param_groups"][0]["lr"] == 0


def test_a_resumed_run_continues_with_its_own_weights(trained, run_folder, precis):
    precis("fit", "--run", run_folder, "--start_from=nowhere", "--trainer.max_epochs=3").succeeded()
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


def fit_a_step(model, files, *callbacks):
    trainer = trainer_with(*callbacks, max_steps=1, limit_val_batches=0)
    trainer.fit(model, CASE.build_data(files))
    return model, trainer


def test_what_does_not_fit_is_refused(corpus_files, trained, tmp_path):
    fit_a_step(CASE.build_model(), corpus_files, StartFrom(trained))
    with pytest.raises(UserError, match="no checkpoint"):
        fit_a_step(CASE.build_model(), corpus_files, StartFrom(tmp_path))
    with pytest.raises(UserError, match="does not fit the model"):
        fit_a_step(CASE.build_model(hidden_size=8), corpus_files, StartFrom(trained))
    # a run with coverage is not resumed from weights without it
    with pytest.raises(UserError, match=r"network\.attention\.coverage is absent there"):
        CASE.build_model().on_load_checkpoint({"state_dict": CASE.build_model(coverage=False).state_dict()})


def saving_in(run) -> BestCheckpoint:
    return BestCheckpoint(run / "checkpoints", filename="best", every_n_train_steps=1)


def test_coverage_is_added_to_a_trained_model_without_it(corpus_files, tmp_path):
    before, _ = fit_a_step(CASE.build_model(coverage=False), corpus_files, saving_in(tmp_path))
    model = CASE.build_model()
    initial = model.network.attention.coverage.detach().clone()
    model.configure_optimizers = lambda: torch.optim.SGD(model.parameters(), lr=0)
    fit_a_step(model, corpus_files, StartFrom(tmp_path))
    weights = model.state_dict()
    assert weights.pop("network.attention.coverage").equal(initial) and weights.keys() == before.state_dict().keys()
    assert all(weights[name].equal(tensor) for name, tensor in before.state_dict().items())


def test_coverage_is_on_though_the_first_run_never_had_it_on_unless_that_is_continued(corpus_files, tmp_path):
    saving = saving_in(tmp_path)
    before, _ = fit_a_step(CASE.build_model(), corpus_files, CoverageAnnealing(start_step=9), saving)
    assert before.coverage_gate == 0 and before.loss_weights["coverage"] == 0
    model, trainer = fit_a_step(CASE.build_model(), corpus_files, StartFrom(tmp_path))
    assert model.coverage_gate == 1 and model.loss_weights["coverage"] == 1
    terms = {name: trainer.callback_metrics[f"train/{name}"] for name in ("loss", "nll", "coverage")}
    assert terms["coverage"] > 0
    torch.testing.assert_close(terms["loss"], terms["nll"] + terms["coverage"])
    for verb in ("test", "fit"):
        model, trainer = CASE.build_model(), trainer_with(max_steps=2)
        getattr(trainer, verb)(model, CASE.build_data(corpus_files), ckpt_path=saving.best_model_path)
        assert model.coverage_gate == 0 and model.loss_weights["coverage"] == 0
