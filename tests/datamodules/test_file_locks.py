"""Locks between processes, and file systems that have none."""

import errno
import fcntl
import os

import pytest

from datamodules import file_locks
from datamodules.building import BUILDING, builders_lock
from datamodules.file_locks import is_locked, release_lock, take_lock


def test_a_lock_is_held_until_it_is_released(tmp_path):
    path = tmp_path / ".lock"
    assert is_locked(path) is False
    lock = take_lock(path)
    assert is_locked(path) is True and take_lock(path) is None
    release_lock(lock)
    assert is_locked(path) is False
    release_lock(take_lock(path))


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP], ids=errno.errorcode.get)
def test_a_file_system_without_locks_is_named_once_and_used(number, tmp_path, monkeypatch):
    def flock(file, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
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
