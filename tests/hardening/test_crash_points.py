"""A few of the kills of `make harden`: run folders and caches are as if nothing had been."""

import pytest
from crash_points import CacheCrashes, RunCrashes, problems

from precis.config.load_classes import load_classes

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kind, kills", [(RunCrashes, 4), (CacheCrashes, 6)], ids=["run", "cache"])
def test_kills_at_file_operations_leave_nothing_lost(kind, kills, tmp_path, monkeypatch):
    monkeypatch.setenv("PRECIS_CACHE", str(tmp_path / "documents"))
    monkeypatch.setattr("precis.runs.run_folder._git", lambda *_: None)  # which asks other processes
    load_classes()
    crashes = kind(tmp_path)
    count = len(crashes.operations)
    assert count > 50  # that is, operations are seen
    numbers = range(1, count + 1, count // kills)
    assert list(filter(None, problems(crashes, numbers))) == []
