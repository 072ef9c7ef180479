"""Runs read from their folders, grouped into systems: runs that differ only in their seed."""

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from datamodules.documents import UserError
from datamodules.text.language import length_words
from datamodules.text.lines import counted, load_json
from lightning_modules.metrics.novelty import repeated_ngrams
from precis.config.run_config import format_value, read_config, short_key
from precis.evaluation.prediction_fields import SentenceCutter
from precis.evaluation.predictions import read_predictions, scores_path, signatures_of
from precis.evaluation.scorers import ScoreOptions, score
from precis.files.data_files import read_json
from precis.files.nested_values import leaves
from precis.runs.prediction_files import NAMES, existing_predictions, find_predictions, read_rows, recorded_results
from precis.runs.sweep_points import POINTS, read_described, without_seed

MAX_KEYS_IN_NAME = 5  # differing config keys in the name of a system; with more, the folder's name is easier to read
SEEDS = ("seed_everything", "data.init_args.seed")  # config keys
# Config keys that do not affect the result of a run.
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
    signatures: dict[str, str]  # by measure, how its scores were computed; without those that are not recorded
    split: str | None = None  # predicted split; None if not recorded
    lead: dict[str, float] = field(default_factory=dict)  # scores of first sentences as summaries; may be empty
    label: str = ""  # label in its sweep without the seed; empty without a sweep

    @property
    def seed(self) -> int | None:
        """Seed of weights and random choices; None if not recorded, as for a file of predictions."""
        return self.environment.get("seed", self.config.get("seed_everything"))

    @cached_property
    def setting(self) -> dict[str, Any]:
        """Config without seeds and keys that do not affect results."""
        return {key: value for key, value in self.config.items() if key not in (*SEEDS, *ASIDE)}

    @cached_property
    def measures(self) -> dict[str, NDArray[np.float64]]:
        """Scores of the N documents by measure, each an array [N] with NaN where a document has no score.

        Added to the recorded measures are the summary's length in words, and its repeated trigrams in percent.
        """
        scores = [record.get("scores", {}) for record in self.rows]  # one dict for each document
        names = dict.fromkeys(name for document_scores in scores for name in document_scores)  # once each, in order
        measures = {name: np.array([each.get(name, np.nan) for each in scores], dtype=np.float64) for name in names}
        words = [length_words(*record["summary"]) for record in self.rows]  # of each summary, a list of words
        measures["length"] = np.array([len(summary) for summary in words], dtype=np.float64)
        measures["repeated_trigrams"] = np.array([100 * repeated_ngrams(summary) for summary in words])
        return measures

    def curves(self) -> dict[str, list[tuple[int, float]]]:
        """Return the curve of each logged name in metrics.csv, as (step, value) pairs; empty without this file."""
        path = (self.path if self.path.is_dir() else self.path.parent) / "metrics.csv"
        if not path.is_file() or not self.config:  # without a config, the file is not from a run of this suite
            return {}
        curves: dict[str, list[tuple[int, float]]] = {}
        try:
            with path.open(newline="", encoding="utf-8") as file:
                for record in csv.DictReader(file):
                    for name, value in record.items():  # empty if the name is not logged at this step
                        if name not in ("step", "epoch") and value and record.get("step"):
                            curves.setdefault(name, []).append((int(float(record["step"])), float(value)))
        except (ValueError, TypeError, OverflowError, csv.Error) as error:
            reason = " ".join(str(error).split())
            message = f"{path}: not a table of logged values ({reason}); move it away to compare without curves"
            raise UserError(message) from None
        return curves


