"""Requeues and tasks, with a stand-in for SLURM's commands; tests/cluster has the real ones."""

import os
import signal
import threading
from pathlib import Path
from unittest.mock import patch

import pytest
from conftest import wait_until, write
from stub_command import write_stub

from precis.sweeping import slurm
from precis.sweeping.job import Job, read_status
from precis.training.requeue import job_id, requeue

pytestmark = pytest.mark.integration

SCONTROL = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$1" in
  show) [ -f {folder}/state ] || exit 1; echo "JobId=7 JobState=$(cat {folder}/state) Reason=None Requeue=1" ;;
  requeue) [ -f {folder}/refuse ] && {{ echo "Requested operation is presently disabled" >&2; exit 1; }}; exit 0 ;;
esac
"""


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """Return the folder of a stub of scontrol: `state` is the state that it reports, `asked` its arguments."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    write(folder / "scontrol", SCONTROL.format(folder=folder)).chmod(0o755)
    (folder / "state").write_text("RUNNING")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_PROCID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    return folder


def requeues(folder: Path) -> list[str]:
    lines = (folder / "asked").read_text().splitlines() if (folder / "asked").exists() else []
    return [line for line in lines if line.startswith("requeue")]


def test_a_job_is_put_back_if_it_runs_and_slurm_takes_it(scontrol, tmp_path, capsys):
    with patch.dict(os.environ, {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}):
        assert job_id() == "7_3"  # a task of an array is named by both numbers
    with patch.dict(os.environ, clear=True):
        assert job_id() is None
    assert requeue(tmp_path) and requeues(scontrol) == ["requeue 7"]
    assert "job 7 is back in the queue" in capsys.readouterr().out
    (scontrol / "refuse").touch()
    assert not requeue(tmp_path) and "presently disabled" in capsys.readouterr().out
    for state, comes_back in {"CANCELLED": False, "COMPLETING": True, "TIMEOUT": False}.items():
        (scontrol / "state").write_text(state)
        assert requeue(tmp_path) == comes_back, state
    (scontrol / "state").unlink()
    assert not requeue(tmp_path) and "job 7 is unknown" in capsys.readouterr().out
    assert requeues(scontrol) == ["requeue 7"] * 2  # one was refused, and none was asked for again


def test_a_run_that_saves_nothing_does_not_come_back_for_ever(scontrol, tmp_path, capsys):
    last = tmp_path / "checkpoints" / "last.ckpt"
    last.parent.mkdir()
    for number in range(5):  # each time further
        last.write_text(str(number))
        os.utime(last, ns=(number, number))
        assert requeue(tmp_path)
    assert [requeue(tmp_path) for _ in range(4)] == [True, True, False, False]
    assert "without a new checkpoint" in capsys.readouterr().out and len(requeues(scontrol)) == 7


@pytest.fixture
def stub(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "COMMAND", tuple(write_stub(tmp_path)))
    before = {number: signal.getsignal(number) for number in (*slurm.SIGNALS, signal.SIGCONT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupted(job: Job, number: int) -> str:
    """Work on a job, with a signal to this process once the job's log says that its command has started."""

    def wait_and_send() -> None:
        wait_until(lambda: job.log.is_file() and "started" in job.log.read_text())
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait_and_send)
    thread.start()
    ended = slurm.work(job)
    thread.join()
    return ended


@pytest.mark.parametrize("number", slurm.SIGNALS)
def test_a_signal_saves_and_puts_the_job_back_once_and_the_next_start_continues(number, scontrol, stub, tmp_path):
    job = Job("wait", tmp_path / "run", {"name": "wait"})
    assert interrupted(job, number) == "requeued"
    assert requeues(scontrol) == ["requeue 7"] and read_status(job.folder) == {"done": [], "failed": None}
    assert slurm.work(job) == "finished"
    started = [line for line in job.log.read_text().splitlines() if line.startswith("started")]
    assert started == ["started fit anew", "started fit resumed", "started test anew"]
    assert requeues(scontrol) == ["requeue 7"]


def test_a_cancelled_job_saves_and_a_failure_of_any_task_is_slurms_too(scontrol, stub, tmp_path, monkeypatch):
    (scontrol / "state").write_text("CANCELLED")
    cancelled = Job("wait", tmp_path / "cancelled", {"name": "wait"})
    assert interrupted(cancelled, signal.SIGTERM) == "stopped" and requeues(scontrol) == []
    assert (cancelled.folder / "checkpoints" / "last.ckpt").exists()
    (scontrol / "state").write_text("RUNNING")

    alone = Job("break", tmp_path / "alone", {"name": "break"})
    with pytest.raises(RuntimeError, match=r"break: fit failed, see .*log.txt"):
        slurm.work(alone)
    assert read_status(alone.folder)["failed"] == {"command": "fit", "status": 1}
    job, broken = (Job(name, tmp_path / "run", {"name": name}) for name in ("wait", "break"))
    broken.prepare()
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert slurm.work(broken) == "stopped"
    monkeypatch.setenv("SLURM_PROCID", "0")
    with pytest.raises(RuntimeError, match=r"fit failed, see .*log.rank1.txt"):
        slurm.work(job)
    assert read_status(job.folder)["failed"]["command"] == "fit" and requeues(scontrol) == []
    assert not list(job.folder.glob(".failed*"))
