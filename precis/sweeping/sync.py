"""`precis sync`: upload offline runs of Weights & Biases."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jsonargparse import ArgumentParser

from datamodules.documents import UserError
from precis.runs.wandb_login import logged_in
from precis.sweeping.folder_files import read_points


def sync(arguments: list[str]) -> None:
    """`precis sync FOLDER ...`: upload the offline W&B runs of run folders and sweep folders.

    All starts of a run and its test become one W&B run, in their order. Records that were uploaded are skipped."""
    parser = ArgumentParser(prog="precis sync", description=sync.__doc__, exit_on_error=False)
    parser.add_argument("folders", type=Path, nargs="+", help="run folders, sweep folders")
    parser.add_argument("--project", type=str | None, default=None, help="project; that of each run by default")
    parser.add_argument("--entity", type=str | None, default=None, help="user or team; your default entity if not set")
    parser.add_argument("--dry-run", action="store_true", help="print the records to upload, without uploading them")
    options = parser.parse_args(arguments)
    folders = options.folders
    records = [record for folder in folders for run in find_runs(folder) for record in offline_records(run)]
    if not records:
        print("nothing to upload: no offline run of W&B that was not uploaded before")
        return
    if options.dry_run:
        print("\n".join(map(str, records)))
        print(f"{len(records)} to upload")
        return
    if not logged_in():
        raise UserError("not logged in to W&B; run `wandb login`, or set WANDB_API_KEY")
    target = [f"--{name}={value}" for name in ("project", "entity") if (value := options[name])]
    environment = {name: value for name, value in os.environ.items() if name not in ("WANDB_MODE", "WANDB_SILENT")}
    command = [sys.executable, "-m", "wandb", "sync", "--yes", *target, *map(str, records)]
    process = subprocess.run(command, env=environment)
    if process.returncode:
        status = process.returncode
        raise UserError(f"wandb sync ended with status {status}; the same command uploads what is missing")


def find_runs(folder: Path) -> list[Path]:
    """Return the run folders of a sweep folder, or a run folder itself.

    Raises:
        UserError: if the folder is neither.
    """
    if (folder / "points.json").is_file():
        return [job.folder for job in read_points(folder)]
    if not (folder / "config.yaml").is_file():
        raise UserError(f"{folder}: neither a run nor a sweep; give a folder with config.yaml or points.json")
    return [folder]


def offline_records(run: Path) -> Iterator[Path]:
    """Yield the offline records of a run that were not uploaded yet, oldest first."""
    for folder in sorted((run / "wandb").glob("offline-run-*")):
        # W&B marks an uploaded record by a file NAME.wandb.synced.
        if list(folder.glob("*.wandb")) and not list(folder.glob("*.wandb.synced")):
            yield folder
