"""Read a sweep file and expand it to points, which override keys of a base config.

    base: pointer_generator/docstrings                            # config of the suite, or a path
    set: {trainer.max_epochs: 2}                                  # the same in every point
    grid: {model.coverage: [true, false]}                         # Cartesian product
    zip: {data.max_source: [50, 100], data.batch_size: [32, 16]}  # the n-th values of all lists together
    points:                                                       # explicit points, with or without a name
      - {name: attention, model.pointer: false, trainer.callbacks: null}
    search: {trials: 20, keys: {model.dropout: {uniform: [0, 0.5]}}}  # search, see search_space.py
    seeds: [1, 2, 3]                                              # values of seed_everything
    after: [test]                                                 # commands after fit; {run} is the run folder

The points are the product of grid, zip, points and seeds. Keys are those of the command line. A file with
search has none of these: its points are drawn while it runs.
"""

import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datamodules.documents import UserError
from precis.config.command_table import COMMANDS, TRAINING
from precis.config.run_config import as_flag, format_value, short_key
from precis.config.shipped import CONFIGS, find_shipped
from precis.config.trust import check_commands
from precis.files.data_files import read_yaml
from precis.trials.search_space import check_search

RESERVED_KEYS = ("run_dir", "resume", "ckpt_path")  # set by the sweep for each run
SEED = "seed_everything"
TYPES = {"base": str, "set": dict, "grid": dict, "zip": dict, "points": list, "search": dict}
TYPES |= {"seeds": list, "after": list}


@dataclass
class Sweep:
    """Content of a sweep file: a base config, and the config keys that each point (run) of the sweep overrides."""

    path: Path  # the sweep file
    base: Path  # config that the points change
    fixed: dict[str, Any] = field(default_factory=dict)  # section `set`: values of all points
    grid: dict[str, list] = field(default_factory=dict)  # lists of values, of which points have all combinations
    zipped: dict[str, list] = field(default_factory=dict)  # section `zip`: lists of which points have the n-th values
    rows: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # section `points`: (name or "", overrides)
    seeds: list[int] = field(default_factory=list)
    after: list[str] = field(default_factory=list)  # commands after `fit`
    search: dict[str, Any] = field(default_factory=dict)  # section of an adaptive search, which draws its points


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    label: str  # readable name: the keys that vary, with their values
    overrides: dict[str, Any]  # keys and values that differ from the base, including the seed
    config: dict[str, Any] = field(default_factory=dict)  # base with the overrides and defaults; empty before `compose`
    name: str = ""  # name of the run folder: the label, and the first digits of a digest of the config


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file; a `UserError` names the line or key that is wrong."""
    try:
        content = read_yaml(path, "not a sweep file; it needs base: CONFIG.yaml and grid, zip, points or seeds")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a sweep file") from None
    for key, value in content.items():
        if key not in TYPES:
            raise UserError(f"{path}: unknown key {key!r}; a sweep file has {', '.join(TYPES)}")
        if not isinstance(value, TYPES[key]) or (not value and key != "after"):  # after: [] runs only fit
            kind = {str: "a path", dict: "keys with values", list: "a list"}[TYPES[key]]
            raise UserError(f"{path}: {key} must be {kind}, not empty; got {value!r}; give some or leave it out")
    if "base" not in content:
        raise UserError(f"{path}: no base; name the config that the points are made from, base: CONFIG.yaml")
    for part in ("grid", "zip"):
        for key, values in content.get(part, {}).items():
            if not isinstance(values, list) or not values:
                raise UserError(f"{path}: {part}: {key} must be a list with a value at least; got {values!r}")
    lengths = {key: len(values) for key, values in content.get("zip", {}).items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"{path}: lists of different lengths in zip, {lengths}; they must be equal")
    seeds = content.get("seeds", [])
    if any(isinstance(seed, bool) or not isinstance(seed, int) for seed in seeds):  # in Python, true is an int
        raise UserError(f"{path}: seeds must be whole numbers; got {seeds}")
    fixed, grid, zipped, search = (content.get(key, {}) for key in ("set", "grid", "zip", "search"))
    sweep = Sweep(  # no `after` in a search, which compares trials on the validation and does not test them
        path, base=_base_path(path, content["base"]), fixed=fixed, grid=grid, zipped=zipped, seeds=seeds, search=search,
        rows=[_parse_point(path, number, row) for number, row in enumerate(content.get("points", []), 1)],
        after=[str(command) for command in content.get("after", [] if "search" in content else ["test"])],
    )  # fmt: skip
    if sweep.search:
        check_search(path, sweep.search)
        if others := content.keys() - {"base", "set", "search"}:
            raise UserError(f"{path}: {min(others)} beside search; a search only has base, set and search")
    _check_keys(sweep)
    return sweep


def _base_path(path: Path, name: str) -> Path:
    """Return the path of a sweep's base config: beside the sweep file, in the working folder, or shipped."""
    for folder in (path.parent, Path()):
        if (folder / name).is_file():
            return Path(os.path.normpath(folder / name))  # without "..", for points.json
    try:
        return find_shipped(name, CONFIGS)
    except UserError as error:
        searched = "it is neither in the folder of the sweep file nor in the working folder"
        raise UserError(f"{path}: base {error}; {searched}") from None


