import pytest
import torch
from cases import CASES
from test_harness import Recorder, same_weights, trainer_with

from callbacks import StartFrom
from datamodules.documents import CorpusError
from experiments.run_folder import load_run

CASE = next(case for case in CASES if case.name == "pointer-coverage")


@pytest.mark.parametrize("what", ["folder", "checkpoint"])
def test_training_starts_from_the_weights_of_a_run_with_a_fresh_optimizer(what, trained, tiny_config, precis, tmp_path):
    run, source = tmp_path / "run", trained if what == "folder" else trained / "checkpoints" / "last.ckpt"
    flags = ["--trainer.callbacks+=callbacks.StartFrom", f"--trainer.callbacks.run={source}"]
    flags += [f"--data.text={trained}/text", "--optimizer=SGD", "--optimizer.lr=0", "--trainer.max_steps=2"]
    done = precis("fit", "--config", tiny_config, *flags, "--run_dir", run)
    assert done.status == 0, done.err
    taken = load_run(trained, trained / "checkpoints" / ("best.ckpt" if what == "folder" else "last.ckpt")).model
    assert same_weights(load_run(run, run / "checkpoints" / "last.ckpt").model, taken)
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 2 and saved["optimizer_states"][0]["param_groups"][0]["lr"] == 0


def test_a_resumed_run_goes_on_with_its_own_weights(trained, run_folder, precis):
    flags = ["--trainer.callbacks+=callbacks.StartFrom", "--trainer.callbacks.run=nowhere", "--trainer.max_epochs=3"]
    done = precis("fit", "--run", run_folder, *flags)
    assert done.status == 0, done.err
    assert torch.load(run_folder / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 21


def test_what_does_not_fit_is_refused(corpus_files, trained, tmp_path):
    def fit(run, **model):
        made, data = CASE.build_model(**model), CASE.build_data(corpus_files)
        trainer_with(StartFrom(run), Recorder(), max_steps=1, limit_val_batches=0).fit(made, data)

    fit(trained)
    with pytest.raises(CorpusError, match="no checkpoint"):
        fit(tmp_path)
    with pytest.raises(CorpusError, match="does not fit the model"):
        fit(trained, hidden_size=8)
