"""Checked readers of the files of a sweep folder, which may come from somebody else (see SECURITY.md).

All commands read these files here. What a file names is checked, whichever command reads it: commands after `fit`, run
folders, ids of jobs, and lines of a batch script.
"""

import re
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from datamodules.documents import UserError
from precis.config.trust import FLAG, check_commands, is_trusted
from precis.files.json_files import REMEDY, read_json
from precis.runs.sweep_points import POINTS, read_described
from precis.sweeping.job import Job
from precis.sweeping.slurm import Profile, checked_profile

LAUNCH = "launch.json"
_JOB_ID = re.compile(r"\d+(_\d+)?")
_PLAIN_DIRECTIVES = {"account", "constraint", "exclude", "gres", "nodelist", "qos", "reservation"}


def read_points(out: Path) -> list[Job]:
    """Return the points of a sweep folder; a `UserError` if it has a command that a sweep may not run."""
    content, path = read_described(out), Path(out) / POINTS
    check_commands(content["after"], str(path))
    after = tuple(content["after"])
    return [Job(row["label"], path.parent / row["run"], row["config"], after) for row in content["points"]]


def read_launch(out: Path) -> dict[str, Any]:
    """Return launch.json; empty if nothing was launched."""
    path = Path(out) / LAUNCH
    if not path.is_file():
        return {"launcher": None, "jobs": {}}
    content = read_json(path, launcher=str | None, jobs=dict[str, str])
    for number in content["jobs"].values():
        if not _JOB_ID.fullmatch(number):
            raise UserError(f"{path}: {number!r} is not the id of a SLURM job; {REMEDY}")
    return content


def read_local_launch(out: Path) -> tuple[str, int]:
    """Return host and process of a local launcher."""
    path = Path(out) / LAUNCH
    content = read_json(path, host=str, pid=int)
    if content["pid"] < 1:  # a signal to 0 or a negative number would reach a group of processes
        raise UserError(f"{path}: {content['pid']} is not the number of a launcher; {REMEDY}")
    return content["host"], content["pid"]


def read_profile(out: Path) -> Profile:
    """Return the profile of the last launch; a `UserError` if it has lines of a batch script and is not trusted."""
    path = Path(out) / LAUNCH
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--profile", type=Profile)
    try:
        parsed = parser.parse_object({"profile": read_json(path, profile=dict)["profile"]}).profile
    except ArgumentError as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}; {REMEDY}") from None
    profile = checked_profile(parsed)
    unchecked = ["setup"] * bool(profile.setup) + sorted(set(profile.directives) - _PLAIN_DIRECTIVES)
    if unchecked and not is_trusted():
        remedy = f"name a profile with --profile, or pass {FLAG} if you launched this sweep (see SECURITY.md)"
        raise UserError(f"{path}: profile: {unchecked[0]} may run commands; {remedy}")
    return profile
