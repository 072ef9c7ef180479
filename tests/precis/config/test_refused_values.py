"""Keys and values that are refused: one line with key and cause, for a run and for a sweep, and no files are left."""

import pytest
from conftest import change_config, write, write_sweep

integration = pytest.mark.integration


def refused(done, *said, status=2):
    done.failed_in_one_line(*said, status=status)
    assert done.out == ""
    assert not [noise for noise in ("Namespace(", "Union", "Traceback", "NoneType") if noise in done.err], done.err


@pytest.fixture
def check_fit(tiny_config, tmp_path, precis):
    def check(*said, arguments="", config=tiny_config, status=2):
        done = precis("fit", "--config", config, "--run_dir", tmp_path / "run", *arguments.split())
        refused(done, *said, status=status)
        assert not (tmp_path / "run").exists()
        return done

    return check


@pytest.mark.parametrize("key, value, said", [
    ("model.init_args.hiden_size", 8, "model: PointerGenerator has no option 'hiden_size'; did you mean hidden_s"),
    ("model.init_args.decoding.beam_sise", 4, "DecodingOptions has no option 'beam_sise'; did you mean beam_s"),
    ("model.init_args.optimizer.lrr", 4, "PointerGenerator has no option 'optimizer.lrr'; did you mean optimizer.lr"),
    ("trainer.max_epoch", 1, "trainer: Trainer has no option 'max_epoch'; did you mean max_epochs"),
    ("model.class_path", "lightning_modules.PointerGeneratr", "no class lightning_modules.PointerGeneratr"),
    ("wandb", False, "put it in quotes"),  # what YAML makes of off
])  # fmt: skip
def test_a_wrong_key_or_value_of_a_config_is_named(key, value, said, tiny_config, tmp_path, check_fit):
    check_fit(said, config=change_config(tiny_config, {key: value}, tmp_path / "changed.yaml"))


STOPPING = "--trainer.callbacks+=EarlyStopping --trainer.callbacks.monitor=x"


@pytest.mark.parametrize("arguments, said, status", [
    ("--data.batch 4", "data: PointerGeneratorData has no option 'batch'; did you mean batch_size?", 2),
    *(pytest.param(*case, (1, 2), marks=integration) for case in (
        ("--optimizer=Adam --optimizer.lr=-1", "optimizer.lr must be at least 0, got -1"),
        ("--lr_scheduler=ConstantLR", "lr_scheduler has no effect without an optimizer; add --optimizer, or --lr_s"),
        ("--trainer.callbacks+=StochasticWeightAveraging --trainer.callbacks.swa_lrs=1", "; use EMAWeightAveraging"),
        ("--trainer.callbacks+=LearningRateFinder", "trainer.callbacks: LearningRateFinder does not find where models"),
        ("--trainer.callbacks+=BatchSizeFinder", "set data.batch_size"),
        (f"{STOPPING} --trainer.callbacks.patience=-1", "trainer.callbacks.patience must be at least 0, got -1"),
        ("--start_from=/no/run", "/no/run: no such checkpoint; --start_from takes one, or the folder of a run"),
        ("--trainer.callbacks+=SelfCritical --trainer.callbacks.advantage=group", "group: 1; give at least 2\n"),
        ("--trainer.callbacks+=EarlyStoping", "did you mean pytorch_lightning.callbacks.EarlyStopping?"),
    )),
])  # fmt: skip
def test_a_wrong_argument_is_named(arguments, said, status, check_fit):
    check_fit(said, arguments=arguments, status=status)


def test_a_config_that_cannot_be_read_is_named_and_its_traceback_can_be_had(tmp_path, check_fit, precis, monkeypatch):
    path = tmp_path / "bad.yaml"
    for content, said in (
        (b"model: [\n  a,\nb: 1\n", "bad.yaml:4: no YAML"),
        (b"# \xe9\nmodel: 1\n", "bad.yaml: not UTF-8 text (byte 2)"),
        (b"just words\n", "bad.yaml: not a config"),
    ):
        path.write_bytes(content)
        check_fit(said, config=path, status=1)
    path.unlink()
    for given in (["--config", path], [f"--config={path}"], ["-c", path]):
        refused(precis("fit", *given), f"{path}: no such config file; see experiments/configs", status=1)
    monkeypatch.setenv("PRECIS_DEBUG", "1")
    with pytest.raises(ValueError, match="no such config file"):
        precis("fit", "--config", path)


