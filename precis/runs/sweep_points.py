"""Checked reader of the points of a sweep folder, which may come from somebody else (see SECURITY.md)."""

from pathlib import Path
from shlex import quote
from typing import Any

from datamodules.documents import UserError
from precis.files.data_files import REMEDY, read_json

POINTS = "points.json"


def read_described(out: Path) -> dict[str, Any]:
    """Return points.json, which lists a sweep's points (runs); a `UserError` if invalid, or a run is not beside it."""
    path = Path(out) / POINTS
    if not path.is_file():
        raise UserError(f"{path}: not found; give the folder of a sweep, such as runs/NAME")
    content = read_json(path, after=list[str], points=list)  # required keys; after: commands to run after `fit`
    types = {"run": str, "label": str, "config": dict}
    for point in content["points"]:
        if not isinstance(point, dict) or any(not isinstance(point.get(key), kind) for key, kind in types.items()):
            remedy = f"write it again with precis sweep FILE --out {quote(str(out))}"
            raise UserError(f"{path}: a point without label, run or config; {remedy}")
        name = point["run"]
        if name in ("", "..") or Path(name).name != name or name.startswith("-"):  # elsewhere, or like an option
            raise UserError(f"{path}: {name!r} is not the name of a folder beside this file; {REMEDY}")
    return content


def sweep_and_label(folder: Path) -> tuple[str, str]:
    """Return the sweep's name and the label (without seed) of a run folder; ("", "") if it is not in a sweep folder."""
    out = Path(folder).parent
    if not (out / POINTS).is_file():
        return "", ""
    content = read_described(out)
    labels = {point["run"]: without_seed(point["label"]) for point in content["points"]}
    return str(content.get("sweep", "")), labels.get(Path(folder).name, "")


def without_seed(label: str) -> str:
    """Return the label of a sweep's run without its seed, such as `lr=0.1` for `lr=0.1 seed=2`."""
    seeds = ("seed=", "seed_everything=")  # of the section `seeds`, and of the key in another section
    return " ".join(word for word in label.split(" ") if not word.startswith(seeds))
