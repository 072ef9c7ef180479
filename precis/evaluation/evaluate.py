"""`precis evaluate`: all measures of outputs, with intervals and signatures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import NonNegativeInt, PositiveInt
from rich.console import Console

from datamodules.atomic_write import atomic_file, atomic_write
from datamodules.documents import Document, UserError
from datamodules.text.hashing import file_digest
from datamodules.text.lines import counted, json_line
from lightning_modules.metrics.lead import lead_scores
from precis.evaluation import predictions as output_files
from precis.evaluation.evaluate_tables import show
from precis.evaluation.prediction_fields import FieldNames, SentenceCutter, Splitter
from precis.evaluation.predictions import Prediction
from precis.evaluation.scorers import METRICS, CorpusScore, ScoreOptions, Scores, is_plug_in, lacking, score
from precis.files.data_files import check_outputs
from precis.runs.prediction_files import recorded_results
from precis.statistics import statistics


def evaluate(arguments: list[str]) -> None:
    """`precis evaluate FILE ...`: score the summaries in a file, or in a file for each of several systems.

    A file has records (JSON Lines with id, summary, references and optionally document; also CSV or Parquet), or is
    plain text with one summary per line, with --references FILE. If there are several files, the name of each is the
    name of its system, unless its records name systems. The scores of all documents are written beside each file.
    """
    options = _parser().parse_args(arguments)
    targets = _targets(options)  # checked before scoring, which may take an hour
    earlier = {target: output_files.signatures_of(target, path) or {} for path, target in targets.items()}
    digests = {path: file_digest(path) for path in targets}  # before reading: a file may change during an hour
    by_file = {path: _read(options, path) for path in targets}
    predictions = _name_systems(by_file) if len(by_file) > 1 else list(*by_file.values())  # of the only file
    score_options = ScoreOptions(**{name: options[name] for name in ScoreOptions.__dataclass_fields__})
    evaluated = evaluate_predictions(predictions, options.metrics, score_options, options.resamples, options.seed)
    uneven = uneven_systems(predictions)  # a note if systems summarize different documents, else None
    has_own = not options.references and options.fields.references == FieldNames.references  # not other references
    of_run = recorded_results(next(iter(targets))) if has_own else {}  # all files are about the same documents
    results = {
        "files": [str(path) for path in targets],
        "scores_files": [str(target) for target in targets.values()],
        "summaries": len(predictions),
        "documents": len({prediction.id for prediction in predictions}),
        "systems": list(dict.fromkeys(p.system for p in predictions if p.system is not None)),  # each once, in order
        "empty_predictions": sum(not prediction.summary for prediction in predictions),
        "level": statistics.LEVEL,
        "resamples": options.resamples,
        "seed": options.seed,
        "scores": evaluated.means,
        "left_out": evaluated.left_out,
        "lead1": _lead(predictions, of_run, score_options),  # ROUGE of first sentences
        "notes": [uneven] if uneven else [],
    }
    for target, recorded in earlier.items():
        if dropped := ", ".join(sorted(recorded.keys() - evaluated.scores.keys())):
            results["notes"].append(f"{target} no longer has {dropped}; give all --metrics at once, or another --out")
    start = 0  # index of the file's first output in `predictions`
    for path, file_predictions in by_file.items():
        end = start + len(file_predictions)
        values = {measure: measure_scores.values[start:end] for measure, measure_scores in evaluated.scores.items()}
        targets[path].parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(targets[path]) as file:
            file.writelines(map(json_line, document_rows(file_predictions, values)))
        start = end
        # `precis compare` uses the scores only if the predictions beside them still have this digest.
        signatures = {"sha256": digests[path]} | {name: score.signature for name, score in evaluated.scores.items()}
        text = json.dumps(signatures, ensure_ascii=False, indent=1)
        atomic_write(targets[path].with_suffix(".signatures.json"), text + "\n")
    if options.json:
        print(json.dumps(results, ensure_ascii=False, indent=1))
    else:
        show(results, Console())


def _lead(predictions: Sequence[Prediction], recorded: dict[str, Any], options: ScoreOptions) -> dict[str, float]:
    """Return ROUGE of first sentences (lead-1), recorded or computed; empty if ROUGE does not have default options."""
    defaults = ScoreOptions()
    if (options.stem, options.multi_reference) != (defaults.stem, defaults.multi_reference):
        return {}
    if recorded.get("lead1") and recorded.get("language") == options.language:  # the language defines ROUGE's words
        return recorded["lead1"]
    # By id, so that a document of several systems is scored once; all its sentences are one part (paragraph).
    by_id = {p.id: Document(p.id, [p.document], p.references) for p in predictions if p.document is not None}
    return lead_scores(by_id.values(), options.language)


def _targets(options: Namespace) -> dict[Path, Path]:
    """Return the file of scores by file of summaries; a `UserError` if summaries are missing or scores not writable."""
    paths = [Path(name) for name in options.files]
    if options.out and len(paths) > 1:
        raise UserError("--out names one file of scores; leave it out, to write scores beside each file")
    targets = {path: Path(options.out) if options.out else output_files.scores_path(path) for path in paths}
    for path, target in targets.items():
        if not path.is_file():
            raise UserError(f"{path}: no file of this name; give files of summaries, such as RUN/predictions.jsonl")
        check_outputs(out=target)
    return targets


def _name_systems(by_file: Mapping[Path, Sequence[Prediction]]) -> list[Prediction]:
    """Return the outputs of several files, after checks; those without a system get the file's name as system."""
    predictions = []
    for path, file_predictions in by_file.items():
        name = path.name.split(".")[0]  # `led` for led.predictions.jsonl
        predictions += [replace(each, system=name) if each.system is None else each for each in file_predictions]
    output_files.check_ids(predictions)
    output_files.check_all_or_none(predictions, "document")
    return predictions


