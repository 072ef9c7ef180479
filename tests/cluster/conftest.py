"""A SLURM for the tests of this folder, started once; they are skipped where it cannot be started."""

import os
import shutil
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
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # not in pytest's: its socket needs a short name
    before = {name: os.environ.get(name) for name in ("SLURM_CONF", "PYTHONPATH")}
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS.parent), str(TESTS), before["PYTHONPATH"]]))
    with LocalSlurm(folder, cpus=2) as running:
        os.environ["SLURM_CONF"] = str(running.config)
        yield running
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    shutil.rmtree(folder, ignore_errors=True)
