"""Offline records of W&B read back with W&B's own viewer."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datamodules.documents import UserError

STEP = "trainer/global_step"


@dataclass
class OfflineRun:
    """Records of all starts of a run.

    Attributes:
        path: the run folder.
        job_type: name of the ablation, by which workspaces group runs.
        tags: tags of the run, of which one is the model.
        values: logged numbers by key, each with its step.
        media: files of tables and images by key, the newest last.
    """

    path: Path
    job_type: str = ""
    tags: list[str] = field(default_factory=list)
    values: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    media: dict[str, list[Path]] = field(default_factory=dict)


def read_offline_run(path: Path) -> OfflineRun:
    """Read the offline records of a run folder.

    Raises:
        UserError: if it has none, or one cannot be read.
    """
    run = OfflineRun(path)
    for folder in sorted((path / "wandb").glob("offline-run-*")):
        command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = " ".join(done.stderr.split()) or f"status {done.returncode}"
            raise UserError(f"{folder}: W&B's viewer cannot read this record ({reason})")
        for line in done.stdout.splitlines():
            _add(run, json.loads(line), folder)
    if not run.values:
        raise UserError(f"{path}: no offline records of W&B; train with --wandb offline")
    return run


def _add(run: OfflineRun, record: dict[str, Any], folder: Path) -> None:
    if record["type"] == "run":
        run.job_type, run.tags = record["run"].get("job_type", ""), record["run"].get("tags", [])
    if record["type"] != "history":
        return
    items = record["history"]["item"]
    step = int(items.get(STEP, 0))
    for key, value in items.items():
        name, _, attribute = key.rpartition(".")
        if isinstance(value, int | float) and not isinstance(value, bool):
            run.values.setdefault(key, []).append((step, float(value)))
        elif attribute == "path":
            run.media.setdefault(name, []).append(folder / "files" / value)
        elif attribute == "filenames":
            run.media.setdefault(name, []).extend(folder / "files" / file for file in value)
