"""The GPU benchmark in its tiny form on a CPU: every part, a second call, failures, missing packages."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.gpu import __main__ as command
from benchmarks.gpu.cells import LOST_GPU, RUNNING, Cell, read_record, record_interrupted, run_cells
from benchmarks.gpu.made_up import entries

ROOT = Path(__file__).parents[2]
WITHOUT = ("datasets", "wandb", "jsonargparse", "rouge_score", "datasketch", "peft")
# as on a machine that lacks these packages: nothing finds them
BLOCKED = f"""
import importlib.machinery as m, sys
find = m.PathFinder.find_spec
m.PathFinder.find_spec = classmethod(
    lambda cls, name, *rest: None if name.split(".")[0] in {WITHOUT!r} else find(name, *rest))
import benchmarks.gpu.__main__ as command
for part in ("attention", "models"):
    sys.argv = [*ARGUMENTS, "--part", part]
    if command.main():
        sys.exit(1)
"""


@pytest.mark.integration
def test_every_part_runs_without_the_packages_of_the_full_environment(tmp_path):
    arguments = ["gpu", "--tiny", "--out", str(tmp_path), "--device=cpu", "--worker", "0", str(time.time() + 1000)]
    code = f"ARGUMENTS = {arguments!r}\n{BLOCKED}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    for part, count in {"attention": 13, "models": 27}.items():
        records = [read_record(path.parent, path.stem) for path in (tmp_path / part).glob("*.json")]
        assert [(r["name"], r["traceback"]) for r in records if "error" in r] == []
        assert len(records) == count
    assert command.summarize(SimpleNamespace(out=tmp_path, device="cpu")) == 0
    assert "| rstformer | bf16 |" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert (tmp_path / "attention.png").stat().st_size > 1000


def test_the_plan_is_printed_and_a_gpu_is_needed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "--dry-run", "--out", str(tmp_path)])
    assert command.main() == 0
    plan = capsys.readouterr().out
    assert all(word in plan for word in ("estimated", "attention-16384-1024-product", "rstformer-public"))
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path), "--device", "cpu"])
    with pytest.raises(SystemExit):
        command.main()


def test_failed_cells_are_recorded_and_tried_again_and_finished_ones_are_not(tmp_path):
    runs = []

    def cell(name: str, first_error: Exception | None = None) -> Cell:
        def run():
            runs.append(name)
            if first_error and runs.count(name) == 1:
                raise first_error
            return {"value": 1}

        return Cell(name, 1.0, run)

    cells = [cell("a"), cell("b", ValueError("no")), cell("c", RuntimeError("CUDA error: lost"))]
    cells.append(Cell("long", 1e6, lambda: runs.append("long")))
    started, until = time.time(), time.time() + 100
    for status in (LOST_GPU, 0):  # the second one is that of the next process of the same call
        assert run_cells(cells, tmp_path, started, until) == status
        assert runs == ["a", "b", "c"] and read_record(tmp_path, "long") is None
    assert "ValueError: no" in read_record(tmp_path, "b")["traceback"]
    assert run_cells(cells[:3], tmp_path, time.time(), until) == 0  # a second call
    assert runs == ["a", "b", "c", "b", "c"] and read_record(tmp_path, "c")["result"] == {"value": 1}
    (tmp_path / RUNNING).write_text("d", encoding="utf-8")
    record_interrupted(tmp_path, "the process ended with status -9")
    assert read_record(tmp_path, "d")["error"] == "the process ended with status -9"


@pytest.mark.integration
def test_a_worker_and_its_children_end_with_the_time_of_the_part():
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    started = time.monotonic()
    assert command.run_worker([sys.executable, "-c", child], 0.5) is None
    assert time.monotonic() - started < 30
    assert command.run_worker([sys.executable, "-c", "raise SystemExit(3)"], 60) == 3


@pytest.mark.integration
def test_models_of_the_benchmark_have_the_sizes_of_the_papers():
    large = entries(tiny=False)
    for name, least, most in (("bertsum", 100e6, 130e6), ("led", 400e6, 520e6), ("pegasus", 500e6, 620e6)):
        with torch.device("meta"):
            assert least < sum(p.numel() for p in large[name].build().parameters()) < most, name
