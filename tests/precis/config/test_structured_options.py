"""Options with several values are read from a YAML file of the working folder by its bare name, with every command."""

import pytest
import yaml

pytestmark = pytest.mark.integration

FIT = ["fit", "--config", "base.yaml", "--run_dir", "run"]
COMMANDS = [
    [*FIT, "--trainer", "trainer.yaml", "--data.corpus=corpus.yaml", "--model.decoding=decoding.yaml"],
    [*FIT, "--optimizer", "optimizer.yaml", "--lr_scheduler", "schedule.yaml", "--trainer.callbacks+=callback.yaml"],
    ["fit", "--config=base.yaml", "--data=data.yaml", "--dry-run"],
    ["baseline", "lead", "--corpus=corpus.yaml", "--out=lead.jsonl"],
    ["graph", "text.txt", "--paragraphs=paragraphs.yaml", "--html=graph.html"],
    ["evaluate", "outputs.jsonl", "--fields", "fields.yaml", "--metrics=rouge", "--resamples=9"],
    ["sweep", "sweep.yaml", "--launcher=slurm", "--profile", "profile.yaml", "--dry-run"],
]


@pytest.fixture
def folder(tiny_config, tmp_path, monkeypatch):
    """Return the working folder, with a file for each option, and modules of these names that must not be imported."""
    base = yaml.safe_load(tiny_config.read_text(encoding="utf-8"))
    base["trainer"] = {"max_steps": 1, "accelerator": "cpu", "enable_progress_bar": False}
    annealing = {"class_path": "callbacks.CoverageAnnealing", "init_args": {"start_step": 2}}
    files = {
        "base": base,
        "trainer": base["trainer"],
        "data": base["data"],
        "corpus": base["data"]["init_args"]["corpus"],
        "decoding": {"beam_size": 3, "min_length": 2, "max_length": 8},
        "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}},
        "schedule": {"class_path": "torch.optim.lr_scheduler.ConstantLR"},
        "callback": annealing,
        "paragraphs": {"max_paragraphs": 4, "sentences": 1},
        "fields": {"summary": "text"},
        "sweep": {"base": "base.yaml", "seeds": [1]},
        "profile": {"minutes": 60},
    }
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    for name in ("trainer", "optimizer", "profile", "corpus"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    (tmp_path / "text.txt").write_text("The otter sleeps.\n\nIt eats a fish. It swims.", encoding="utf-8")
    row = '{"id": "a", "text": ["an otter"], "references": [["an otter"]]}\n'
    (tmp_path / "outputs.jsonl").write_text(row, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments[-3:]))
def test_a_file_is_named_without_its_folder(arguments, folder, precis):
    precis(*arguments).succeeded()
