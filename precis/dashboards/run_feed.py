"""What a dashboard shows of a run folder: logged values, scores, predictions and pictures, as far as they are new."""

import csv
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datamodules.documents import UserError
from datamodules.text.lines import load_json
from precis.config.labels import short_key
from precis.config.run_config import read_config
from precis.evaluation.systems import ASIDE, SEEDS, flat_config
from precis.runs.prediction_files import table_of_predictions
from precis.runs.runs import find_runs
from precis.runs.sweep_points import sweep_and_label

MAX_ROWS = 200  # rows of a table of predictions


@dataclass
class News:
    """Records that were added to a run folder since the last read.

    Attributes:
        restarted: whether what was shown before no longer holds, as after a resumed run.
        values: steps with the values that were logged at them.
        tables: columns and rows of predictions, by name, at the last step.
        pictures: steps with names and files of pictures.
    """

    restarted: bool = False
    values: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    tables: dict[str, tuple[list[str], list[list[Any]]]] = field(default_factory=dict)
    pictures: list[tuple[int, str, Path]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.restarted or self.values or self.tables or self.pictures)


class RunFeed:
    """Reads a run folder again and again.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._values: list[tuple[int, dict[str, float]]] = []
        self._files: dict[Path, tuple[int, int]] = {}  # shown files, with time and size

    @property
    def last_step(self) -> int:
        """The last step with logged values."""
        return self._values[-1][0] if self._values else 0

    def read(self) -> News:
        """Return what is new; after a change of what was shown, everything."""
        values, files = read_values(self.folder / "metrics.csv"), self._find_files()
        shown = len(self._values)
        changed = any(files.get(path) != stamp for path, stamp in self._files.items())
        news = News(restarted=values[:shown] != self._values or changed)
        if news.restarted:
            shown, self._files = 0, {}
        news.values = values[shown:]
        new_files = [path for path in files if path not in self._files]
        self._values, self._files = values, files
        for path in new_files:
            self._read_file(path, news)
        return news

    def _find_files(self) -> dict[Path, tuple[int, int]]:
        patterns = ("results*.json", "predictions*.jsonl", "previews/step*/*.png", "*.png")
        files = {}
        for path in sorted(path for pattern in patterns for path in self.folder.glob(pattern)):
            with suppress(OSError):  # removed since
                files[path] = (path.stat().st_mtime_ns, path.stat().st_size)
        return {path: stamp for path, stamp in files.items() if not path.name.endswith(".scores.jsonl")}

    def _read_file(self, path: Path, news: News) -> None:
        if path.suffix == ".png":
            match = re.fullmatch(r"step(\d+)", path.parent.name)
            name = f"previews/{path.stem}" if match else path.stem
            news.pictures.append((int(match[1]) if match else self.last_step, name, path))
            return
        with suppress(ValueError, KeyError, TypeError, OSError):  # a file that is being written is read the next time
            if path.suffix == ".json":
                scores = load_json(path.read_text(encoding="utf-8"))["scores"]
                news.values.append((self.last_step, {name: float(value) for name, value in scores.items()}))
            else:
                news.tables[path.stem] = table_of_predictions(path, MAX_ROWS)


def read_values(path: Path) -> list[tuple[int, dict[str, float]]]:
    """Return steps and values in metrics.csv, without an incomplete last line."""
    rows: list[tuple[int, dict[str, float]]] = []
    with suppress(OSError, ValueError, csv.Error), path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if None in row or None in row.values():
                break
            values = {name: float(value) for name, value in row.items() if value and name not in ("step", "epoch")}
            rows.append((int(row["step"]), values))
    return rows


def find_run_folders(paths: Sequence[Path]) -> list[Path]:
    """Return the run folders in folders, at any depth, in the order of their names.

    Raises:
        UserError: if a folder does not exist.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: no such folder; give run folders, sweep folders, or the one that has them")
        found |= {run: None for run in find_runs(path) if (run / "environment.json").is_file()}
    return list(found)


def config_columns(folders: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    """Return the config of each run for the dashboard: model, ablation, seed, and the keys in which the runs differ.

    A run that is alone has all its keys. Folders whose config cannot be read are left out.
    """
    configs: dict[Path, dict[str, Any]] = {}
    for folder in folders:
        with suppress(UserError):
            configs[folder] = {key: v for key, v in flat_config(read_config(folder)) if key not in ASIDE}
    keys = dict.fromkeys(key for config in configs.values() for key in config if key not in SEEDS)
    values = {key: {json.dumps(config.get(key)) for config in configs.values()} for key in keys}
    varied = {key for key in keys if len(values[key]) > 1 or len(configs) == 1}
    columns = {}
    for folder, config in configs.items():
        sweep, label = sweep_and_label(folder)
        model = str(config.get("model.class_path")).rpartition(".")[2]
        named = {"model": model, "ablation": label or sweep or model, "seed": config.get("seed_everything")}
        columns[folder] = named | {short_key(key, varied): config.get(key) for key in sorted(varied)}
    return columns
