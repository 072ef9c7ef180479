"""Runs read from their folders, grouped into systems: runs that differ only in their seed."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.documents import UserError
from datamodules.text.hashing import file_digest
from datamodules.text.language import length_words
from datamodules.text.lines import counted, load_json
from lightning_modules.metrics.novelty import repeated_ngrams
from lightning_modules.metrics.rouge import score_many, signature
from precis.config.run_config import format_value, read_config, short_key
from precis.evaluation.predictions import read_predictions, scores_path
from precis.evaluation.scorers import ScoreOptions, score
from precis.files.data_files import read_json
from precis.runs.prediction_files import NAMES, MissingPredictions, find_predictions, read_rows, recorded_results
from precis.runs.sweep_points import POINTS, read_described, without_seed

MOST_IN_A_NAME = 5  # differing keys; with more, the folder's name is easier to read
SEEDS = ("seed_everything", "data.init_args.seed")
# Keys that do not affect the result of a run.
ASIDE = (
    "run_dir", "resume", "dry_run", "ckpt_path", "weights_only", "wandb", "wandb_project", "wandb_models", "previews",
    "save_every", "out", "checkpoint.dirpath",
    "trainer.logger", "trainer.enable_progress_bar", "trainer.enable_model_summary", "trainer.default_root_dir",
    "data.init_args.tokenizer_dir", "data.init_args.cache_dir", "data.init_args.num_workers", "data.init_args.num_proc",
)  # fmt: skip


@dataclass
class RunRecord:
    """Content of a run folder, or of a file of predictions, which has neither config nor curves."""

    path: Path  # the folder or file
    config: dict[str, Any]  # config with flat, dotted keys; empty for a file
    environment: dict[str, Any]  # content of environment.json; empty if there is none
    rows: list[dict[str, Any]]  # records of the predictions
    signatures: dict[str, str]  # signatures of scores by measure, as far as recorded
    split: str | None = None  # predicted split; None if not recorded
    lead: dict[str, float] = field(default_factory=dict)  # scores of lead-1 on the same documents, as far as recorded
    label: str = ""  # label in its sweep without the seed; empty without a sweep

    @property
    def seed(self) -> int | None:
        """Seed of weights and random choices."""
        return self.environment.get("seed", self.config.get("seed_everything"))

    @cached_property
    def setting(self) -> dict[str, Any]:
        """Config without seeds and keys that do not affect results."""
        return {key: value for key, value in self.config.items() if key not in (*SEEDS, *ASIDE)}

    @cached_property
    def measures(self) -> dict[str, NDArray[np.float64]]:
        """Scores of all documents by measure, [N], NaN for missing ones; length and repeated trigrams (%) are added."""
        names = dict.fromkeys(name for row in self.rows for name in row.get("scores", {}))
        measures = {
            name: np.array([row.get("scores", {}).get(name, np.nan) for row in self.rows], dtype=np.float64)
            for name in names
        }
        words = [length_words(" ".join(row["summary"])) for row in self.rows]
        measures["length"] = np.array([len(text) for text in words], dtype=np.float64)
        measures["repeated_trigrams"] = np.array([100 * repeated_ngrams(text) for text in words])
        return measures

    def curves(self) -> dict[str, list[tuple[int, float]]]:
        """Return (step, value) of all values in metrics.csv; empty if there is none."""
        folder = self.path if self.path.is_dir() else self.path.parent
        path = folder / "metrics.csv"
        if not path.is_file() or not self.config:
            return {}
        values: dict[str, list[tuple[int, float]]] = {}
        try:
            with path.open(newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    for name, value in row.items():
                        if name not in ("step", "epoch") and value and row.get("step"):
                            values.setdefault(name, []).append((int(float(row["step"])), float(value)))
        except (ValueError, TypeError, OverflowError, csv.Error) as error:
            reason = " ".join(str(error).split())
            message = f"{path}: not a table of logged values ({reason}); move it away to compare without curves"
            raise UserError(message) from None
        return values


@dataclass
class System:
    """Runs that differ only in their seed."""

    name: str  # name that distinguishes it from other systems
    runs: list[RunRecord] = field(default_factory=list)  # at least one run, over the same documents

    @property
    def is_fixed(self) -> bool:
        """Whether it is a file of outputs without a run folder, such as a baseline, which has no seed."""
        return not any(run.config for run in self.runs)

    def scores_by_run(self, measures: Sequence[str]) -> NDArray[np.float64]:
        """Return the scores of all runs and documents, [runs, documents, measures]."""
        runs = [np.stack([run.measures[name] for name in measures], axis=1) for run in self.runs]
        return np.stack(runs)

    def scores(self, measure: str) -> NDArray[np.float64]:
        """Return scores of all documents, averaged over runs, [N]."""
        return np.mean([run.measures[measure] for run in self.runs], axis=0)

    def means(self, measure: str) -> list[float]:
        """Return the mean over documents of each run."""
        return [float(np.nanmean(run.measures[measure])) for run in self.runs]


def rescore(run: RunRecord, language: str) -> None:
    """Replace the recorded ROUGE scores of a run by those in another language."""
    variants = ("rouge1", "rouge2", "rougeL", "rougeLsum")
    rows = [row for row in run.rows if row["references"]]
    texts = ([row[name] for row in rows] for name in ("summary", "references"))
    for row, scores in zip(rows, score_many(*texts, variants, language=language)):
        row["scores"] = row.get("scores", {}) | {name: 100 * score.fmeasure for name, score in scores.items()}
    run.signatures |= {variant: signature(variant, language=language) for variant in variants}


def read_all(paths: Sequence[Path], split: str | None = None, language: str = "en") -> list[RunRecord]:
    """Return the runs in run folders, sweep folders and files of predictions, in order and without duplicates.

    Args:
        paths: the folders and files.
        split: split of the predictions to read; by default the first of test, val and predict that all runs have.
        language: code of the language in which predictions without scores are scored.

    Raises:
        UserError: for a path of another kind, a path without predictions, or predictions of two different splits.
    """
    listed = {path: _runs_in(path) for path in paths}
    split = split or _shared_split([run for entries in listed.values() for run, _ in entries if run.is_dir()])
    runs: dict[Path, RunRecord] = {}
    for path, entries in listed.items():
        with_predictions = [entry for entry in entries if entry[0] == path or _has_predictions(entry[0], split)]
        if not with_predictions:
            raise UserError(f"{path}: no point of this sweep has predictions yet; let `precis sweep` finish one")
        if lacking := len(entries) - len(with_predictions):
            print(f"{path}: {lacking} of {len(entries)} points have no predictions yet, left out", file=sys.stderr)
        for run, label in with_predictions:
            runs.setdefault(run.resolve(), _read_run(run, label, split, language))
    recorded = {run.split: run for run in runs.values() if run.split is not None}
    if len(recorded) > 1:
        (first_split, first), (second_split, second), *_ = recorded.items()
        splits = f"{first.path} holds predictions of the {first_split} split, {second.path} of the {second_split} split"
        raise UserError(f"{splits}; compare one split, with --split")
    return list(runs.values())


def _runs_in(path: Path) -> list[tuple[Path, str]]:
    """Return a run, or the runs of a sweep with the sweep's labels."""
    if not (path / POINTS).is_file():
        return [(path, "")]
    return [(path / row["run"], without_seed(row["label"])) for row in read_described(path)["points"]]


