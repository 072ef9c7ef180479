"""The lock of a run folder: one process at a time trains the run in it."""

import os
import socket
from pathlib import Path

from filelock import FileLock, Timeout
from pytorch_lightning.utilities import rank_zero_warn

from datamodules.documents import CorpusError
from experiments.run_state import LOCK

REQUEUED = 120.0  # seconds that a job of SLURM waits: a file server may keep the lock of a node that failed


def lock_run(run: Path) -> FileLock | None:
    """Lock an existing run folder for training; the lock is released when this process ends for any reason.

    The lock file also has the id of the current or last owner.

    Returns:
        The lock; None, with a warning, if the file system has no locks.

    Raises:
        CorpusError: if another process trains this run.
    """
    path = Path(run) / LOCK
    lock = FileLock(path, timeout=REQUEUED if "SLURM_JOB_ID" in os.environ else 0, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        owner = path.read_text(encoding="utf-8").strip() or "another process"
        raise CorpusError(
            f"{run}: {owner} is training this run; wait until it ends, stop it, or pass another --run_dir"
        ) from None
    except OSError as error:
        rank_zero_warn(f"{path}: cannot be locked ({error.strerror or error}); start this run only once at a time")
        return None
    path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
    return lock
