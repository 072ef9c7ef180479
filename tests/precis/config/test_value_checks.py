"""Values that a model, its data or the trainer refuses: one line with key and cause, for a run and for a sweep."""

import pytest
import yaml
from conftest import change_config
from jsonargparse import Namespace

from precis.config.parse_errors import explain
from precis.config.value_checks import convert_batch_counts
from precis.runs.run_folder import load_run

pytestmark = pytest.mark.integration

REFUSED = {
    "data.batch_size": (-4, "data.batch_size must be at least 1, got -4"),
    "data.max_target": (1, "data.max_source must be at least 1 and max_target 2; got 30, 1"),
    "model.dropout": (1.5, "model.dropout must be between 0 and 1, got 1.5"),
    "model.decoding.beam_size": (0, "model.decoding.beam_size must be at least 1, got 0"),
    "model.decoding.min_length": (90, "min_length"),
    "trainer.val_check_interval": (5.5, "trainer.val_check_interval must be a number of batches or a share between"),
    "save_every": (-1, "save_every must be at least 0, got -1"),
}


def refused(done, *words):
    assert done.status in (1, 2) and done.out == ""
    assert done.err.startswith("precis: error: ") and done.err.count("\n") == 1, done.err
    for word in words:
        assert word in done.err, done.err
    for noise in ("Namespace(", "Union", "Traceback", "NoneType"):
        assert noise not in done.err


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


@pytest.mark.parametrize(
    "model, data, values, said",
    [
        ("RSTformer", "RSTformerData", {"encoder": {"target_positions": 4}},
         "decoding.max_length 120: the decoder has 4 positions"),
        ("RSTformer", "RSTformerData", {"encoder": {"checkpoint": "/no/led"}},
         "model.encoder.checkpoint: no pretrained model '/no/led'"),
        ("Pegasus", "PegasusData", {"encoder": {"heads": 7}},
         "model.encoder.heads: 7 heads do not divide a size of 256"),
        ("BertSum", "ExtractiveData", {"encoder": {"checkpoint": "/no/bert"}},
         "model.encoder.checkpoint: no pretrained model '/no/bert'"),
        ("GraphSum", "GraphSumData", {"label_smoothing": 2.0}, "model.label_smoothing: label_smoothing is at least 0"),
    ],
)  # fmt: skip
def test_other_models_too(model, data, values, said, corpus_files, tmp_path, precis):
    config = config_of(tmp_path, corpus_files, model, data, **values)
    refused(precis("fit", "--config", config, "--run_dir", tmp_path / "run"), said)
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(yaml.safe_dump({"base": str(config), "seeds": [1]}), encoding="utf-8")
    refused(precis("sweep", sweep, "--out", tmp_path / "out", "--dry-run"), "point 'seed=1'", said)


@pytest.mark.skipif("__import__('torch').cuda.is_available()", reason="there is a GPU here")
def test_a_missing_gpu_is_reported(tiny_config, tmp_path, precis):
    done = precis("fit", "--config", tiny_config, "--run_dir", tmp_path / "run", "--trainer.accelerator=gpu")
    refused(done, "trainer.accelerator: no GPU here", "--trainer.accelerator cpu")


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--trainer.accelerator=gpus"], "trainer.accelerator: You selected an invalid accelerator name"),
        (["--trainer.devices=0"], "trainer.devices: `Trainer(devices='0')` value is not a valid input"),
        (["--optimizer=Adam", "--optimizer.lr=-1"], "optimizer.lr must be at least 0, got -1"),
        (["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=x", "--trainer.callbacks.patience=-1"],
         "trainer.callbacks.patience must be at least 0, got -1"),
        (["--start_from=/no/run"], "/no/run: no such checkpoint; --start_from takes one, or the folder of a run"),
        (["--trainer.callbacks+=EarlyStoping"], "did you mean pytorch_lightning.callbacks.EarlyStopping?"),
        (["--trainer.callbacks+=callbacks.CoverageAnealing"], "did you mean callbacks.CoverageAnnealing?"),
        (["--optimizer=torch.optim.Adamm"], "did you mean torch.optim.Adam"),
        (["--data.tokenizer=wrds"], "got 'wrds'; did you mean words?"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)  # fmt: skip
