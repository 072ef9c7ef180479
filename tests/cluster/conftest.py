"""A SLURM for the tests of this folder, one for each process of pytest; they are skipped where it cannot be started."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
from local_slurm import LocalSlurm, missing

TESTS = Path(__file__).parents[1]


def pytest_collection_modifyitems(config, items) -> None:
    """These take minutes: they run where they are asked for, by `pytest -m cluster`."""
    config.addinivalue_line("markers", "cluster: proofs on a real SLURM, which they start")
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.cluster)
        item.add_marker(pytest.mark.timeout(3600))
    if "cluster" not in config.option.markexpr and ours:
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]


@pytest.fixture(scope="session")
def slurm(cache):
    """A SLURM with two nodes of two CPUs; the tests' commands find it."""
    if why := missing():
        pytest.skip(why)
    pytest.importorskip("submitit", reason="needs the optional package submitit")
    # not in pytest's folder: its socket needs a short name
    folder = tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True)
    with pytest.MonkeyPatch.context() as patch, folder as place:
        patch.setenv("PYTHONPATH", f"{TESTS.parent}{os.pathsep}{TESTS}", prepend=os.pathsep)
        with LocalSlurm(Path(place)) as running:
            patch.setenv("SLURM_CONF", str(running.config))
            yield running
