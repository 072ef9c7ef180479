"""A grid over config keys: from a sweep file to points, each with a config that `precis fit` accepts.

    base: pointer_generator/docstrings                            # of the suite; or a path from here, or from this file
    set: {trainer.max_epochs: 2}                                  # the same in every point
    grid: {model.coverage: [true, false]}                         # products
    zip: {data.max_source: [50, 100], data.batch_size: [32, 16]}  # lists taken side by side
    points:                                                       # rows by hand, with a name or without
      - {name: attention, model.pointer: false, trainer.callbacks: null}
    random: {budget: 20, keys: {model.dropout: {uniform: [0, 0.5]}}}  # random search, see random_search.py
    seeds: [1, 2, 3]                                              # of weights and draws: seed_everything
    after: [test]                                                 # commands after fit; {run} is the run folder

The sweep's points are grid x zip x points x random x seeds. Keys are those of the command line.
"""

import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datamodules.documents import CorpusError
from experiments.command_table import COMMANDS, TRAINING
from experiments.earlier_configs import upgrade_flags
from experiments.labels import as_flag, format_value, short_key
from experiments.shipped import CONFIGS, find_shipped
from experiments.sweeping.random_search import check_random, draws
from experiments.yaml_files import read_yaml

OWN_KEYS = ("run_dir", "resume", "ckpt_path")  # what the sweep itself gives to a run
SEED = "seed_everything"


@dataclass
class Sweep:
    """A sweep file; its fields are the file's keys (see the module).

    Attributes:
        path: of the file.
        rows: the file's `points`, each a name (or nothing) and its overrides.
        random: the file's, as it stands there; empty if it has none.
    """

    path: Path
    base: Path
    fixed: dict[str, Any]
    grid: dict[str, list]
    zipped: dict[str, list]
    rows: list[tuple[str, dict[str, Any]]]
    random: dict[str, Any]
    seeds: list[int]
    after: list[str]


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes:
        label: what varies and how, for people.
        overrides: keys and values that the base does not have, seed included.
        config: the composed config, every argument; empty before `compose`.
        name: of the run folder: what varies, and the first digits of the composed config's digest.
    """

    label: str
    overrides: dict[str, Any]
    config: dict[str, Any] = field(default_factory=dict)
    name: str = ""


# The file ------------------------------------------------------------------------------------------------------------


def read_sweep(path: Path) -> Sweep:
    """Reads a sweep file.

    Raises:
        CorpusError: if it is not there or no YAML, has an unknown key, an empty list, lists of different lengths in
            `zip`, or a key in two places.
    """
    given = _load(path)
    known = {"base": str, "set": dict, "grid": dict, "zip": dict, "points": list, "random": dict}
    known |= {"seeds": list, "after": list}
    for key, value in given.items():
        if key not in known:
            raise CorpusError(f"{path}: unknown key {key!r}; a sweep file has {', '.join(known)}")
        if not isinstance(value, known[key]) or (not value and key != "after"):
            kind = {str: "a path", dict: "keys with values", list: "a list"}[known[key]]
            raise CorpusError(f"{path}: {key} must be {kind}, not empty; got {value!r}; give some or leave it out")
    if "base" not in given:
        raise CorpusError(f"{path}: no base; name the config that the points are made from, base: CONFIG.yaml")
    grid, zipped = ({k: _list(path, part, k, v) for k, v in given.get(part, {}).items()} for part in ("grid", "zip"))
    if len(lengths := {key: len(values) for key, values in zipped.items()}) and len(set(lengths.values())) > 1:
        raise CorpusError(f"{path}: lists of different lengths in zip, {lengths}; they are taken side by side")
    seeds = given.get("seeds", [])
    if any(isinstance(seed, bool) or not isinstance(seed, int) for seed in seeds):
        raise CorpusError(f"{path}: seeds must be whole numbers; got {seeds}")
    sweep = Sweep(
        path, _base(path, given["base"]), given.get("set", {}), grid, zipped,
        [_row(path, number, row) for number, row in enumerate(given.get("points", []), 1)],
        given.get("random", {}), seeds, [str(command) for command in given.get("after", ["test"])],
    )  # fmt: skip
    if sweep.random:
        check_random(path, sweep.random)
    _check_keys(sweep)
    return sweep


def _load(path: Path) -> dict[str, Any]:
    try:
        return read_yaml(path, "not a sweep file; it needs base: CONFIG.yaml and grid, zip, points or seeds")
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); give a sweep file") from None


def _list(path: Path, part: str, key: str, values: Any) -> list:
    if not isinstance(values, list) or not values:
        raise CorpusError(f"{path}: {part}: {key} must be a list with a value at least; got {values!r}")
    return values


def _base(path: Path, name: str) -> Path:
    for folder in (path.parent, Path()):
        if (folder / name).is_file():
            return Path(os.path.normpath(folder / name))
    try:
        return find_shipped(name, CONFIGS)
    except CorpusError as error:
        remedy = "it is there neither from the sweep file's folder nor from the working folder"
        raise CorpusError(f"{path}: base {error}; {remedy}") from None


def _row(path: Path, number: int, row: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(row, dict):
        raise CorpusError(f"{path}: points: row {number} must be keys with values; got {row!r}")
    return str(row.get("name", "")), {key: value for key, value in row.items() if key != "name"}


def _check_keys(sweep: Sweep) -> None:
    in_rows = set().union(*(overrides for _, overrides in sweep.rows))
    drawn = sweep.random.get("keys", {})
    varying = [*sweep.grid, *sweep.zipped, *in_rows, *drawn, *([SEED] if sweep.seeds else [])]
    for key in [*varying, *sweep.fixed]:
        if key in OWN_KEYS:
            raise CorpusError(f"{sweep.path}: {key} is what a sweep gives to its runs; leave it out")
        if varying.count(key) > 1:
            raise CorpusError(f"{sweep.path}: {key} varies in two places; keep one of grid, zip, points, random, seeds")
    for command in sweep.after:
        if (command.split() or [""])[0] not in {*TRAINING, *COMMANDS} - {"fit", "sweep"}:
            raise CorpusError(f"{sweep.path}: after: {command!r} is no command; take test, for example")


# The points ----------------------------------------------------------------------------------------------------------


def points_of(sweep: Sweep) -> list[Point]:
    """The points that a file describes, grid x zip x points x random x seeds, seeds fastest; not checked yet."""
    grid = [dict(zip(sweep.grid, values)) for values in itertools.product(*sweep.grid.values())]
    zipped = [dict(zip(sweep.zipped, values)) for values in zip(*sweep.zipped.values())] or [{}]
    drawn = draws(sweep.random) if sweep.random else [{}]
    seeds = [{SEED: seed} for seed in sweep.seeds] or [{}]
    keys = {*sweep.grid, *sweep.zipped, *drawn[0], *(key for _, row in sweep.rows for key in row)}
    points = []
    rows = sweep.rows or [("", {})]
    for product, side, (name, row), draw, seed in itertools.product(grid, zipped, rows, drawn, seeds):
        varying = {**(product | side), **({} if name else row), **draw}
        words = [name] if name else []
        words += [f"{short_key(key, keys)}={format_value(value)}" for key, value in varying.items()]
        words += [f"seed={value}" for value in seed.values()]
        label = " ".join(words)
        points.append(Point(label or sweep.path.stem, sweep.fixed | product | side | row | draw | seed))
    return points


def flags(overrides: dict[str, Any]) -> list[str]:
    """Return overrides as arguments of the command line."""
    return upgrade_flags([f"--{key}={as_flag(value)}" for key, value in overrides.items()])
