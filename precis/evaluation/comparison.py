"""Comparison of systems with a baseline: means, intervals and tests over the same documents."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from datamodules.documents import UserError
from datamodules.text.lines import counted, json_line
from lightning_modules.metrics.lead import describe_lead
from precis.evaluation.compared_systems import System
from precis.statistics import significance
from precis.statistics.statistics import Array, number_or_none

COUNTED = ("length", "repeated_trigrams")  # counted for each comparison, so they have no signature
DEFAULT = ("rouge1", "rouge2", "rougeLsum", *COUNTED)
# describe outputs, also by `precis evaluate`; neither direction is an improvement
DESCRIPTIVE = re.compile("length|words|(repeated|novel)_.*|coverage|density|compression")
ENOUGH_SEEDS = 3
MIN_DOCUMENTS = 20  # for a test without seeds: over fewer documents, a mean of skewed differences is far from normal


@dataclass(frozen=True)
class Cell:
    """Statistics of one system by one measure."""

    mean: float  # mean over documents and seeds
    low: float | None  # 95 % interval of the mean over seeds and documents; None for a single document
    high: float | None
    spread: float | None  # standard deviation of the means of runs; None for a single run
    # difference to the baseline over documents with both scores; None for the baseline itself
    difference: float | None = None
    # 95 % interval and p-value of the difference over seeds and documents, see `mean_difference`; over documents only
    # if both systems have one run
    difference_low: float | None = None
    difference_high: float | None = None
    p: float | None = None
    # whether the difference is significant after Holm's correction for all comparisons of the table; never for
    # descriptive measures, or if a trained system has a single run; between outputs that do not depend on a seed, only
    # with at least `MIN_DOCUMENTS`
    significant: bool = False


@dataclass(frozen=True)
class Comparison:
    """Comparison of systems by several measures."""

    systems: list[System]  # the systems
    baseline: int  # index of the system that others are compared with
    measures: list[str]  # names of measures
    cells: list[list[Cell]]  # a list for each system, with a cell for each measure
    notes: list[str]  # caveats for the reader

    @property
    def split(self) -> str | None:
        """The predicted split; None if no run recorded it."""
        return next((run.split for system in self.systems for run in system.runs if run.split is not None), None)

    @property
    def documents(self) -> int:
        """Number of documents of the comparison."""
        return len(self.systems[0].runs[0].rows)


def compare_systems(systems: Sequence[System], measures: Sequence[str], baseline: int = 0) -> Comparison:
    """Return means, intervals and tests of systems over the same documents; `baseline` is the index of a system."""
    scores = [system.scores_by_run(measures) for system in systems]  # each [R runs, N documents, M measures]
    tests = _test_differences(systems, scores, measures, baseline)
    cells = []
    for index, system_scores in enumerate(scores):
        system_cells = []
        intervals: Any = significance.system_interval(system_scores)  # means, lower and upper bounds, each [M]
        means = np.nanmean(system_scores, axis=1)  # of each run, [R, M]
        for column, (mean, low, high) in enumerate(zip(*intervals)):
            spread = float(np.std(means[:, column], ddof=1)) if len(means) > 1 else None  # over seeds
            test = tests.get((index, column), {})  # further fields of `Cell`; none for the baseline
            system_cells.append(Cell(float(mean), number_or_none(low), number_or_none(high), spread, **test))
        cells.append(system_cells)
    notes = _notes_on(systems, measures, documents=scores[0].shape[1])
    return Comparison(list(systems), baseline, measures=list(measures), cells=cells, notes=notes)


def _test_differences(
    systems: Sequence[System], scores: Sequence[Array], measures: Sequence[str], baseline: int
) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the fields of `Cell` that compare systems with the baseline, by indices of system and measure.

    `scores` has an array [R runs, N documents, M measures] for each system. Fixed systems are files of outputs.
    """
    others = [index for index in range(len(systems)) if index != baseline]
    tested = np.array([not DESCRIPTIVE.fullmatch(name) for name in measures])  # [M]
    differences = []
    testable = np.full((len(others), len(measures)), False)  # whether there are enough runs and documents
    for row, index in enumerate(others):
        pair = (systems[index], systems[baseline])
        fixed = (pair[0].is_fixed, pair[1].is_fixed)
        differences.append(significance.mean_difference(scores[index], scores[baseline], fixed))
        shared, _ = significance.keep_shared(scores[index], scores[baseline])  # [R, N, M]; a NaN spreads to all runs
        counts = (~np.isnan(shared[0])).sum(0)  # documents with scores in all runs, [M], by the first run
        # A test needs two runs of each trained system; between fixed systems it needs many documents instead.
        documents_suffice = not all(fixed) or counts >= MIN_DOCUMENTS  # True, or [M]
        testable[row] = documents_suffice & all(system.is_fixed or len(system.runs) > 1 for system in pair)

    p_values = np.array([difference.p for difference in differences]).reshape(testable.shape)  # [others, M]
    stars = significance.significant(np.where(tested, p_values, np.nan)) & testable  # Holm's correction; NaN: no test
    tests = {}
    for row, index in enumerate(others):
        for column in range(len(measures)):
            mean, low, high, p, _detectable = (number_or_none(values[column]) for values in differences[row])
            test = {"difference": mean, "difference_low": low, "difference_high": high, "p": p}  # fields of `Cell`
            tests[index, column] = test | {"significant": bool(stars[row, column])}
    return tests