@dataclass
class System:
    """Runs that differ only in their seed."""

    name: str  # name that distinguishes it from other systems
    runs: list[RunRecord]  # at least one run, over the same documents

    @property
    def is_fixed(self) -> bool:
        """Whether the system is a file of outputs without a run folder, such as a baseline's, which has no seed."""
        return not any(run.config for run in self.runs)

    def scores_by_run(self, measures: Sequence[str]) -> NDArray[np.float64]:
        """Return the scores of all runs and documents, [runs, documents, measures]."""
        return np.stack([np.stack([run.measures[name] for name in measures], axis=1) for run in self.runs])

    def scores(self, measure: str) -> NDArray[np.float64]:
        """Return the scores of the N documents, averaged over runs, [N]."""
        return np.mean([run.measures[measure] for run in self.runs], axis=0)


def read_all(paths: Sequence[Path], split: str | None = None, language: str | None = None) -> list[RunRecord]:
    """Return the runs in run folders, sweep folders and files of predictions, in order and without duplicates.

    Args:
        paths: the folders and files.
        split: split of the predictions to read; by default the first of test, val and predict that all runs have.
        language: code of the language in which ROUGE of all runs is computed anew; by default only missing scores are.

    Raises:
        UserError: for a path of another kind, a path without predictions, or predictions of two different splits.
    """
    labeled_runs = {path: _runs_in(path) for path in paths}  # by path: a (run, label in its sweep) for each of its runs
    folders = [run for entries in labeled_runs.values() for run, _ in entries if run.is_dir()]
    split = split or _shared_split(folders)  # of all run folders; "test" for files alone
    runs: dict[Path, RunRecord] = {}
    for path, entries in labeled_runs.items():
        # Runs of a sweep without predictions are left out; reading one that the user named (`run == path`) is an error.
        with_predictions = [(run, label) for run, label in entries if run == path or existing_predictions(run, split)]
        if not with_predictions:
            raise UserError(f"{path}: no point of this sweep has predictions yet; let `precis sweep` finish one")
        if lacking := len(entries) - len(with_predictions):
            print(f"{path}: {lacking} of {len(entries)} points have no predictions yet, left out", file=sys.stderr)
        for run, label in with_predictions:
            runs.setdefault(run.resolve(), _read_run(run, label, split, language))  # duplicates are ignored
    run_by_split = {run.split: run for run in runs.values() if run.split is not None}  # an example of each split
    if len(run_by_split) > 1:
        (first_split, first), (second_split, second), *_ = run_by_split.items()
        splits = f"{first.path} holds predictions of the {first_split} split, {second.path} of the {second_split} split"
        raise UserError(f"{splits}; compare one split, with --split")
    return list(runs.values())


def _runs_in(path: Path) -> list[tuple[Path, str]]:
    """Return (run folder, label without seed) by run in points.json of a sweep; for other paths, the path and ""."""
    if not (path / POINTS).is_file():
        return [(path, "")]
    return [(path / point["run"], without_seed(point["label"])) for point in read_described(path)["points"]]


def _shared_split(folders: Sequence[Path]) -> str:
    """Return the first of test, val and predict (`NAMES`) that all runs with predictions have; `test` if none."""
    splits = [{split for split in NAMES if existing_predictions(folder, split)} for folder in folders]  # of each run
    shared = set(NAMES).intersection(*filter(None, splits))  # filter: runs without predictions do not count
    return next((split for split in NAMES if split in shared), "test")


