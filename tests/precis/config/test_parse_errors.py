"""Errors in arguments and configs are one line, and no files are left."""

import pytest
import yaml

DEEP = "model.init_args.decoding.beam_size"


def changed(path, tmp_path, key, value=None, name=None):
    """A copy of a config with another value at a key, or another name for it."""
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    *parents, last = key.split(".")
    place = config
    for parent in parents:
        place = place[parent]
    place[name or last] = place.pop(last) if value is None else value
    copy = tmp_path / "changed.yaml"
    copy.write_text(yaml.safe_dump(config), encoding="utf-8")
    return copy


def refused(done, tmp_path, *said, status=2):
    """Check that standard error is one line with the expected parts, and that there is no run folder."""
    assert done.status == status
    assert done.err.startswith("precis: error: ") and done.err.count("\n") == 1, done.err
    for words in said:
        assert words in done.err
    assert done.out == "" and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "key, value, name, said",
    [
        ("model.init_args.hidden_size", None, "hiden_size", "model: PointerGenerator has no option 'hiden_size'; did"),
        (DEEP, None, "beam_sise", "model.decoding: DecodingOptions has no option 'beam_sise'; did you mean beam_size?"),
        ("trainer.max_epochs", None, "max_epoch", "trainer: Trainer has no option 'max_epoch'; did you mean max_epoch"),
        ("data.init_args.batch_size", "four", None, "data.batch_size: expected int, got 'four'"),
        ("model.class_path", "lightning_modules.PointerGeneratr", None, "no class lightning_modules.PointerGeneratr"),
        ("wandb", "sometimes", None, "wandb: expected one of 'auto', 'online', 'offline', 'off'"),
    ],
)
def test_a_wrong_key_or_value_of_a_config_is_named_with_the_right_one(
    key, value, name, said, tiny_config, tmp_path, precis
):
    config = changed(tiny_config, tmp_path, key, value, name)
    refused(precis("fit", "--config", config, "--run_dir", tmp_path / "run"), tmp_path, said)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--data.batch", "4"], "data: PointerGeneratorData has no option 'batch'; did you mean batch_size?"),
        (["--optimizer", "Adam", "--optimizer.lrr", "1"], "optimizer: Adam has no option 'lrr'; did you mean lr?"),
        (["--trainer.max_epoch", "1"], "no such argument: --trainer.max_epoch"),
    ],
)
def test_a_wrong_argument_is_named(arguments, said, tiny_config, tmp_path, precis):
    done = precis("fit", "--config", tiny_config, "--run_dir", tmp_path / "run", *arguments)
    refused(done, tmp_path, said)


def test_missing_arguments_are_named(tmp_path, precis):
    refused(precis("fit", "--run_dir", tmp_path / "run"), tmp_path, "missing: data, model", "--config")
    refused(precis("summarize", "--model", "small", "--run", "r"), tmp_path, "--model and --run both name", status=1)
    refused(precis("corpus", "--corpus", "Fils"), tmp_path, "corpus: no class 'Fils' is known")
    refused(precis("fitt"), tmp_path, "no command 'fitt'", "it has fit, validate", status=1)


@pytest.mark.parametrize(
    "content, said",
    [
        (b"model: [\n  a,\nb: 1\n", "bad.yaml:4: no YAML"),
        (b"# \xe9\nmodel: 1\n", "bad.yaml: not UTF-8 text (byte 2)"),
        (b"just words\n", "bad.yaml: not a config"),
    ],
)
def test_a_config_that_cannot_be_read_is_named_with_its_line(content, said, tmp_path, precis):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    refused(precis("fit", "--config", path, "--run_dir", tmp_path / "run"), tmp_path, said, status=1)


def test_a_missing_config_is_named(tmp_path, precis):
    path = f"{tmp_path}/none.yaml"
    for given in (["--config", path], [f"--config={path}"], ["-c", path]):
        done = precis("fit", *given, "--run_dir", tmp_path / "run")
        refused(done, tmp_path, f"{path}: no such config file; see experiments/configs", status=1)


def test_what_yaml_makes_of_off_is_explained(tiny_config, tmp_path, precis):
    config = tmp_path / "off.yaml"
    config.write_text(tiny_config.read_text(encoding="utf-8").replace("wandb: 'off'", "wandb: off"), encoding="utf-8")
    done = precis("fit", "--config", config, "--run_dir", tmp_path / "run")
    refused(done, tmp_path, "wandb: expected one of", "put it in quotes")


def test_the_traceback_can_be_had(tmp_path, precis, monkeypatch):
    monkeypatch.setenv("PRECIS_DEBUG", "1")
    with pytest.raises(ValueError, match="no such config file"):
        precis("fit", "--config", tmp_path / "none.yaml")


@pytest.mark.parametrize("written", [True, False])
def test_a_file_in_place_of_a_corpus_is_told_how_it_is_given(written, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if written:  # which would be read as a config
        (tmp_path / "train.jsonl").write_text('{"id": "a"}\n{"id": "b"}\n', encoding="utf-8")
    done = precis("corpus", "--corpus", "train.jsonl")
    refused(done, tmp_path, "train.jsonl is not a class; a file is given as --corpus Files --corpus.train train.jsonl")
