"""Comparison of systems with a baseline: means, intervals and tests over the same documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datamodules.documents import CorpusError
from experiments.evaluation.significance import hierarchical_bootstrap, keep_shared, seed_test, system_interval
from experiments.evaluation.statistics import LEVEL, RESAMPLES, Array, column_means, holm, number_or_none
from experiments.evaluation.systems import System

DESCRIPTIVE = ("length", "repeated_trigrams")  # describe outputs; neither direction is an improvement
DEFAULT = ("rouge1", "rouge2", "rougeLsum", *DESCRIPTIVE)
SIGNIFICANT = 0.05
ENOUGH_SEEDS = 3
MIN_DOCUMENTS = 20  # of 20 documents without a difference, the bootstrap rejects 7 % instead of 5 %; of fewer, more


@dataclass(frozen=True)
class Cell:
    """One system under one measure.

    Attributes:
        mean: mean over documents and seeds.
        low, high: bootstrap interval over seeds and documents.
        spread: standard deviation of the means of runs; None for a single run.
        difference: difference to the baseline over documents with both scores; None for the baseline itself.
        p_bootstrap: p-value over seeds and documents; over documents only if both systems have one run.
        p_seeds: p-value over seeds; None if it cannot be tested (see `seed_test`).
        corrected: whether the p-values are corrected for all comparisons of the table (Holm); those of descriptive
            measures are not.
        significant: whether the difference is significant in both tests; never for descriptive measures. Outputs that
            do not depend on a seed have the test over documents alone, which needs at least `MIN_DOCUMENTS`.
    """

    mean: float
    low: float
    high: float
    spread: float | None
    difference: float | None = None
    p_bootstrap: float | None = None
    p_seeds: float | None = None
    corrected: bool = False
    significant: bool = False


@dataclass(frozen=True)
class Comparison:
    """Comparison of systems by several measures.

    Attributes:
        systems: the systems.
        baseline: index of the system that others are compared with.
        measures: names of measures.
        cells: a list for each system, with a cell for each measure.
        notes: caveats for the reader.
    """

    systems: list[System]
    baseline: int
    measures: list[str]
    cells: list[list[Cell]]
    notes: list[str]

    @property
    def split(self) -> str | None:
        """The predicted split; None if no run recorded it."""
        return next((run.split for system in self.systems for run in system.runs if run.split is not None), None)

    @property
    def documents(self) -> int:
        """Number of documents of the comparison."""
        return len(self.systems[0].runs[0].rows)


def compare_systems(
    systems: Sequence[System], measures: Sequence[str], baseline: int = 0, resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """Return means, intervals and tests of systems over the same documents.

    A difference is called significant if both tests of `experiments.evaluation.significance` find it, after Holm's
    correction for all differences of the table. Between two sets of outputs that come from no training, such as two
    baselines, there is no seed to test.
    """
    scores = [system.scores_by_run(measures) for system in systems]  # [R, N, M] each
    tests = _test_differences(systems, scores, measures, baseline, resamples, seed)
    cells = []
    for index, system in enumerate(systems):
        row = []
        for column, interval in enumerate(zip(*system_interval(scores[index], LEVEL, resamples, seed))):
            means = system.means(measures[column])
            spread = float(np.std(means, ddof=1)) if len(means) > 1 else None
            row.append(Cell(*map(float, interval), spread, **tests.get((index, column), {})))
        cells.append(row)
    return Comparison(
        systems=list(systems),
        baseline=baseline,
        measures=list(measures),
        cells=cells,
        notes=notes_on(systems, measures, len(scores[0][0])),
    )


def _test_differences(
    systems: Sequence[System],
    scores: Sequence[Array],
    measures: Sequence[str],
    baseline: int,
    resamples: int,
    seed: int,
) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the fields of `Cell` that compare a system with the baseline, by the indices of system and measure."""
    others = [index for index in range(len(systems)) if index != baseline]
    differences, p_bootstrap, p_seeds = (np.full((len(others), len(measures)), np.nan) for _ in range(3))
    documents_suffice = np.full((len(others), len(measures)), False)  # for systems without seeds
    for row, index in enumerate(others):
        fixed = (systems[index].is_fixed, systems[baseline].is_fixed)
        differences[row] = column_means(scores[index].mean(0) - scores[baseline].mean(0))
        p_bootstrap[row] = hierarchical_bootstrap(scores[index], scores[baseline], resamples, seed)
        p_seeds[row] = seed_test(scores[index], scores[baseline], fixed)
        shared = keep_shared(scores[index], scores[baseline])[0]
        documents_suffice[row] = all(fixed) & ((~np.isnan(shared[0])).sum(0) >= MIN_DOCUMENTS)

    tested = np.array([name not in DESCRIPTIVE for name in measures])
    for p_values in (p_bootstrap, p_seeds):
        p_values[:, tested] = _corrected(p_values[:, tested])
    # nan < SIGNIFICANT is False: what cannot be tested over seeds is not significant, unless neither system has seeds.
    significant = tested & (p_bootstrap < SIGNIFICANT) & ((p_seeds < SIGNIFICANT) | documents_suffice)
    return {
        (index, column): {
            "difference": number_or_none(differences[row, column]),
            "p_bootstrap": number_or_none(p_bootstrap[row, column]),
            "p_seeds": number_or_none(p_seeds[row, column]),
            "corrected": bool(tested[column]),
            "significant": bool(significant[row, column]),
        }
        for row, index in enumerate(others)
        for column in range(len(measures))
    }


