"""`precis sync`: offline runs of Weights & Biases go to their server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jsonargparse import ArgumentParser

from datamodules.documents import CorpusError
from experiments.sweeping.sweep_folder import read_points
from experiments.wandb_login import logged_in


def sync(arguments: list[str]) -> None:
    """`precis sync FOLDER ...`: uploads the offline W&B runs of run folders and sweep folders.

    All starts of a run, and its test, become one W&B run, in their order. What was uploaded before is left out."""
    parser = ArgumentParser(prog="precis sync", description=sync.__doc__, exit_on_error=False)
    parser.add_argument("folders", type=Path, nargs="+", help="run folders, sweep folders")
    parser.add_argument("--project", type=str | None, default=None, help="another project than the runs' own")
    parser.add_argument("--entity", type=str | None, default=None, help="user or team; your default one if not given")
    parser.add_argument("--dry-run", action="store_true", help="print what there is to upload, upload nothing")
    options = parser.parse_args(arguments)
    folders = [Path(str(folder)) for folder in options.folders]
    found = [record for folder in folders for run in runs_in(folder) for record in records_of(run)]
    if not found:
        print("nothing to upload: no offline run of W&B that was not uploaded before")
        return
    if options.dry_run:
        print("\n".join(map(str, found)))
        print(f"{len(found)} to upload")
        return
    if not logged_in():
        raise CorpusError("nobody is logged in to W&B: run `wandb login`, or set WANDB_API_KEY")
    where = [f"--{name}={value}" for name in ("project", "entity") if (value := options[name])]
    told = {name: value for name, value in os.environ.items() if name not in ("WANDB_MODE", "WANDB_SILENT")}
    done = subprocess.run([sys.executable, "-m", "wandb", "sync", "--yes", *where, *map(str, found)], env=told)
    if done.returncode:
        raise CorpusError(f"wandb sync ended with status {done.returncode}; the same command uploads what is missing")


def runs_in(folder: Path) -> list[Path]:
    """The run folders that a folder is or, as a sweep's, has.

    Raises:
        CorpusError: if it is neither.
    """
    if (folder / "points.json").is_file():
        return [job.folder for job in read_points(folder)]
    if not (folder / "config.yaml").is_file():
        raise CorpusError(f"{folder}: neither a run nor a sweep; give a folder with config.yaml or points.json")
    return [folder]


def records_of(run: Path) -> Iterator[Path]:
    """Offline records of a run that were not uploaded yet, in the order in which they were made."""
    for folder in sorted((run / "wandb").glob("offline-run-*")):
        # W&B leaves NAME.wandb.synced beside what it has uploaded
        if list(folder.glob("*.wandb")) and not list(folder.glob("*.wandb.synced")):
            yield folder
