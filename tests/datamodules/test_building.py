"""Files, folders and locks of a cache: writers that are killed, fork workers, or run concurrently."""

import errno
import fcntl
import os
import signal
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from conftest import wait_until

from datamodules import file_locks
from datamodules.atomic_write import BUILDING, LOCK, appearing_folder, atomic_file, atomic_write, builders_lock
from datamodules.cache_folder import default_cache
from datamodules.documents import UserError
from datamodules.file_locks import is_locked, release_lock, take_lock


def forked(work) -> int:
    """Number of a process that does something."""
    if (process := os.fork()) == 0:
        try:
            work()
        finally:
            os._exit(1)
    return process


def leftovers(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{BUILDING}*"))


def test_a_folder_appears_whole_or_not_at_all_and_the_first_of_two_builders_wins(tmp_path):
    with appearing_folder(tmp_path / "documents") as building:
        (building / "data").write_text("whole")
        assert not (tmp_path / "documents").exists()
    assert (tmp_path / "documents" / "data").read_text() == "whole"
    with pytest.raises(ValueError, match="bad record"), appearing_folder(tmp_path / "other") as building:
        (building / "data").write_text("half")
        raise ValueError("bad record")
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, "documents"]
    with appearing_folder(tmp_path / "both") as first:
        (first / "data").write_text("first")
        with appearing_folder(tmp_path / "both") as second:
            (second / "data").write_text("second")
            assert first.exists()  # the second builder has not taken it for a leftover
    assert (tmp_path / "both" / "data").read_text() == "second" and not leftovers(tmp_path)


def test_the_next_builder_removes_what_a_killed_one_left_though_its_workers_live_on(tmp_path):
    """A worker that a builder has forked does not keep its lock."""

    def build() -> None:
        with appearing_folder(tmp_path / "documents") as building:
            (building / "half").write_text("half")
            if os.fork() == 0:  # the worker tells itself that it is there, since only then it has closed the lock
                atomic_write(tmp_path / "ready", str(os.getpid()))
            time.sleep(600)
            os._exit(0)

    builder = forked(build)
    wait_until((tmp_path / "ready").exists)
    worker = int((tmp_path / "ready").read_text())
    (left,) = leftovers(tmp_path)
    with builders_lock(tmp_path):
        assert leftovers(tmp_path) == [left]  # its owner lives
    os.kill(builder, signal.SIGKILL)
    os.waitpid(builder, 0)
    os.kill(worker, 0)  # is there
    with builders_lock(tmp_path):
        assert not leftovers(tmp_path)
    os.kill(worker, signal.SIGKILL)


def test_workers_leave_ctrl_c_to_the_builder(tmp_path):
    with builders_lock(tmp_path):
        worker = forked(lambda: os._exit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN))
        assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 1
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def test_new_content_replaces_the_old_unless_the_writer_is_interrupted_or_the_disk_full(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("before")
    atomic_write(path, "äfter\n")
    assert path.read_bytes() == "äfter\n".encode()
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as file:
        file.write("half")
        with pytest.raises(UserError, match="another process is writing it"):
            atomic_write(path, "other")
        raise KeyboardInterrupt
    assert path.read_text() == "äfter\n" and list(tmp_path.iterdir()) == [path]
    # a full disk is named with the place, and other errors are left
    message = rf"{tmp_path}: cannot be written \(No space left on device\); free some space"
    with pytest.raises(UserError, match=message), appearing_folder(tmp_path / "documents"):
        raise OSError(errno.ENOSPC, "Error writing bytes to file")
    with pytest.raises(FileNotFoundError), appearing_folder(tmp_path / "documents"):
        (tmp_path / "none").read_text()
    scores = tmp_path / "scores.json"
    os.mkfifo(scores)  # a stand-in for /dev/null
    with pytest.raises(UserError, match="a folder or device, not a file"):
        atomic_write(scores, "{}")
    scores.unlink()
    with pytest.raises(UserError, match=rf"{scores}: cannot be written"), atomic_file(scores) as file:
        file.write("half")
        with open("/dev/full", "w") as full:
            full.write("x")
    assert not list(tmp_path.glob("*scores*")) and not leftovers(tmp_path)


def test_a_lock_is_held_until_it_is_released(tmp_path):
    path = tmp_path / ".lock"
    for _ in range(2):
        assert is_locked(path) is False
        lock = take_lock(path)
        assert is_locked(path) is True and take_lock(path) is None
        release_lock(lock)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP], ids=errno.errorcode.get)
def test_a_file_system_without_locks_is_named_once_and_used(number, tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(number, os.strerror(number))))
    monkeypatch.setattr(file_locks, "_without_locks", set())
    (tmp_path / f"{BUILDING}other").mkdir()  # may belong to a builder that is active
    with pytest.warns(UserWarning, match="without locks") as caught:
        for name in ("first", "second"):
            release_lock(take_lock(tmp_path / name))
            assert is_locked(tmp_path / name) is None
        with builders_lock(tmp_path):
            assert (tmp_path / f"{BUILDING}other").is_dir()
    (warning,) = caught
    assert f"{tmp_path}/first: cannot be locked ({os.strerror(number)})" in str(warning.message)
    assert warning.filename == __file__


def test_the_default_cache_is_for_its_user_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("PRECIS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = default_cache()
    assert folder == tmp_path / "cache" / "precis" and folder.stat().st_mode & 0o777 == 0o700
    # a shared cache is named and not created
    monkeypatch.setenv("PRECIS_CACHE", str(tmp_path / "shared"))
    assert default_cache() == tmp_path / "shared" and not (tmp_path / "shared").exists()