def _read_run(path: Path, label: str, split: str, language: str | None) -> RunRecord:
    """Read a run folder or file of predictions. `label`: the run's label in its sweep; `language`: as in `read_all`."""
    if not path.exists():
        raise UserError(f"{path}: no such folder; give a run, a sweep or a file of predictions")
    if path.is_file() and path.suffix != ".jsonl":
        raise UserError(f"{path}: compare reads JSON Lines; give a .jsonl file with id, summary and references")
    folder = path if path.is_dir() else path.parent
    predictions = find_predictions(path, split) if path.is_dir() else path
    # A file in a run folder has the run's config only if the run wrote it, and not, for example, `precis baseline`.
    is_of_run = path.is_dir() or (path.name.startswith("predictions.") and (folder / "config.yaml").is_file())
    config = read_config(folder) if is_of_run else {}
    environment = folder / "environment.json"
    records = read_rows(predictions)
    signatures = signatures_of(scores=predictions, predictions=predictions) or {}  # of recorded scores
    signatures = _add_evaluated(predictions, records, signatures)  # adds scores of `precis evaluate` to `records`
    if language is not None:
        signatures |= _add_rouge(predictions, records, language)
    elif not any(record.get("scores") for record in records) and all(record["references"] for record in records):
        signatures |= _add_rouge(predictions, records)  # else length and repetition can still be compared
        print(f"{predictions}: scored with ROUGE, since it had no scores", file=sys.stderr)
    results = recorded_results(predictions)  # `lead1`: ROUGE of first sentences, in the language of the run
    return RunRecord(
        path=path, label=label, rows=records, signatures=signatures,
        config=dict(leaves(config, into_lists=False)) if config else {},
        environment=read_json(environment) if config and environment.is_file() else {},
        split=results.get("split"), lead=results.get("lead1", {}) if language is None else {},
    )  # fmt: skip


def _add_evaluated(path: Path, records: list[dict[str, Any]], signatures: dict[str, str]) -> dict[str, str]:
    """Add scores by `precis evaluate` to those in `records`, whose `signatures` are given; return all signatures."""
    scores_file = scores_path(path)
    if not scores_file.is_file():
        return signatures
    evaluated = signatures_of(scores_file, path)
    if evaluated is None:
        remedy = f"run `precis evaluate {quote(str(path))}` again"
        print(f"{scores_file}: scores of other predictions, ignored; {remedy}", file=sys.stderr)
        return signatures
    by_id = {(record["id"], record.get("system")): record for record in records}
    for number, line in enumerate(scores_file.read_text(encoding="utf-8").split("\n"), start=1):
        if not line:  # after the last line feed
            continue
        try:
            scored = load_json(line)
            record = by_id.get((str(scored["id"]), scored.get("system")))
            numbers = {name: float(value) for name, value in scored["scores"].items() if value is not None}
        except (ValueError, KeyError, TypeError, AttributeError):  # invalid JSON, or a value of another type
            message = f"{scores_file}:{number}: no record with id and scores; run `precis evaluate` again"
            raise UserError(message) from None
        if record is not None:
            recorded_scores = record.get("scores", {})  # kept if a signature says how they were computed
            missing = (name for name in numbers if name not in recorded_scores or name not in signatures)
            record["scores"] = recorded_scores | {name: numbers[name] for name in missing}
    return evaluated | signatures  # recorded signatures take precedence, as do the scores


def _add_rouge(path: Path, records: list[dict[str, Any]], language: str | None = None) -> dict[str, str]:
    """Set ROUGE of records with references as `precis evaluate` does, and split their texts; return signatures."""
    cutter = SentenceCutter(language=language or "en")  # splits texts into sentences
    predictions = read_predictions(path, splitter=cutter)  # in the order of the records
    if language is not None:  # one signature for all runs: also name the splitter for lists of sentences, not split
        predictions = [replace(prediction, split=cutter.name) for prediction in predictions]
    pairs = [(record, prediction) for record, prediction in zip(records, predictions) if prediction.references]
    scores = score([prediction for _, prediction in pairs], ["rouge"], ScoreOptions(language=cutter.language.code))
    for index, (record, prediction) in enumerate(pairs):
        rouge = {name: float(by_document.values[index]) for name, by_document in scores.items()}
        record["scores"] = record.get("scores", {}) | rouge
        record |= {"summary": prediction.summary, "references": prediction.references}
    return {name: by_document.signature for name, by_document in scores.items()}