def _notes_on(systems: Sequence[System], measures: Sequence[str], documents: int) -> list[str]:
    """Return caveats to print; a `UserError` if the scores of two runs by a measure were computed differently."""
    notes = []
    runs = [run for system in systems for run in system.runs]
    scored = [name for name in measures if name not in COUNTED]
    unsigned = [str(run.path) for run in runs if any(name not in run.signatures for name in scored)]
    if unsigned:
        message = f"it is not recorded how the scores of {', '.join(unsigned)} were computed"
        notes.append(f"{message}; `precis test` and `precis evaluate` record it")
    for name in measures:  # a signature is NAME|SETTINGS|precis:VERSION
        by_signature = {run.signatures[name]: run for run in runs if name in run.signatures}  # an example of each
        by_settings = {signature.partition("|precis:")[0]: run for signature, run in by_signature.items()}
        if len(by_settings) > 1:
            (first_settings, first), (second_settings, second), *_ = by_settings.items()
            problem = f"{name} was computed as {second_settings}, in {first.path} as {first_settings}"
            remedy = "compute ROUGE of both again with --language CODE, or score both by one `precis evaluate`"
            raise UserError(f"{second.path}: {problem}; {remedy}")
        if len(by_signature) > 1:  # only the versions of the suite differ
            versions = ", ".join(sorted(signature.partition("|precis:")[2] for signature in by_signature))
            notes.append(f"{name} was computed by several versions of the suite: {versions}")
    counts = {system.name: len(system.runs) for system in systems}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        notes.append(f"systems have different numbers of seeds: {listed}")
    references = [normalize("NFC", json_line([record["references"] for record in run.rows])) for run in runs]
    if "rougeLsum" in measures and any(other != references[0] for other in references):
        notes.append("runs divide the same references into different sentences, on which rougeLsum depends")
    return notes + _seed_notes(systems, documents)


def _seed_notes(systems: Sequence[System], documents: int) -> list[str]:
    """Return caveats on few seeds of trained systems, on files of outputs (`is_fixed`), and on few `documents`."""
    if len(systems) < 2:  # nothing is compared
        return []
    notes = []
    fixed = [system.name for system in systems if system.is_fixed]
    with_few_seeds = [system for system in systems if not system.is_fixed and len(system.runs) < ENOUGH_SEEDS]
    if with_few_seeds:
        listed = ", ".join(f"{system.name} {len(system.runs)}" for system in with_few_seeds)
        notes.append(
            f"fewer than three seeds: {listed}; another seed can change a difference, and with a single seed none is "
            "called significant: train more (`seeds: [1, 2, 3]` in a sweep)"
        )
    if fixed:
        notes.append(f"without a run folder, taken as outputs that do not depend on a seed: {', '.join(fixed)}")
    if len(fixed) > 1 and documents < MIN_DOCUMENTS:
        notes.append(
            f"too few documents ({documents}) for a test without seeds; no difference between outputs that do not "
            f"depend on a seed is called significant with fewer than {MIN_DOCUMENTS}"
        )
    return notes