def _parse_point(path: Path, number: int, row: Any) -> tuple[str, dict[str, Any]]:
    """Return (name or "", overrides) of entry `number` of `points`; a `UserError` if it is no mapping."""
    if not isinstance(row, dict):
        raise UserError(f"{path}: points: row {number} must be keys with values; got {row!r}")
    return str(row.get("name", "")), {key: value for key, value in row.items() if key != "name"}


def _check_keys(sweep: Sweep) -> None:
    """Raise a `UserError` for a key that a sweep must not set, or sets twice, or a command that cannot follow `fit`."""
    keys_of_points = set().union(*(overrides for _, overrides in sweep.rows))  # may override `set` (`sweep.fixed`)
    sections = {"grid": [*sweep.grid], "zip": [*sweep.zipped], "search": [*sweep.search.get("keys", {})]}
    sections["seeds"] = [SEED] if sweep.seeds else []  # keys by section; none of them may also be in `set`
    varying = [*keys_of_points, *itertools.chain(*sections.values())]
    for key in [*varying, *sweep.fixed]:
        if key in RESERVED_KEYS:
            raise UserError(f"{sweep.path}: {key} is set by the sweep for each run; leave it out")
        if key in sweep.fixed and (section := next((name for name, keys in sections.items() if key in keys), None)):
            raise UserError(f"{sweep.path}: {key} is in set and in {section}; keep one of them")
        if varying.count(key) > 1:
            raise UserError(f"{sweep.path}: {key} varies in two places; keep one of grid, zip, points, seeds")
    for command in sweep.after:
        if (command.split() or [""])[0] not in {*TRAINING, *COMMANDS} - {"fit", "sweep"}:  # [""]: the command is empty
            raise UserError(f"{sweep.path}: after: {command!r} is not a command; for example, use test")
    check_commands(sweep.after, str(sweep.path))


def points_of(sweep: Sweep) -> list[Point]:
    """Return a sweep's points, without configs: the product of grid, zip, points and seeds; seeds vary fastest."""
    # Each factor is a list of overrides. A factor that the sweep lacks is [{}], the neutral element of the product.
    grid = [dict(zip(sweep.grid, values)) for values in itertools.product(*sweep.grid.values())]
    zipped = [dict(zip(sweep.zipped, values)) for values in zip(*sweep.zipped.values())] or [{}]
    seeds = [{SEED: seed} for seed in sweep.seeds] or [{}]
    rows = sweep.rows or [("", {})]  # (name, overrides) of the section `points`; its names are optional
    keys = {*sweep.grid, *sweep.zipped, *(key for _, overrides in rows for key in overrides)}  # for `short_key`
    points = []
    for grid_values, zipped_values, (name, overrides), seed in itertools.product(grid, zipped, rows, seeds):
        varying = grid_values | zipped_values | ({} if name else overrides)  # a name stands for the overrides
        words = [name, *(f"{short_key(key, keys)}={format_value(value)}" for key, value in varying.items())]
        words += [f"seed={value}" for value in seed.values()]
        label = " ".join(filter(None, words)) or sweep.path.stem
        points.append(Point(label, sweep.fixed | grid_values | zipped_values | overrides | seed))  # fixed: `set`
    return points


def flags(overrides: dict[str, Any]) -> list[str]:
    """Return overrides as arguments of a command line, `--KEY=VALUE`."""
    return [f"--{key}={as_flag(value)}" for key, value in overrides.items()]
