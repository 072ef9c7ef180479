"""Errors in arguments and configs are one line, and no files are left."""

import pytest
from conftest import change_config, write

DECODING = "model.init_args.decoding"


def refused(done, tmp_path, *said, status=2):
    """Check that the command failed in one line with these parts, and that there is no run folder."""
    done.failed_in_one_line(*said, status=status)
    assert done.out == "" and not (tmp_path / "run").exists()


@pytest.mark.parametrize("key, value, said", [
    (
        "model.init_args.hiden_size",
        8,
        "model: PointerGenerator has no option 'hiden_size'; did you mean hidden_s",
    ),
    (
        f"{DECODING}.beam_sise",
        4,
        "model.decoding: DecodingOptions has no option 'beam_sise'; did you mean beam_s",
    ),
    ("trainer.max_epoch", 1, "trainer: Trainer has no option 'max_epoch'; did you mean max_epochs"),
    ("data.init_args.batch_size", "four", "data.batch_size: expected int, got 'four'"),
    ("model.class_path", "lightning_modules.PointerGeneratr", "no class lightning_modules.PointerGeneratr"),
    ("wandb", "sometimes", "wandb: expected one of 'auto', 'online', 'offline', 'off'"),
    ("wandb", False, "put it in quotes"),  # what YAML makes of off
])  # fmt: skip
def test_a_wrong_key_or_value_of_a_config_is_named_with_the_right_one(key, value, said, tiny_config, tmp_path, precis):
    config = change_config(tiny_config, {key: value}, tmp_path / "changed.yaml")
    refused(precis("fit", "--config", config, "--run_dir", tmp_path / "run"), tmp_path, said)


@pytest.mark.parametrize("arguments, said", [
    (["--data.batch", "4"], "data: PointerGeneratorData has no option 'batch'; did you mean batch_size?"),
    (["--optimizer", "Adam", "--optimizer.lrr", "1"], "optimizer: Adam has no option 'lrr'; did you mean lr?"),
    (["--trainer.max_epoch", "1"], "no such argument: --trainer.max_epoch"),
])  # fmt: skip
def test_a_wrong_argument_is_named(arguments, said, tiny_config, tmp_path, precis):
    refused(precis("fit", "--config", tiny_config, "--run_dir", tmp_path / "run", *arguments), tmp_path, said)


def test_missing_arguments_are_named(tmp_path, precis):
    refused(precis("fit", "--run_dir", tmp_path / "run"), tmp_path, "missing: data, model", "--config")
    refused(precis("summarize", "--model", "small", "--run", "r"), tmp_path, "--model and --run both name", status=1)
    refused(precis("corpus", "--corpus", "Fils"), tmp_path, "corpus: no class 'Fils' is known")
    refused(precis("fitt"), tmp_path, "no command 'fitt'", "it has fit, validate", status=1)


@pytest.mark.parametrize("content, said", [
    (b"model: [\n  a,\nb: 1\n", "bad.yaml:4: no YAML"),
    (b"# \xe9\nmodel: 1\n", "bad.yaml: not UTF-8 text (byte 2)"),
    (b"just words\n", "bad.yaml: not a config"),
])  # fmt: skip
def test_a_config_that_cannot_be_read_is_named_with_its_line(content, said, tmp_path, precis):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    refused(precis("fit", "--config", path, "--run_dir", tmp_path / "run"), tmp_path, said, status=1)


def test_a_missing_config_is_named(tmp_path, precis):
    path = f"{tmp_path}/none.yaml"
    for given in (["--config", path], [f"--config={path}"], ["-c", path]):
        done = precis("fit", *given, "--run_dir", tmp_path / "run")
        refused(done, tmp_path, f"{path}: no such config file; see experiments/configs", status=1)


def test_the_traceback_can_be_had(tmp_path, precis, monkeypatch):
    monkeypatch.setenv("PRECIS_DEBUG", "1")
    with pytest.raises(ValueError, match="no such config file"):
        precis("fit", "--config", tmp_path / "none.yaml")


def test_a_file_in_place_of_a_corpus_is_told_how_it_is_given(tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = "train.jsonl is not a class; a file is given as --corpus Files --corpus.train train.jsonl"
    refused(precis("corpus", "--corpus", "train.jsonl"), tmp_path, said)
    write(tmp_path / "train.jsonl", '{"id": "a"}\n{"id": "b"}\n')  # which would be read as a config
    refused(precis("corpus", "--corpus", "train.jsonl"), tmp_path, said)