def test_missing_arguments_and_files_in_place_of_a_corpus_are_named(tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(precis("fit", "--run_dir", tmp_path / "run"), "missing: data, model", "--config")
    refused(precis("summarize", "--model", "small", "--run", "r"), "--model and --run both name", status=1)
    refused(precis("corpus", "--corpus", "Fils"), "corpus: no class 'Fils' is known")
    refused(precis("fit", "--data=PointerGeneratorData", "--data.corpus=Hub"), "missing: name; give --data.corpus.name")
    refused(precis("fitt"), "no command 'fitt'", "it has fit, validate", status=1)
    refused(precis("trian"), "did you mean fit?", status=1)
    said = "train.jsonl is not a class; a file is given as --corpus Files --corpus.train train.jsonl"
    refused(precis("corpus", "--corpus", "train.jsonl"), said)
    write(tmp_path / "train.jsonl", '{"id": "a"}\n{"id": "b"}\n')  # which would be read as a config
    refused(precis("corpus", "--corpus", "train.jsonl"), said)


@integration
@pytest.mark.parametrize("key, value, said", [
    ("data.batch_size", -4, "data.batch_size must be at least 1, got -4"),
    ("data.max_target", 1, "data.max_target must be at least 2, got 1"),
    ("model.dropout", 1.5, "model.dropout must be between 0 and 1, got 1.5"),
    ("trainer.val_check_interval", 5.5, "trainer.val_check_interval must be an integer number of batches or a share"),
    ("save_every", -1, "save_every must be at least 0, got -1"),
])  # fmt: skip
def test_a_sweep_finds_what_a_run_refuses(key, value, said, tiny_config, tmp_path, check_fit, precis):
    check_fit(said, arguments=f"--{key}={value}", status=(1, 2))
    points = [{"name": "good"}, {"name": "bad", key: value}]
    path = write_sweep(tmp_path, tiny_config, points=points, after=[])
    refused(precis("sweep", path, "--out", tmp_path / "out"), "point 'bad'", said, status=(1, 2))
    assert not (tmp_path / "out").exists()


def config_of(model, tmp_path, corpus_files, **arguments):
    corpus = {"class_path": "datamodules.corpora.Files", "init_args": corpus_files}
    content = {"trainer": {"accelerator": "cpu"}, "wandb": "off"}
    content["model"] = {"class_path": f"lightning_modules.{model}", "init_args": arguments}
    content["data"] = {"class_path": f"datamodules.{model}Data", "init_args": {"corpus": corpus}}
    return write(tmp_path / "config.yaml", content)


@integration
@pytest.mark.parametrize("model, key, value, said", [
    ("RSTformer", "encoder", {"target_positions": 4}, "decoding.max_length 120: the decoder has 4 positions"),
    ("RSTformer", "encoder", {"checkpoint": "/no/led"}, "model.encoder.checkpoint: no pretrained model '/no/led'"),
    ("Pegasus", "encoder", {"heads": 7}, "model.encoder.heads: 7 heads do not divide a size of 256"),
    ("GraphSum", "label_smoothing", 2.0, "model.label_smoothing: label_smoothing is at least 0"),
])  # fmt: skip
def test_values_of_other_models_are_refused(model, key, value, said, tmp_path, corpus_files, check_fit):
    check_fit(said, config=config_of(model, tmp_path, corpus_files, **{key: value}), status=(1, 2))


@integration
@pytest.mark.skipif("__import__('torch').cuda.is_available()", reason="there is a GPU here")
def test_a_missing_gpu_is_reported(check_fit):
    said = ("trainer.accelerator: no GPU here", "--trainer.accelerator cpu")
    check_fit(*said, arguments="--trainer.accelerator=gpu", status=(1, 2))


@integration
def test_weights_of_another_model_are_refused(trained, corpus_files, tmp_path, precis):
    config = config_of("Pegasus", tmp_path, corpus_files)
    best = trained / "checkpoints" / "best.ckpt"
    for command, option, path in ("fit", "--start_from", trained), ("validate", "--ckpt_path", best):
        said = f"{option} {path}: has the weights of PointerGenerator, but this run trains Pegasus"
        refused(precis(command, "--config", config, "--run_dir", tmp_path / "new", option, path), said, status=(1, 2))


@integration
@pytest.mark.parametrize("logger, key, value", [
    ("CometLogger", "api_key", "abc"), ("MLFlowLogger", "tracking_uri", "https://me:abc@example.org"),
])  # fmt: skip
def test_a_key_in_a_config_is_refused_before_it_is_written(logger, key, value, tiny_config, tmp_path, check_fit):
    logger = {"class_path": f"pytorch_lightning.loggers.{logger}", "init_args": {key: value}}
    path = change_config(tiny_config, {"trainer.logger": logger}, tmp_path / "config.yaml")
    done = check_fit(f"trainer.logger.{key}: a key or password would be kept", config=path, status=(1, 2))
    assert "abc" not in done.err
