"""state.json and the lock of a run folder: whether training runs, has finished, or how it ended. Light to import.

    {"state": "running" | "finished" | "stopped" | "failed" | "diverged", "step": 1200}

A process that is killed cannot write how it ended: its run is `running` in the file, and its lock is free. Here is also
whether the user is logged in to Weights & Biases, whose client takes seconds to import.
"""

import json
import netrc
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from datamodules.file_locks import is_locked, take_lock
from datamodules.text.lines import load_json

STATE, LOCK = "state.json", ".fit.lock"
SLURM_WAIT = 120.0  # seconds, in a requeued job: a file server may hold the lock of a failed node for a while


def write_state(run: Path, state: str, step: int) -> None:
    """Record the state of training; if the folder was removed or the disk is full, do nothing."""
    with suppress(OSError, UserError):  # training need not end because its state cannot be recorded
        if Path(run).is_dir():
            atomic_write(Path(run) / STATE, json.dumps({"state": state, "step": step}) + "\n")


def read_state(run: Path) -> dict[str, Any]:
    """Return `step` (or None) and `state` of state.json (or `unknown`); the lock tells `running` from `killed`."""
    recorded: dict[str, Any] = {"state": "unknown", "step": None}
    with suppress(OSError, ValueError):  # no file, or an invalid one
        recorded |= load_json((Path(run) / STATE).read_text(encoding="utf-8"))
    locked = is_locked(Path(run) / LOCK)  # None on a file system without locks: state.json decides
    if locked:
        recorded["state"] = "running"
    elif locked is False and recorded["state"] == "running":  # its process was killed before it could write a state
        recorded["state"] = "killed"
    return recorded


def lock_run(run: Path) -> int:
    """Lock a run folder until this process ends or releases the returned lock; a `UserError` if it is locked."""
    path = Path(run) / LOCK
    lock = take_lock(path, wait=SLURM_WAIT if "SLURM_JOB_ID" in os.environ else 0)  # a requeued job's old lock may last
    if lock is None:
        owner = path.read_text(encoding="utf-8").strip() or "another process"  # which has not written its name yet
        raise UserError(f"{run}: {owner} is training this run; wait until it ends, stop it, or pass another --run_dir")
    path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
    return lock


def logged_in() -> bool:
    """Return whether Weights & Biases has a key: in the environment, or in ~/.netrc, where `wandb login` writes it."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):  # no file, or a malformed one
        return False