def systems_of(runs: Sequence[RunRecord]) -> list[System]:
    """Group runs that differ only in their seed into systems, and sort the records of all runs as in the first run.

    If two runs have the same setting (config without seeds) and seed, they must differ in something else, such as the
    code, so each run of this setting is a separate system. A `UserError` if the documents of two runs differ.
    """
    for run in runs[1:]:
        _sort_records(run, as_in=runs[0])
    groups: dict[str, list[RunRecord]] = {}  # by setting; a file of predictions has none, and is a group by itself
    for run in runs:
        setting = json.dumps(run.setting, sort_keys=True) if run.config else str(run.path)
        groups.setdefault(setting, []).append(run)
    systems: list[list[RunRecord]] = []  # runs of each system
    for group in groups.values():
        same_seed_twice = len({run.seed for run in group}) < len(group)
        systems += [[run] for run in group] if same_seed_twice else [group]
    names = _system_names([system[0] for system in systems])  # the runs of a system differ only in their seed
    return [System(name, system) for name, system in zip(names, systems)]


def _sort_records(run: RunRecord, as_in: RunRecord) -> None:
    """Sort the records of `run` as in another run; a `UserError` if documents, or the words of references, differ."""
    by_id = {record["id"]: record for record in run.rows}
    expected = {record["id"] for record in as_in.rows}
    possible_causes = [key for key in _differing_keys([as_in.setting, run.setting]) if key.startswith("data.")]
    remedy = "they cannot be compared; test all runs on the same documents"
    remedy += f" (their configs differ in {', '.join(possible_causes)})" if possible_causes else ""
    # Both ways: `missing` has the ids of documents that the run `complete` has, and the run `lacking` has not.
    for missing, complete, lacking in ((expected - by_id.keys(), as_in, run), (by_id.keys() - expected, run, as_in)):
        if missing:
            documents = f"{counted(len(missing), 'document')} of {complete.path}, such as {min(missing)!r}"
            raise UserError(f"{lacking.path}: no predictions of {documents}; {remedy}")
    run.rows = [by_id[record["id"]] for record in as_in.rows]
    run.__dict__.pop("measures", None)  # discards the cached property, whose arrays have the former order
    for expected_record, record in zip(as_in.rows, run.rows):  # references may be divided into other sentences
        if _reference_letters(expected_record["references"]) != _reference_letters(record["references"]):
            name = record["id"]
            raise UserError(f"{run.path}: document {name!r} has other references than in {as_in.path}; {remedy}")


def _reference_letters(references: list[list[str]]) -> list[str]:
    """Return each reference without white space, in Unicode's NFC form, whatever its division into sentences."""
    return [normalize("NFC", "".join("".join(reference).split())) for reference in references]


def _differing_keys(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Return the keys in which configs differ; empty configs, of files of predictions, are not compared."""
    with_config = [setting for setting in settings if setting]
    keys = dict.fromkeys(key for setting in with_config for key in setting)  # once each, in order of appearance
    return [key for key in keys if any(setting.get(key) != with_config[0].get(key) for setting in with_config)]


def config_differences(systems: Sequence[System]) -> dict[str, list[Any]]:
    """Return config keys in which systems differ, with the value of each system; None for missing keys and configs."""
    settings = [system.runs[0].setting for system in systems]
    return {key: [setting.get(key) for setting in settings] for key in _differing_keys(settings)}


def _system_names(runs: Sequence[RunRecord]) -> list[str]:
    """Return names for a run of each system: label in a sweep, differing config values or file name, unique by path."""
    labels = [run.label for run in runs]
    if all(labels) and len(set(labels)) == len(labels):
        return labels
    differing = _differing_keys([run.setting for run in runs])  # not in names if there are too many
    names = []
    for run in runs:
        parts = [f"{short_key(key, set(differing))}={format_value(run.setting.get(key))}" for key in differing]
        names.append(" ".join(parts) if run.config and 0 < len(parts) <= MAX_KEYS_IN_NAME else run.path.stem)
    return [name if names.count(name) == 1 else f"{name} ({run.path})" for name, run in zip(names, runs)]