def uneven_systems(predictions: Sequence[Prediction]) -> str | None:
    """Return a note if systems summarize different documents, so that their means cannot be compared; else None."""
    ids: dict[str | None, set[str]] = {}  # ids of documents by system
    for prediction in predictions:
        ids.setdefault(prediction.system, set()).add(prediction.id)
    documents = set().union(*ids.values())
    incomplete = [f"{system} {len(present):,}" for system, present in ids.items() if present != documents]
    if not incomplete:
        return None
    return f"means are over different documents: of {counted(len(documents), 'document')}, {', '.join(incomplete)}"


class Evaluated(NamedTuple):
    """Result of `evaluate_predictions`."""

    scores: dict[str, Scores]  # scores of every output by measure
    means: list[dict[str, Any]]  # mean with interval of each system and measure, as in `_means`
    left_out: dict[str, str]  # by metric that is not computed, the reason


def evaluate_predictions(
    predictions: Sequence[Prediction], metrics: str | None, options: ScoreOptions, resamples: int, seed: int
) -> Evaluated:
    """Return the scores of outputs, their means with bootstrap intervals, and the metrics that were left out.

    Args:
        predictions: outputs, with references and documents if the metrics need them.
        metrics: comma-separated names, a `UserError` if one is unknown or cannot be computed; None for all that can.
        options: settings of the metrics.
        resamples, seed: number of bootstrap samples, and the seed with which they are drawn.
    """
    names, left_out = _computable_metrics(metrics, predictions, options)
    scores = score(predictions, names, options)
    return Evaluated(scores, _means(predictions, scores, resamples, seed), left_out)


def _parser() -> ArgumentParser:
    """Return the argument parser of `precis evaluate`, which raises errors instead of exiting."""
    parser = ArgumentParser(prog="precis evaluate", description=evaluate.__doc__, exit_on_error=False)
    add = parser.add_argument
    add("files", type=str, nargs="+", help="files of summaries, such as RUN/predictions.jsonl")
    metrics_help = f"comma-separated, out of {', '.join(METRICS)}; by default all that can be computed"
    add("--metrics", type=str | None, default=None, help=metrics_help)
    add("--references", type=str, nargs="+", default=[], help="files with references, instead of the field")
    add("--documents", type=str | None, default=None, help="file with source documents")
    add("--run", type=str | None, default=None, help="run folder whose corpus has the source documents")
    add("--split", type=str, default="test", help="split of that corpus")
    add("--fields", type=FieldNames, default=FieldNames())
    splitter_help = "sentence splitter for strings: lines takes each line as a sentence, as rouge-score does; auto is "
    splitter_help += "lines for strings with several lines, and otherwise detects whether sentencex or tokenized fits"
    add("--splitter", type=Splitter, default="auto", help=splitter_help)
    add("--separator", type=str | None, default=None, help="separator of the sentences in a string, such as <q>")
    parser.add_class_arguments(ScoreOptions, None)  # a flag for each field; None: without a prefix
    add("--resamples", type=PositiveInt, default=statistics.RESAMPLES, help="number of resamples of the bootstrap")
    add("--seed", type=NonNegativeInt, default=0, help="seed of the bootstrap")
    add("--out", type=str | None, default=None, help="file for the scores of each document")
    add("--json", action="store_true", help="one JSON object instead of tables")
    return parser


