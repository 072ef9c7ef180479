"""`precis init`: its projects train."""

import pytest
import yaml
from conftest import write_lines

from precis.housekeeping.init import MODELS
from precis.training.training import fit_parser

ROWS = [{"Article": f"It rained on day {day}. It was cold.", "highlights": "It rained."} for day in range(80)]
SMALL = (
    "--model.hidden_size=8", "--model.embedding.size=8", "--data.max_train=8", "--data.max_eval=2", "--wandb=off",
    "--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--model.decoding.max_length=5", "--data.max_source=20",
)  # fmt: skip


@pytest.mark.integration
def test_a_project_trains_as_it_is(tmp_path, precis, monkeypatch):
    path = write_lines(tmp_path / "mine.jsonl", ROWS)
    assert precis("init", tmp_path / "project", "--train", path).status == 0
    monkeypatch.chdir(tmp_path / "project")
    precis("fit", "--config", "config.yaml", "--run_dir", "runs/first", *SMALL).succeeded()
    assert (tmp_path / "project" / "runs" / "first" / "checkpoints" / "best.ckpt").is_file()


def test_the_configs_are_accepted_and_have_the_fields_of_the_files(tmp_path, precis, monkeypatch):
    path = write_lines(tmp_path / "mine.jsonl", ROWS)
    for model in MODELS:
        assert "'Article'" in precis("init", tmp_path / model, "--model", model, "--train", path).succeeded().out
        monkeypatch.chdir(tmp_path / model)
        fit_parser().parse_args(["--config", "config.yaml"])
    config = yaml.safe_load((tmp_path / model / "config.yaml").read_text(encoding="utf-8"))
    values = config["data"]["init_args"]["corpus"]["init_args"]
    assert values == {"train": str(path), "document": "Article", "summary": "highlights", "split": 0.1}


def test_the_id_is_unique_and_the_commands_are_for_the_given_files(tmp_path, precis):
    rows = [{"url": "same", "guid": number, "body": f"Rain {number}.", "title": "Rain."} for number in range(4)]
    path = write_lines(tmp_path / "mine.jsonl", rows)
    done = precis("init", tmp_path / "project", "--train", path)
    assert "4 records" in done.out and "id 'guid'" in done.out and "--model bertsum" in done.out, done.err
    commands = (tmp_path / "project" / "README.md").read_text(encoding="utf-8")
    assert f"{path} --document body" in commands and "precis validate --run" in commands, "there is no test file"
    write_lines(path, [row | {"guid": 1} for row in rows])
    assert "id the file and line" in precis("init", tmp_path / "other", "--train", path).out
    write_lines(path, [row | {"guid": 1, "id": 1} for row in rows])
    assert "the same `id`" in precis("init", tmp_path / "third", "--train", path).err


@pytest.mark.parametrize(("row", "message"), [
    ({"words": "a"}, "fields: words"),
    ({"document": "a"}, "training needs one"),
    ("{", "broken JSON"),
])  # fmt: skip
def test_files_that_cannot_be_used_leave_no_project(row, message, tmp_path, precis):
    path = write_lines(tmp_path / "mine.jsonl", [row])
    precis("init", tmp_path / "project", "--train", path).failed_in_one_line(message)
    assert not (tmp_path / "project").exists()
