"""Values that a model, its data or the trainer refuses: one line with key and cause, for a run and for a sweep."""

import pytest
import yaml
from conftest import change_config, write
from jsonargparse import Namespace

from precis.config.value_checks import convert_batch_counts

pytestmark = pytest.mark.integration

REFUSED = {
    "data.batch_size": (-4, "data.batch_size must be at least 1, got -4"),
    "data.max_target": (1, "data.max_source must be at least 1 and max_target 2; got 30, 1"),
    "model.dropout": (1.5, "model.dropout must be between 0 and 1, got 1.5"),
    "model.decoding.min_length": (90, "min_length"),
    "trainer.val_check_interval": (5.5, "trainer.val_check_interval must be a number of batches or a share between"),
    "save_every": (-1, "save_every must be at least 0, got -1"),
}


def refused(done, *words):
    done.failed_in_one_line(*words, status=(1, 2))
    assert done.out == ""
    assert not [noise for noise in ("Namespace(", "Union", "Traceback", "NoneType") if noise in done.err], done.err


@pytest.mark.parametrize("key", REFUSED)
def test_a_run_names_key_and_cause_and_a_sweep_finds_it_before_anything_starts(key, tiny_config, tmp_path, precis):
    value, said = REFUSED[key]
    refused(precis("fit", "--config", tiny_config, "--run_dir", tmp_path / "run", f"--{key}={value}"), said)
    assert not (tmp_path / "run").exists()
    path = tmp_path / "sweep.yaml"
    points = [{"name": "good"}, {"name": "bad", key: value}]
    path.write_text(yaml.safe_dump({"base": str(tiny_config), "points": points, "after": []}), encoding="utf-8")
    refused(precis("sweep", path, "--out", tmp_path / "out"), "point 'bad'", said)
    assert not (tmp_path / "out").exists()


def config_of(tmp_path, corpus_files, model, data, **values):
    path = tmp_path / "config.yaml"
    corpus = {"class_path": "datamodules.corpora.Files", "init_args": corpus_files}
    content = {
        "model": {"class_path": f"lightning_modules.{model}", "init_args": values},
        "data": {"class_path": f"datamodules.{data}", "init_args": {"corpus": corpus}},
        "trainer": {"accelerator": "cpu"},
        "wandb": "off",
    }
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("model, data, values, said", [
    ("RSTformer", "RSTformerData", {"encoder": {"target_positions": 4}},
     "decoding.max_length 120: the decoder has 4 positions"),
    ("RSTformer", "RSTformerData", {"encoder": {"checkpoint": "/no/led"}},
     "model.encoder.checkpoint: no pretrained model '/no/led'"),
    ("Pegasus", "PegasusData", {"encoder": {"heads": 7}},
     "model.encoder.heads: 7 heads do not divide a size of 256"),
    ("GraphSum", "GraphSumData", {"label_smoothing": 2.0}, "model.label_smoothing: label_smoothing is at least 0"),
])  # fmt: skip
def test_other_models_too(model, data, values, said, corpus_files, tmp_path, precis):
    config = config_of(tmp_path, corpus_files, model, data, **values)
    refused(precis("fit", "--config", config, "--run_dir", tmp_path / "run"), said)
    sweep = write(tmp_path / "sweep.yaml", {"base": str(config), "seeds": [1]})
    refused(precis("sweep", sweep, "--out", tmp_path / "out", "--dry-run"), "point 'seed=1'", said)


@pytest.mark.skipif("__import__('torch').cuda.is_available()", reason="there is a GPU here")
def test_a_missing_gpu_is_reported(tiny_config, tmp_path, precis):
    done = precis("fit", "--config", tiny_config, "--run_dir", tmp_path / "run", "--trainer.accelerator=gpu")
    refused(done, "trainer.accelerator: no GPU here", "--trainer.accelerator cpu")


@pytest.mark.parametrize("arguments, said", [
    (["--trainer.devices=0"], "trainer.devices: `Trainer(devices='0')` value is not a valid input"),
    (["--optimizer=Adam", "--optimizer.lr=-1"], "optimizer.lr must be at least 0, got -1"),
    (["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=x", "--trainer.callbacks.patience=-1"],
     "trainer.callbacks.patience must be at least 0, got -1"),
    (["--start_from=/no/run"], "/no/run: no such checkpoint; --start_from takes one, or the folder of a run"),
    (["--trainer.callbacks+=EarlyStoping"], "did you mean pytorch_lightning.callbacks.EarlyStopping?"),
    (["--data.tokenizer=wrds"], "got 'wrds'; did you mean words?"),
])  # fmt: skip
def test_a_run_names_what_other_parts_refuse(arguments, said, tiny_config, tmp_path, precis):
    refused(precis("fit", "--config", tiny_config, "--run_dir", tmp_path / "run", *arguments), said)
    assert not (tmp_path / "run").exists()


def test_weights_of_another_model_are_refused(run_folder, corpus_files, tmp_path, precis):
    config = config_of(tmp_path, corpus_files, "Pegasus", "PegasusData")
    done = precis("fit", "--config", config, "--run_dir", tmp_path / "new", "--start_from", run_folder)
    refused(done, f"--start_from {run_folder}: has the weights of PointerGenerator, but this run trains Pegasus")
    checkpoint = run_folder / "checkpoints" / "best.ckpt"
    done = precis("validate", "--config", config, "--run_dir", tmp_path / "new", "--ckpt_path", checkpoint)
    refused(done, f"--ckpt_path {checkpoint}: has the weights of PointerGenerator, but this run trains Pegasus")


@pytest.mark.parametrize("logger, key", [
    ({"class_path": "CometLogger", "init_args": {"api_key": "abc"}}, "api_key"),
    ({"class_path": "MLFlowLogger", "init_args": {"tracking_uri": "https://me:abc@example.org"}}, "tracking_uri"),
])  # fmt: skip
def test_a_key_in_a_config_is_refused_before_it_is_written(logger, key, tiny_config, tmp_path, precis):
    logger["class_path"] = f"pytorch_lightning.loggers.{logger['class_path']}"
    path = change_config(tiny_config, {"trainer.logger": logger}, tmp_path / "config.yaml")
    done = precis("fit", "--config", path, "--run_dir", tmp_path / "run")
    refused(done, f"trainer.logger.{key}: a key or password would be kept")
    assert "abc" not in done.err and not (tmp_path / "run").exists()


def test_whole_numbers_of_batches_are_integers_however_they_were_read():
    trainer = Namespace(limit_train_batches=2.0, limit_val_batches=1.0, limit_test_batches=0.5, overfit_batches=3)
    convert_batch_counts(trainer)
    assert repr(list(vars(trainer).values())) == "[2, 1.0, 0.5, 3]"