def _has_predictions(folder: Path, split: str) -> bool:
    try:
        return find_predictions(folder, split).is_file()
    except MissingPredictions:
        return False


def _shared_split(folders: Sequence[Path]) -> str:
    """Return the first split that all runs with predictions have; `test` if there is none."""
    splits = [{split for split in NAMES if _has_predictions(folder, split)} for folder in folders]
    shared = set(NAMES).intersection(*filter(None, splits))
    return next((split for split in NAMES if split in shared), "test")


def _read_run(path: Path, label: str, split: str, language: str) -> RunRecord:
    """Read a run folder, or a file of predictions of a run or of `precis baseline`."""
    if not path.exists():
        raise UserError(f"{path}: no such folder; give a run, a sweep or a file of predictions")
    predictions, folder = path, path.parent
    if path.is_dir():
        config = read_config(path)
        predictions, folder = find_predictions(path, split), path
    elif path.suffix != ".jsonl":
        raise UserError(f"{path}: compare reads JSON Lines; give a .jsonl file with id, summary and references")
    else:
        of_run = path.name.startswith("predictions.") and (folder / "config.yaml").is_file()
        config = read_config(folder) if of_run else {}
    environment = folder / "environment.json"
    rows, recorded = read_rows(predictions), _signatures(predictions, predictions) or {}
    signatures = _add_evaluated(predictions, rows, recorded)
    if not any(row.get("scores") for row in rows):
        signatures |= _add_rouge(predictions, rows, language)
    results = recorded_results(predictions)
    return RunRecord(
        path=path,
        config=dict(flat_config(config)) if config else {},
        environment=read_json(environment) if config and environment.is_file() else {},
        rows=rows,
        signatures=signatures,
        split=results.get("split"),
        lead=results.get("lead1", {}),
        label=label,
    )


def _signatures(scores: Path, predictions: Path) -> dict[str, str] | None:
    """Return how scores were computed; None if they are not known to be scores of these predictions."""
    path = scores.with_suffix(".signatures.json")
    recorded = read_json(path) if path.is_file() else {}
    return recorded if recorded.pop("sha256", None) == file_digest(predictions) else None


