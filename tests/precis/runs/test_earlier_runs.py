"""Run folders that were written before models moved into a folder per paper still load, summarize and test."""

import shutil
from pathlib import Path

import pytest
import torch
import yaml

from precis.config.earlier_configs import upgrade_flags
from precis.runs.run_folder import load_run

RUNS = sorted(path for path in (Path(__file__).parent / "earlier_runs").iterdir() if path.is_dir())


@pytest.fixture(params=RUNS, ids=lambda path: path.name)
def earlier_run(request, tmp_path) -> Path:
    return Path(shutil.copytree(request.param, tmp_path / "run"))


def test_former_module_of_the_scorer_is_named_in_one_of_them():
    configs = [(run / "config.yaml").read_text(encoding="utf-8") for run in RUNS]
    assert any("lightning_modules.zero_shot.ZeroShot" in config for config in configs)


def test_former_names_of_flags_are_upgraded():
    arguments = ["--data.text=a=b", "--data.init_args.text", "c", "--data.texts=d", "--model.text=e", "--model.least=0"]
    present = ["--data.tokenizer_dir=a=b", "--data.tokenizer_dir", "c", *arguments[3:5], "--model.min_prob=0"]
    assert upgrade_flags(arguments) == present


def test_weights_and_text_are_loaded(earlier_run):
    loaded = load_run(earlier_run)
    saved = torch.load(earlier_run / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    state = loaded.model.state_dict()
    assert saved.keys() == state.keys()
    assert all(torch.equal(state[name], saved[name]) for name in saved)


def test_commands_read_the_run(earlier_run, corpus_files, precis, tmp_path):
    done = precis(
        "test",
        "--run",
        earlier_run,
        *(f"--data.corpus.{split}={path}" for split, path in corpus_files.items()),
        f"--data.cache_dir={tmp_path / 'cache'}",
        f"--data.text={earlier_run / 'text'}",  # a flag's former name
    )
    assert done.status == 0, done.err
    test_size = len(Path(corpus_files["test"]).read_text(encoding="utf-8").splitlines())
    (predictions,) = earlier_run.glob("predictions.files-*.jsonl")  # another corpus than the run's own
    assert len(predictions.read_text(encoding="utf-8").splitlines()) == test_size


def test_a_new_run_trains_from_the_same_config(earlier_run, corpus_files, precis, tmp_path):
    config = yaml.safe_load((earlier_run / "config.yaml").read_text(encoding="utf-8"))
    config["data"]["init_args"]["corpus"]["init_args"] |= corpus_files
    config["data"]["init_args"]["cache_dir"] = str(tmp_path / "cache")
    config["run_dir"], config["trainer"]["max_steps"] = None, 1
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    done = precis("fit", "--config", path, f"--run_dir={tmp_path / 'new'}")
    assert done.status == 0, done.err
