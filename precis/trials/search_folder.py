"""The sweep folder of a search: its settings, its workers, and the config of its best trial (see sweep_folder.py)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from precis.config.run_config import format_value, short_key
from precis.files.data_files import REMEDY, read_yaml
from precis.runs.sweep_points import read_described
from precis.trials.search_space import JOURNAL, check_search

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from precis.trials.study import Search

MODES = {"maximize": "max", "minimize": "min"}
BASE = "base.yaml"
BEST = "best.yaml"


def is_search(out: Path) -> bool:
    """Return whether a sweep folder belongs to a search, which keeps a journal in it."""
    return (Path(out) / JOURNAL).is_file()


def read_search(out: Path) -> "Search":
    """Open the search of a sweep folder; a `UserError` if the folder has none, or Optuna is not installed."""
    if not is_search(out):
        raise UserError(f"{out}: no search here; give the folder of a sweep with search: in its file")
    from precis.trials.study import Search

    return Search(out, read_section(out)[0])


def read_section(out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the section `search` of sweep.yaml with metric and direction, and the base config (base.yaml)."""
    path = Path(out) / "sweep.yaml"
    base_path = Path(out) / BASE
    section = read_yaml(path).get("search")
    base = read_yaml(base_path)
    if not isinstance(section, dict):
        raise UserError(f"{path}: no section search; {REMEDY}")
    check_search(path, section)  # also fills in defaults
    checkpoint = base.get("checkpoint")
    if not isinstance(checkpoint, dict) or checkpoint.get("mode") not in MODES.values() or "monitor" not in checkpoint:
        raise UserError(f"{base_path}: checkpoint.monitor and checkpoint.mode are missing; {REMEDY}")
    return with_metric(section, base), base


def with_metric(section: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Return the section `search` with the metric and direction by which runs of config `base` choose checkpoints."""
    (direction,) = (name for name, mode in MODES.items() if mode == base["checkpoint"]["mode"])
    return section | {"metric": base["checkpoint"]["monitor"], "direction": direction}


def label(values: dict[str, Any], keys: dict[str, Any]) -> str:
    """Return the values of a trial in short form, `lr=0.0012 dropout=0.25`; `keys` has all keys of the search."""
    rounded = {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in values.items()}
    return " ".join(f"{short_key(key, set(keys))}={format_value(value)}" for key, value in rounded.items())


def write_best(search: "Search", best: "FrozenTrial") -> None:
    """Write best.yaml to the sweep folder, the config of the best trial, with its values and score in a comment."""
    points = read_described(search.out)["points"]
    (point,) = (point for point in points if point["run"] == f"trial-{best.number:03}")
    header = f"# {point['label']}: {search.section['metric']} {best.value:.4g} in its best validation\n"
    atomic_write(search.out / BEST, header + yaml.safe_dump(point["config"], sort_keys=False, allow_unicode=True))