def choose_measures(systems: Sequence[System], requested: str | None) -> list[str]:
    """Return the measures in a comma-separated list, by default `DEFAULT`; a `UserError` if a run lacks one of them."""
    runs = [run for system in systems for run in system.runs]
    shared = [name for name in runs[0].measures if all(name in run.measures for run in runs)]
    names = [name.strip() for name in requested.split(",") if name.strip()] if requested else list(DEFAULT)
    if not names:  # only commas and spaces
        raise UserError(f"--metric {requested!r} names no measure; all runs have {', '.join(shared)}")
    for name in names:
        if name not in shared:
            lacking = next(run for run in runs if name not in run.measures)
            others = "others come from `precis test`, or from `precis evaluate` on the predictions"
            raise UserError(f"{lacking.path}: no scores for {name!r}; all runs have {', '.join(shared)} ({others})")
    return list(dict.fromkeys(names))  # each once


def choose_baseline(systems: Sequence[System], requested: Path | None) -> int:
    """Return the index of the system with the requested name or run, 0 by default; a `UserError` if there is none."""
    if requested is None:
        return 0
    for index, system in enumerate(systems):
        # `requested` is a Path, but may also be the name of a system.
        if system.name == str(requested) or any(run.path.resolve() == requested.resolve() for run in system.runs):
            return index
    names = ", ".join(repr(system.name) for system in systems)
    raise UserError(f"--baseline {requested}: none of the runs that are compared; give one of them, or one of {names}")


def cell_lines(cell: Cell) -> list[str]:
    """Return lines of text: mean, interval and, if any, difference to the baseline with its interval, and p."""
    spread = f" ± {cell.spread:.2f}" if cell.spread is not None else ""  # over seeds
    lines = [f"{cell.mean:.2f}{spread}", _interval(cell.low, cell.high, "")]
    if cell.difference is not None:
        bounds = _interval(cell.difference_low, cell.difference_high, "+")  # with signs; "" for a single document
        lines.append(f"{cell.difference:+.2f} {bounds}{' *' if cell.significant else ''}".rstrip())
    if cell.p is not None:
        lines.append(f"p {significance.format_p(cell.p)}")
    return lines


def _interval(low: float | None, high: float | None, sign: str) -> str:
    return "" if low is None else f"[{low:{sign}.2f}, {high:{sign}.2f}]"


def cell_columns(cell: Cell) -> list[str]:
    """Return a cell as texts for four columns: mean, interval, difference with its interval, and p."""
    mean, interval, *test = cell_lines(cell)  # test: difference and p
    return [mean, interval, test[0] if test else "", "" if cell.p is None else significance.format_p(cell.p)]


def how_computed(comparison: Comparison) -> list[str]:
    """Return the lines below the table: on documents, intervals, tests, ROUGE of first sentences (lead), caveats."""
    split = f"the {comparison.split} split" if comparison.split else "a split that was not recorded"
    lines = [
        f"{counted(comparison.documents, 'document')} of {split}; in brackets 95 % intervals "
        "over seeds and documents (Student's t); ± the standard deviation over seeds"
    ]
    untested = [name for name in comparison.measures if DESCRIPTIVE.fullmatch(name)]
    tested = [name for name in comparison.measures if name not in untested]
    comparisons = len(comparison.systems) - 1
    if comparisons and tested:
        number_of_tests = counted(comparisons * len(tested), "comparison")
        lines.append(
            f"differences to {comparison.systems[comparison.baseline].name!r}; p is the larger one of t-tests over "
            "seeds and documents and over seeds alone (where each trained system has two); * where it is below "
            f"{significance.SIGNIFICANT:.2f} after Holm's correction for {number_of_tests}"
        )
    if comparisons and untested:
        lines.append(f"{', '.join(untested)}: no direction is better, so there is no *")
    leads = [run.lead for system in comparison.systems for run in system.runs if run.lead]  # scores by metric
    lines += [describe_lead(lead) for lead in leads[:1]]  # of one run, since the documents are the same
    return lines + [f"note: {note}" for note in comparison.notes]
