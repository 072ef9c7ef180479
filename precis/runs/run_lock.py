"""The lock of a run folder: one process at a time trains the run in it."""

import os
import socket
from pathlib import Path

from datamodules.documents import UserError
from datamodules.file_locks import take_lock
from precis.runs.run_state import LOCK

REQUEUED = 120.0  # seconds that a job of SLURM waits: a file server may keep the lock of a node that failed


def lock_run(run: Path) -> int:
    """Lock an existing run folder for training, and return the descriptor of the lock, for `release_lock`.

    The lock is released when this process ends for any reason. Its file also has the id of the current or last owner.
    """
    path = Path(run) / LOCK
    lock = take_lock(path, wait=REQUEUED if "SLURM_JOB_ID" in os.environ else 0)
    if lock is None:
        owner = path.read_text(encoding="utf-8").strip() or "another process"
        raise UserError(
            f"{run}: {owner} is training this run; wait until it ends, stop it, or pass another --run_dir"
        )
    path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
    return lock