def _read(options: Namespace, path: Path) -> list[Prediction]:
    """Read a file of outputs with references and sources, according to the options of `precis evaluate`."""
    if options.documents and options.run:
        raise UserError("--documents and --run both name the sources; give one of them")
    predictions = output_files.read_predictions(
        path,
        references=[Path(name) for name in options.references],
        documents=Path(options.documents) if options.documents else None,
        names=FieldNames(**{name: options.fields[name] for name in FieldNames.__dataclass_fields__}),  # of --fields
        splitter=SentenceCutter(options.splitter, options.separator, options.language),
    )
    return output_files.with_run_documents(predictions, options.run, options.split) if options.run else predictions


def _computable_metrics(
    requested: str | None, predictions: Sequence[Prediction], options: ScoreOptions
) -> tuple[list[str], dict[str, str]]:
    """Return (metrics to compute, reasons by metric why others cannot be); a `UserError` if these are requested."""
    names = list(METRICS)
    if requested is not None:
        names = list(dict.fromkeys(name.strip() for name in requested.split(",") if name.strip()))  # each once
    if not names:
        raise UserError(f"--metrics {requested!r} names no metric; there are {', '.join(METRICS)}")
    for name in names:
        if name not in METRICS and not is_plug_in(name):
            raise UserError(f"no metric {name!r}; there are {', '.join(METRICS)}, or give the import path of yours")
    reasons = {name: reason for name in names if (reason := lacking(name, predictions, options))}
    if requested is not None and reasons:
        name, reason = next(iter(reasons.items()))
        raise UserError(f"{name} cannot be computed: {reason}")
    return [name for name in names if name not in reasons], reasons


def _means(
    predictions: Sequence[Prediction], scores: Mapping[str, Scores], resamples: int, seed: int
) -> list[dict[str, Any]]:
    """Return a dict for each system and measure, with keys system, measure, mean, low, high, documents, signature."""
    means = []
    for system in dict.fromkeys(prediction.system for prediction in predictions):  # each once, in order
        indices = [index for index, prediction in enumerate(predictions) if prediction.system == system]
        table = np.stack([column.values[indices] for column in scores.values()], axis=1)  # [documents, measures]
        intervals = zip(*statistics.bootstrap_interval(table, resamples, seed))  # (mean, low, high) of each measure
        for (measure, column), interval in zip(scores.items(), intervals):
            if column.corpus is not None:  # such as BLEU, whose score of a corpus is not a mean
                interval = corpus_interval(column.corpus, indices, resamples, seed)
            mean, low, high = map(statistics.number_or_none, interval)
            documents = int((~np.isnan(column.values[indices])).sum())  # number of documents with a score
            entry = {"system": system, "measure": measure, "mean": mean, "low": low, "high": high}
            means.append(entry | {"documents": documents, "signature": column.signature})
    return means


def corpus_interval(corpus: CorpusScore, documents: Sequence[int], resamples: int, seed: int) -> statistics.Interval:
    """Return a corpus-level score of documents (indices), such as BLEU, with its percentile bootstrap interval."""
    counts = corpus.statistics[documents]  # such as of matching n-grams, [N documents, number of counts]
    scores = [corpus.score(sums) for sums in statistics.resampled_sums(counts, resamples, seed).tolist()]
    low, high = statistics.percentile_bounds(np.array(scores)[:, None])[:, 0].tolist()  # of a table with one column
    return statistics.Interval(corpus.score(counts.sum(0).tolist()), low, high)


def document_rows(predictions: Sequence[Prediction], values: Mapping[str, statistics.Array]) -> list[dict[str, Any]]:
    """Return the records of the file of scores, one for each output: id, system (if any), and scores by measure."""
    records = []
    for index, prediction in enumerate(predictions):
        system = {} if prediction.system is None else {"system": prediction.system}
        scores = {measure: statistics.number_or_none(column[index]) for measure, column in values.items()}
        records.append({"id": prediction.id, **system, "scores": scores})
    return records