def _corrected(p_values: Array) -> Array:
    """Return a table of p-values after Holm's correction, with nan where nothing could be tested."""
    tested = ~np.isnan(p_values)
    adjusted = np.full(p_values.shape, np.nan)
    adjusted[tested] = holm(p_values[tested].tolist())
    return adjusted


def notes_on(systems: Sequence[System], measures: Sequence[str], documents: int) -> list[str]:
    """Return caveats: scores of unknown or different computation, unequal numbers of seeds, and few documents.

    Raises:
        CorpusError: if a measure was computed in different ways.
    """
    notes, runs = [], [run for system in systems for run in system.runs]
    scored = [name for name in measures if name not in DESCRIPTIVE]
    unknown = [str(run.path) for run in runs if any(name not in run.signatures for name in scored)]
    if unknown:
        message = f"it is not recorded how the scores of {', '.join(unknown)} were computed"
        notes.append(f"{message}; `precis test` and `precis evaluate` record it")
    for name in measures:
        run_of = {run.signatures[name]: run for run in runs if name in run.signatures}
        ways = {signature.partition("|precis:")[0]: run for signature, run in run_of.items()}
        if len(ways) > 1:
            (first_way, first), (second_way, second), *_ = ways.items()
            raise CorpusError(
                f"{second.path}: {name} was computed as {second_way}, in {first.path} as {first_way}; "
                "run `precis test` on both with one version of the suite"
            )
        if len(run_of) > 1:
            versions = ", ".join(sorted(signature.partition("|precis:")[2] for signature in run_of))
            notes.append(f"{name} was computed by several versions of the suite: {versions}")
    counts = {system.name: len(system.runs) for system in systems}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        notes.append(f"systems have different numbers of seeds: {listed}")
    sentences = [[row["references"] for row in run.rows] for run in runs]
    if "rougeLsum" in measures and any(other != sentences[0] for other in sentences):
        notes.append("runs divide the same references into different sentences, on which rougeLsum depends")
    return notes + _seed_notes(systems) + _document_notes(systems, documents)


def _seed_notes(systems: Sequence[System]) -> list[str]:
    """Return warnings about systems whose seeds are too few, or unknown, for the seed-level test."""
    notes = []
    with_few_seeds = [system for system in systems if not system.is_fixed and len(system.runs) < ENOUGH_SEEDS]
    if with_few_seeds and len(systems) > 1:
        listed = ", ".join(f"{system.name} {len(system.runs)}" for system in with_few_seeds)
        notes.append(
            f"fewer than three seeds: {listed}; another seed can change a difference, and with a single seed none is "
            "called significant: train more (`seeds: [1, 2, 3]` in a sweep)"
        )
    fixed = ", ".join(system.name for system in systems if system.is_fixed)
    if fixed and len(systems) > 1:
        notes.append(f"without a run folder, taken as outputs that do not depend on a seed: {fixed}")
    return notes


