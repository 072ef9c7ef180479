"""The sweep folder of a search: its settings, its workers, and the config of its best trial (see sweep_folder.py)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from datamodules.atomic_write import atomic_write
from datamodules.documents import CorpusError
from experiments.json_files import read_json
from experiments.labels import format_value, short_key
from experiments.sweeping.job import JOURNAL, WorkerJob
from experiments.sweeping.search_space import check_search
from experiments.yaml_files import read_yaml

if TYPE_CHECKING:
    from experiments.sweeping.study import Search

MODES = {"maximize": "max", "minimize": "min"}
BASE, BEST = "base.yaml", "best.yaml"


def is_search(out: Path) -> bool:
    """Return whether a sweep folder is that of a search."""
    return (Path(out) / JOURNAL).is_file()


def read_search(out: Path) -> "Search":
    """Return the search of a sweep folder.

    Raises:
        CorpusError: if the folder has none, or Optuna is not installed.
    """
    if not is_search(out):
        raise CorpusError(f"{out}: no search here; give the folder of a sweep with search: in its file")
    from experiments.sweeping.study import Search

    path = Path(out) / "sweep.yaml"
    section = read_yaml(path)["search"]
    check_search(path, section)
    return Search(out, with_metric(section, read_yaml(Path(out) / BASE)))


def with_metric(section: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Return the section of a search with the metric and direction of the base, which every trial has."""
    directions = {mode: direction for direction, mode in MODES.items()}
    checkpoint = base["checkpoint"]
    return section | {"metric": checkpoint["monitor"], "direction": directions[checkpoint["mode"]]}


def label(values: dict[str, Any], keys: dict[str, Any]) -> str:
    """Return the values of a trial in short form, such as `lr=0.0012 dropout=0.25`."""
    shown = {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in values.items()}
    return " ".join(f"{short_key(key, set(keys))}={format_value(value)}" for key, value in shown.items())


def worker_jobs(out: Path, count: int) -> list[WorkerJob]:
    """Return the jobs of at least `count` workers, and of those that the search had before."""
    numbers = [int(path.name.rpartition("-")[2]) for path in Path(out).glob("worker-*")]
    section, base = read_yaml(Path(out) / "sweep.yaml")["search"], read_yaml(Path(out) / BASE)
    last = max([count, *numbers])
    return [
        WorkerJob(f"worker {number}", Path(out) / f"worker-{number}", base, trials=section["trials"])
        for number in range(1, last + 1)
    ]


def write_best(search: "Search") -> None:
    """Write best.yaml, the config of the best trial."""
    best = search.best
    described = read_json(search.out / "points.json", "points")
    (row,) = (row for row in described["points"] if row["run"] == f"trial-{best.number:03}")
    header = f"# {row['label']}: {search.section['metric']} {best.value:.4g} in its best validation\n"
    config = yaml.safe_dump(row["config"], sort_keys=False, allow_unicode=True)
    atomic_write(search.out / BEST, header + config)
