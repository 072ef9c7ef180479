"""Compose the points of a sweep file into configs that `precis fit` accepts.

This needs the parser of `precis fit`, which imports torch and Lightning; `grid.py` reads the file without them.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from datamodules.documents import UserError
from datamodules.text.hashing import text_digest
from precis.config.linked_arguments import check_linked
from precis.config.parse_errors import explain
from precis.config.trust import check_permitted_names
from precis.config.written_paths import check_written_paths
from precis.sweeping.grid import SEED, Point, Sweep, flags, points_of
from precis.training.training import fit_parser


def compose(sweep: Sweep) -> list[Point]:
    """Return all points of a sweep with their configs, as parsed by `precis fit`.

    Raises:
        UserError: if a key or value is wrong, or two points are equal; the message names the points.
    """
    parser = fit_parser()
    defaults = _as_dict(parser, parser.get_defaults())
    by_digest: dict[str, Point] = {}
    parsed: dict[str, dict[str, Any]] = {}  # points that only differ in their seed are parsed once
    for point in points_of(sweep):
        seed = {SEED: point.overrides[SEED]} if sweep.seeds else {}
        without_seed = json.dumps({key: value for key, value in point.overrides.items() if key not in seed})
        if without_seed not in parsed:
            parsed[without_seed] = _compose_point(parser, sweep, point)
        config = parsed[without_seed] | seed
        # The digest has no values that equal their defaults, so that a new option in a later version renames no run.
        chosen = json.dumps(_without(config, defaults), sort_keys=True)
        digest = text_digest(chosen)[:8]
        if digest in by_digest:
            first = by_digest[digest]
            no_effect = [key for key, value in point.overrides.items() if first.overrides.get(key, value) != value]
            why = f" ({', '.join(no_effect)} changes nothing)" if no_effect else ""
            same = f"the points {first.label!r} and {point.label!r} are the same run{why}"
            raise UserError(f"{sweep.path}: {same}; remove one of them")
        by_digest[digest] = Point(point.label, point.overrides, config, f"{_slug(point.label)}_{digest}")
    return list(by_digest.values())


def compose_configs(sweep: Sweep, points: Iterable[Point]) -> list[dict[str, Any]]:
    """Return the configs of any points over the base of a sweep, as `compose` does."""
    parser = fit_parser()
    return [_compose_point(parser, sweep, point) for point in points]


def _compose_point(parser: ArgumentParser, sweep: Sweep, point: Point) -> dict[str, Any]:
    try:
        return _parse(parser, sweep.base, point.overrides)
    except ArgumentError as error:
        raise _first_error(parser, sweep, point) or error from None
    except UserError as error:
        raise UserError(f"{sweep.path}: point {point.label!r}: {error}") from None


def _slug(label: str) -> str:
    """Return a label as part of a folder name."""
    parts = (re.sub(r"[^A-Za-z0-9.+]+", "-", part).strip("-.") for part in label.split(" "))
    return "_".join(part for part in parts if part)[:80]


def _parse(parser: ArgumentParser, base: Path, overrides: dict[str, Any]) -> dict[str, Any]:
    arguments = [f"--config={base}", *flags(overrides)]
    config = parser.parse_args(arguments)
    check_permitted_names(config)
    check_written_paths(config, None)
    check_linked(arguments, config)
    return _as_dict(parser, config)


def _as_dict(parser: ArgumentParser, config: Namespace) -> dict[str, Any]:
    # JSON is parsed many times faster than YAML
    return json.loads(parser.dump(config, format="json", skip_validation=True, skip_unset=False))


def _without(config: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return a config without the values that equal their defaults."""
    remaining = {}
    for key, value in config.items():
        default = defaults.get(key)
        if isinstance(value, dict) and isinstance(default, dict):
            value, default = _without(value, default), {}
        if value != default:
            remaining[key] = value
    return remaining


def _first_error(parser: ArgumentParser, sweep: Sweep, point: Point) -> UserError | None:
    """Return an error on the base, or on the first override that the parser rejects."""
    overrides: dict[str, Any] = {}
    for key, value in [("", None), *point.overrides.items()]:
        overrides |= {key: value} if key else {}
        try:
            _parse(parser, sweep.base, overrides)
        except ArgumentError as error:
            explanation = explain(str(error), "fit")
            if not key:
                return UserError(f"{sweep.base}: {explanation}")
            prefix = "" if explanation.startswith(f"{key}:") else f"{key}: "
            return UserError(f"{sweep.path}: point {point.label!r}: {prefix}{explanation}")
    return None
