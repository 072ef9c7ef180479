"""`precis fit --dry-run`: what it reports, and that it writes nothing."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.integration


def test_a_dry_run_reports_shapes_and_steps_and_writes_nothing(tiny_config, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = precis("fit", "--config", tiny_config, "--run_dir", "runs/dry", "--dry-run").succeeded()
    assert list(tmp_path.iterdir()) == []
    assert "batch.source" in done.out and "[4, " in done.out
    assert "7 per epoch, 14 in all" in done.out  # 26 documents in batches of 4, two epochs
    assert "a validation" in done.out


@pytest.mark.parametrize(
    "arguments, steps",
    [
        (["--trainer.accumulate_grad_batches=2", "--trainer.max_steps=5", "--trainer.max_epochs=-1"], "4 per epoch, 5"),
        (["--trainer.limit_train_batches=0.5"], "3 per epoch, 6"),
    ],
)
def test_accumulated_batches_are_one_step_and_limits_count(
    arguments, steps, tiny_config, tmp_path, precis, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done = precis("fit", "--config", tiny_config, "--dry-run", *arguments)
    assert f"{steps} in all" in done.out, done.out + done.err


def test_an_existing_run_is_left_as_it_is(run_folder, precis):
    def state() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in run_folder.rglob("*") if path.is_file()}

    before = state()
    assert precis("fit", "--run", run_folder, "--dry-run").status == 0
    assert state() == before
    precis("test", "--run", run_folder, "--dry-run").refused("--dry-run")