def _document_notes(systems: Sequence[System], documents: int) -> list[str]:
    """Return a warning if there are too few documents for a test over documents alone."""
    if documents >= MIN_DOCUMENTS or sum(system.is_fixed for system in systems) < 2:
        return []
    return [
        f"{documents} documents are too few for a test without seeds; no difference between outputs that do not depend "
        f"on a seed is called significant with fewer than {MIN_DOCUMENTS}"
    ]


def choose_measures(systems: Sequence[System], requested: str | None) -> list[str]:
    """Return the measures to compare.

    Raises:
        CorpusError: if a run lacks a measure; or if none is requested and there is no ROUGE.
    """
    runs = [run for system in systems for run in system.runs]
    shared = [name for name in runs[0].measures if all(name in run.measures for run in runs)]
    names = [name.strip() for name in requested.split(",") if name.strip()] if requested else list(DEFAULT)
    if not names:
        raise CorpusError(f"--metric {requested!r} names no measure; all runs have {', '.join(shared)}")
    for name in names:
        if name not in shared:
            lacking = next(run for run in runs if name not in run.measures)
            raise CorpusError(
                f"{lacking.path}: no scores for {name!r}; all runs have {', '.join(shared)} (others come from "
                "`precis test`, or from `precis evaluate` on the predictions, which writes scores beside them)"
            )
    return list(dict.fromkeys(names))


def choose_baseline(systems: Sequence[System], requested: Path | None) -> int:
    """Return the index of a system by its name or one of its runs; the first by default.

    Raises:
        CorpusError: if no system has it.
    """
    if requested is None:
        return 0
    for index, system in enumerate(systems):
        if system.name == str(requested) or any(run.path.resolve() == requested.resolve() for run in system.runs):
            return index
    names = ", ".join(repr(system.name) for system in systems)
    remedy = f"give one of them, or one of {names}"
    raise CorpusError(f"--baseline {requested}: none of the runs that are compared; {remedy}")


def cell_lines(cell: Cell) -> list[str]:
    """Return the lines of a cell: mean, interval, difference and p-values."""
    spread = f" ± {cell.spread:.2f}" if cell.spread is not None else ""
    lines = [f"{cell.mean:.2f}{spread}", f"[{cell.low:.2f}, {cell.high:.2f}]"]
    if cell.difference is not None:
        lines.append(f"{cell.difference:+.2f}{' *' if cell.significant else ''}")
    if cell.p_bootstrap is not None:
        seeds = f", seeds {cell.p_seeds:.4f}" if cell.p_seeds is not None else ""
        text = f"p {cell.p_bootstrap:.4f}{seeds}"
        lines.append(text if cell.corrected else f"({text})")
    return lines


def cell_columns(cell: Cell) -> list[str]:
    """Return a cell as texts for five columns: mean, interval, difference, p over seeds and documents, p over seeds."""
    mean, interval, *_ = cell_lines(cell)
    p_values = [f"{p:.4f}" if p is not None else "" for p in (cell.p_bootstrap, cell.p_seeds)]
    if not cell.corrected:
        p_values = [f"({p})" if p else "" for p in p_values]
    difference = "" if cell.difference is None else f"{cell.difference:+.2f}{' *' if cell.significant else ''}"
    return [mean, interval, difference, *p_values]


def _split_name(split: str | None) -> str:
    return "a split that was not recorded" if split is None else f"the {split} split"


def how_computed(comparison: Comparison, resamples: int, seed: int) -> list[str]:
    """Return the lines below the table."""
    lines = [
        f"{comparison.documents:,} documents of {_split_name(comparison.split)}; in brackets 95 % bootstrap intervals "
        f"over seeds and documents, {resamples:,} resamples, seed {seed}; ± the standard deviation over seeds"
    ]
    tested = [name for name in comparison.measures if name not in DESCRIPTIVE]
    untested = [name for name in comparison.measures if name in DESCRIPTIVE]
    comparisons = len(comparison.systems) - 1
    if comparisons and tested:
        lines.append(
            f"differences to {comparison.systems[comparison.baseline].name!r}; p of a bootstrap over seeds and "
            "documents, and of Welch's t-test over seeds (where there are at least two), each corrected for "
            f"{comparisons * len(tested)} comparisons (Holm); * where both are below {SIGNIFICANT}"
        )
    if comparisons and untested:
        lines.append(f"{' and '.join(untested)}: p in parentheses, not corrected and without *")
    return lines + [f"note: {note}" for note in comparison.notes]
