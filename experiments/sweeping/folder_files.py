"""Checked readers of the files of a sweep folder, which may come from somebody else (see SECURITY.md).

All commands read these files here. What a file names is checked, whichever command reads it: commands after `fit`, run
folders, ids of jobs, and lines of a batch script.
"""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from datamodules.documents import CorpusError
from experiments.json_files import REMEDY, folder_beside, read_json
from experiments.sweeping.job import Job
from experiments.sweeping.slurm import Profile
from experiments.trust import FLAG, check_commands, is_trusted

POINTS, LAUNCH = "points.json", "launch.json"
_JOB_ID = re.compile(r"\d+(_\d+)?")
_PLAIN_DIRECTIVES = {"account", "constraint", "exclude", "gres", "nodelist", "qos", "reservation"}


def read_described(out: Path) -> dict[str, Any]:
    """Return points.json; the name of each run folder is that of a folder beside it.

    Raises:
        CorpusError: if it is missing or damaged.
    """
    path = Path(out) / POINTS
    if not path.is_file():
        raise CorpusError(f"{path}: not found; give the folder of a sweep, such as runs/NAME")
    content = read_json(path, after=list[str], points=list)
    for row in content["points"]:
        types = {"run": str, "label": str, "config": dict}
        if not isinstance(row, dict) or any(not isinstance(row.get(key), kind) for key, kind in types.items()):
            remedy = f"write it again with precis sweep FILE --out {out}"
            raise CorpusError(f"{path}: a point without label, run or config; {remedy}")
        folder_beside(path, row["run"])
    return content


def sweep_and_label(folder: Path) -> tuple[str, str]:
    """Return the name of the sweep of a run, and the label of its point without the seed; empty outside sweeps."""
    out = Path(folder).parent
    if not (out / POINTS).is_file():
        return "", ""
    content = read_described(out)
    labels = {row["run"]: without_seed(row["label"]) for row in content["points"]}
    return str(content.get("sweep", "")), labels.get(Path(folder).name, "")


def without_seed(label: str) -> str:
    """Return the label of a point without its seed."""
    return " ".join(word for word in label.split(" ") if not word.startswith("seed="))


def read_points(out: Path) -> list[Job]:
    """Return the points of a sweep folder.

    Raises:
        CorpusError: if it is not a sweep folder, or has a command that a sweep may not run.
    """
    content, path = read_described(out), Path(out) / POINTS
    check_commands(content["after"], str(path))
    after = tuple(content["after"])
    return [Job(row["label"], path.parent / row["run"], row["config"], after) for row in content["points"]]


def read_launch(out: Path) -> dict[str, Any]:
    """Return launch.json; empty if nothing was launched.

    Raises:
        CorpusError: if it is damaged.
    """
    path = Path(out) / LAUNCH
    if not path.is_file():
        return {"launcher": None, "jobs": {}}
    content = read_json(path, launcher=str | None, jobs=dict[str, str])
    for number in content["jobs"].values():
        if not _JOB_ID.fullmatch(number):
            raise CorpusError(f"{path}: {number!r} is not the id of a SLURM job; {REMEDY}")
    return content


def read_local_launch(out: Path) -> tuple[str, int]:
    """Return host and process of a local launcher.

    Raises:
        CorpusError: if launch.json does not name them.
    """
    path = Path(out) / LAUNCH
    content = read_json(path, host=str, pid=int)
    if content["pid"] < 1:  # a signal to 0 or a negative number would reach a group of processes
        raise CorpusError(f"{path}: {content['pid']} is not the number of a launcher; {REMEDY}")
    return content["host"], content["pid"]


def read_profile(out: Path) -> Profile:
    """Return the profile of the last launch.

    Raises:
        CorpusError: if it is damaged, or has lines of a batch script and is not trusted.
    """
    path = Path(out) / LAUNCH
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--profile", type=Profile)
    try:
        parsed = parser.parse_object({"profile": read_json(path, profile=dict)["profile"]}).profile
    except ArgumentError as error:
        raise CorpusError(f"{path}: {' '.join(str(error).split())}; {REMEDY}") from None
    profile = Profile(**{field.name: parsed[field.name] for field in fields(Profile)})
    unchecked = ["setup"] * bool(profile.setup) + sorted(set(profile.directives) - _PLAIN_DIRECTIVES)
    if unchecked and not is_trusted():
        remedy = f"name a profile with --profile, or pass {FLAG} if you launched this sweep (see SECURITY.md)"
        raise CorpusError(f"{path}: profile: {unchecked[0]} may run commands; {remedy}")
    return profile
