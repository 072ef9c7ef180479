"""`precis init`: its projects train."""

import json

import pytest
import yaml
from conftest import write_lines

from precis.housekeeping.templates import TEMPLATES
from precis.training.training import fit_parser

SMALL = (
    "--model.hidden_size=8", "--model.embedding_size=8", "--data.max_train=32", "--data.max_eval=4", "--wandb=off",
    "--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--model.decoding.max_length=5", "--data.max_source=20",
)  # fmt: skip


def test_a_project_trains_as_it_is(tmp_path, precis, monkeypatch):
    assert precis("init", tmp_path / "project").status == 0
    monkeypatch.chdir(tmp_path / "project")
    done = precis("fit", "--config", "config.yaml", "--run_dir", "runs/first", *SMALL)
    assert done.status == 0, done.err
    assert (tmp_path / "project" / "runs" / "first" / "checkpoints" / "best.ckpt").is_file()


@pytest.mark.parametrize("model", TEMPLATES)
def test_the_configs_are_accepted(model, tmp_path, precis, monkeypatch):
    assert precis("init", tmp_path / "project", "--model", model).status == 0
    monkeypatch.chdir(tmp_path / "project")
    fit_parser().parse_args(["--config", "config.yaml"])


def test_own_files_are_named_with_their_fields(tmp_path, precis):
    rows = [{"Article": f"It rained on day {day}. It was cold.", "highlights": "It rained."} for day in range(4)]
    path = write_lines(tmp_path / "mine.jsonl", rows)
    done = precis("init", tmp_path / "project", "--train", path)
    assert done.status == 0 and "'Article'" in done.out
    config = yaml.safe_load((tmp_path / "project" / "config.yaml").read_text(encoding="utf-8"))
    values = config["data"]["init_args"]["corpus"]["init_args"]
    assert values == {"train": str(path), "document": "Article", "summary": "highlights", "split": 0.1}
    assert not list((tmp_path / "project" / "data").iterdir())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"words": "a"}, "fields: words"),
        ({"document": "a"}, "training needs one"),
        (None, "no record"),
        ("{", "broken JSON"),
    ],
)
def test_files_that_cannot_be_used_leave_no_project(row, message, tmp_path, precis):
    path = write_lines(tmp_path / "mine.jsonl", [] if row is None else [row])
    done = precis("init", tmp_path / "project", "--train", path)
    assert done.status == 1 and message in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "project").exists()


def test_an_existing_folder_is_left_as_it_is(tmp_path, precis):
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    done = precis("init", tmp_path)
    assert done.status == 1 and [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_made_up_records_are_documents(tmp_path, precis):
    precis("init", tmp_path / "project")
    lines = (tmp_path / "project" / "data" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len({row["id"] for row in rows}) == 200 and all(row["document"] and row["summary"] for row in rows)