def test_a_run_names_what_other_parts_refuse(arguments, said, tiny_config, tmp_path, precis):
    refused(precis("fit", "--config", tiny_config, "--run_dir", tmp_path / "run", *arguments), said)
    assert not (tmp_path / "run").exists()


def test_a_name_like_no_other_is_explained_without_a_guess():
    assert explain("No module named 'zzqx'", "fit").endswith("`precis fit --help` lists what there is")


BROKEN = {
    "empty": ("", "config.yaml: not a config"),
    "deep": ("a: " + "[" * 5000, "config.yaml"),
    "no model": ("data: {class_path: x}\n", "config.yaml: it has no model"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_config_of_a_run_is_one_line(kind, run_folder, tmp_path, precis):
    content, said = BROKEN[kind]
    (run_folder / "config.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    (run_folder / "predictions.jsonl").write_text('{"id": "doc-33", "summary": ["x"], "references": [["y"]]}\n')
    (tmp_path / "text.txt").write_text("The otter slept.", encoding="utf-8")
    whole = "has no model" not in said  # which the parser of arguments words in its own way
    refused(precis("summarize", "--checkpoint", run_folder, tmp_path / "text.txt"), said)
    refused(precis("report", run_folder), said)
    refused(precis("test", "--run", run_folder), said if whole else "")
    refused(precis("fit", "--run", run_folder), said if whole else "")
    with pytest.raises(ValueError, match=r"config\.yaml"):
        load_run(run_folder)


def test_weights_of_another_model_are_refused(run_folder, corpus_files, tmp_path, precis):
    config = config_of(tmp_path, corpus_files, "Pegasus", "PegasusData")
    done = precis("fit", "--config", config, "--run_dir", tmp_path / "new", "--start_from", run_folder)
    refused(done, f"--start_from {run_folder}: has the weights of PointerGenerator, but this run trains Pegasus")
    checkpoint = run_folder / "checkpoints" / "best.ckpt"
    done = precis("validate", "--config", config, "--run_dir", tmp_path / "new", "--ckpt_path", checkpoint)
    refused(done, f"--ckpt_path {checkpoint}: has the weights of PointerGenerator, but this run trains Pegasus")


@pytest.mark.parametrize(
    "logger, key",
    [
        ({"class_path": "CometLogger", "init_args": {"api_key": "abc"}}, "api_key"),
        ({"class_path": "MLFlowLogger", "init_args": {"tracking_uri": "https://me:abc@example.org"}}, "tracking_uri"),
    ],
)
def test_a_key_in_a_config_is_refused_before_it_is_written(logger, key, tiny_config, tmp_path, precis):
    logger["class_path"] = f"pytorch_lightning.loggers.{logger['class_path']}"
    path = change_config(tiny_config, {"trainer.logger": logger}, tmp_path / "config.yaml")
    done = precis("fit", "--config", path, "--run_dir", tmp_path / "run")
    refused(done, f"trainer.logger.{key}: a key or password would be kept")
    assert "abc" not in done.err and not (tmp_path / "run").exists()


def test_whole_numbers_of_batches_are_integers_however_they_were_read():
    trainer = Namespace(limit_train_batches=2.0, limit_val_batches=1.0, limit_test_batches=0.5, overfit_batches=3)
    convert_batch_counts(trainer)
    values = vars(trainer)
    assert values == {
        "limit_train_batches": 2, "limit_val_batches": 1.0, "limit_test_batches": 0.5, "overfit_batches": 3
    } and isinstance(values["limit_train_batches"], int) and isinstance(values["limit_val_batches"], float)  # fmt: skip