def _add_evaluated(path: Path, rows: list[dict[str, Any]], recorded: dict[str, str]) -> dict[str, str]:
    """Add the scores that `precis evaluate` wrote for these predictions, by their digest; return all signatures."""
    scores_file = scores_path(path)
    if not scores_file.is_file():
        return recorded
    evaluated = _signatures(scores_file, path)
    if evaluated is None:
        remedy = f"run `precis evaluate {path}` again"
        print(f"{scores_file}: scores of other predictions, ignored; {remedy}", file=sys.stderr)
        return recorded
    by_id = {(str(row["id"]), row.get("system")): row for row in rows}
    for number, line in enumerate(scores_file.read_text(encoding="utf-8").split("\n"), 1):
        if not line:
            continue
        try:
            scored = load_json(line)
            row = by_id.get((str(scored["id"]), scored.get("system")))
            numbers = {name: float(value) for name, value in scored["scores"].items() if value is not None}
        except (ValueError, KeyError, TypeError, AttributeError):
            message = f"{scores_file}:{number}: no record with id and scores; run `precis evaluate` again"
            raise UserError(message) from None
        if row is not None:
            recorded_scores = row.get("scores", {})
            missing = (name for name in numbers if name not in recorded_scores or name not in recorded)
            row["scores"] = recorded_scores | {name: numbers[name] for name in missing}
    return evaluated | recorded


def _add_rouge(path: Path, rows: list[dict[str, Any]], language: str) -> dict[str, str]:
    """Add ROUGE to predictions that nobody has scored yet, as `precis evaluate` does, and return the signatures."""
    if not all(row["references"] for row in rows):
        return {}
    scores = score(read_predictions(path), ["rouge"], ScoreOptions(language=language))  # in the order of the rows
    print(f"{path}: scored with ROUGE, since it had no scores", file=sys.stderr)
    for index, row in enumerate(rows):
        row["scores"] = {name: float(column.values[index]) for name, column in scores.items()}
    return {name: column.signature for name, column in scores.items()}


def flat_config(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Return nested values with dotted keys; lists are not flattened."""
    if isinstance(config, dict) and config:
        for key, value in config.items():
            yield from flat_config(value, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, config


def systems_of(runs: Sequence[RunRecord]) -> list[System]:
    """Group runs with the same setting into systems, and align their rows; a `UserError` if their documents differ.

    Two runs with the same setting and seed differ in code or environment, so that each run of such a setting is a
    separate system.
    """
    for run in runs[1:]:
        _align(runs[0], run)
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        key = json.dumps(run.setting, sort_keys=True) if run.config else str(run.path)
        groups.setdefault(key, []).append(run)
    systems = []
    for group in groups.values():
        same_seed_twice = len({run.seed for run in group}) < len(group)
        systems += [System("", [run]) for run in group] if same_seed_twice else [System("", group)]
    for system, name in zip(systems, _names(systems)):
        system.name = name
    return systems


def _align(first: RunRecord, run: RunRecord) -> None:
    """Sort the rows of a run as in the first one; raise a `UserError` if documents or references differ."""
    by_id, expected = {row["id"]: row for row in run.rows}, {row["id"] for row in first.rows}
    keys = [key for key in _differing_keys([first.setting, run.setting]) if key.startswith("data.")]
    remedy = "they cannot be compared; test all runs on the same documents"
    remedy += f" (their configs differ in {', '.join(keys)})" if keys else ""
    for missing, complete, lacking in ((expected - by_id.keys(), first, run), (by_id.keys() - expected, run, first)):
        if missing:
            documents = f"{counted(len(missing), 'document')} of {complete.path}, such as {min(missing, key=str)!r}"
            raise UserError(f"{lacking.path}: no predictions of {documents}; {remedy}")
    run.rows = [by_id[row["id"]] for row in first.rows]
    run.__dict__.pop("measures", None)  # cached in the former order
    for first_row, row in zip(first.rows, run.rows):
        if _joined(first_row["references"]) != _joined(row["references"]):
            name = first_row["id"]
            raise UserError(f"{run.path}: document {name!r} has other references than in {first.path}; {remedy}")


def _joined(references: list[list[str]]) -> list[list[str]]:
    """Return the words of each reference, which do not depend on how it was divided into sentences."""
    return [" ".join(reference).split() for reference in references]


def _differing_keys(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Return the keys in which configs differ; empty ones, of files without a config, are not compared."""
    with_config = [setting for setting in settings if setting]
    keys = dict.fromkeys(key for setting in with_config for key in setting)
    return [key for key in keys if any(setting.get(key) != with_config[0].get(key) for setting in with_config)]


def config_differences(systems: Sequence[System]) -> dict[str, list[Any]]:
    """Return config keys in which systems differ, with the value of each system; None for missing keys and configs."""
    settings = [system.runs[0].setting for system in systems]
    return {key: [setting.get(key) for setting in settings] for key in _differing_keys(settings)}


def _names(systems: Sequence[System]) -> list[str]:
    """Return names of systems: label in the sweep, or differences of configs, or the name of the folder."""
    labels = [system.runs[0].label for system in systems]
    if all(labels) and len(set(labels)) == len(labels):
        return labels
    differing = config_differences(systems)
    names = []
    for system in systems:
        run = system.runs[0]
        parts = [f"{short_key(key, set(differing))}={format_value(run.setting.get(key))}" for key in differing]
        names.append(" ".join(parts) if run.config and 0 < len(parts) <= MOST_IN_A_NAME else run.path.stem)
    paths = [system.runs[0].path for system in systems]
    return [name if names.count(name) == 1 else f"{name} ({path})" for name, path in zip(names, paths)]
