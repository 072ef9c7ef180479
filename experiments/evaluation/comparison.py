"""Systems beside a baseline: means, intervals and tests over the same documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datamodules.documents import CorpusError
from experiments.evaluation.statistics import (
    LEVEL,
    RESAMPLES,
    approximate_randomisation,
    bootstrap_interval,
    holm,
    paired_bootstrap,
)
from experiments.evaluation.systems import System

DEFAULT = ("rouge1", "rouge2", "rougeLsum", "length", "repeated_trigrams")
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Cell:
    """One system under one measure.

    Attributes:
        mean: over documents, of the means over seeds.
        low, high: bootstrap interval over documents.
        spread: standard deviation of the runs' means; None for a single run.
        difference: to the baseline, over the documents that both have a score for; None for the baseline itself.
        p_randomisation, p_bootstrap: of the difference, corrected by Holm's procedure for all comparisons of the table.
    """

    mean: float
    low: float
    high: float
    spread: float | None
    difference: float | None = None
    p_randomisation: float | None = None
    p_bootstrap: float | None = None

    @property
    def significant(self) -> bool:
        """Whether both tests find a difference."""
        tests = (self.p_randomisation, self.p_bootstrap)
        return all(p is not None and p < SIGNIFICANT for p in tests)


@dataclass(frozen=True)
class Comparison:
    """Systems under measures.

    Attributes:
        systems: in their order.
        baseline: which of them the others are compared with.
        measures: names.
        cells: a list a system, a cell a measure.
        notes: what a reader must know to trust the numbers.
    """

    systems: list[System]
    baseline: int
    measures: list[str]
    cells: list[list[Cell]]
    notes: list[str]

    @property
    def documents(self) -> int:
        """How many documents the systems are compared on."""
        return len(self.systems[0].runs[0].rows)


def compare_systems(
    systems: Sequence[System], measures: Sequence[str], baseline: int = 0, resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """Means, intervals and tests of systems over the same documents.

    Each document's score is the mean over a system's runs; intervals and tests say how sure the means are over
    documents, the spread how much they move with the seed.
    """
    scores = [np.stack([system.scores(name) for name in measures], axis=1) for system in systems]  # each [N, M]
    others = [index for index in range(len(systems)) if index != baseline]
    corrected = []
    for test in (approximate_randomisation, paired_bootstrap):
        p_values = np.array([test(scores[index], scores[baseline], resamples, seed) for index in others])
        corrected.append(dict(zip(others, _corrected(p_values))))
    cells = []
    for index, (system, table) in enumerate(zip(systems, scores)):
        intervals = zip(*bootstrap_interval(table, LEVEL, resamples, seed))
        row = []
        for column, (name, interval) in enumerate(zip(measures, intervals)):
            means = system.means(name)
            compared: tuple = ()
            if index != baseline:
                difference = np.nanmean(table[:, column] - scores[baseline][:, column])
                compared = (float(difference), *(p[index][column] for p in corrected))
            spread = float(np.std(means, ddof=1)) if len(means) > 1 else None
            row.append(Cell(*map(float, interval), spread, *compared))
        cells.append(row)
    return Comparison(list(systems), baseline, list(measures), cells, notes_on(systems, measures))


def _corrected(p_values: np.ndarray) -> list[list[float | None]]:
    """Holm's correction over a whole table; None where nothing could be tested."""
    there = ~np.isnan(p_values)
    adjusted = np.full(p_values.shape, np.nan)
    if there.any():
        adjusted[there] = holm(p_values[there].tolist())
    return [[None if np.isnan(p) else float(p) for p in row] for row in adjusted]


def notes_on(systems: Sequence[System], measures: Sequence[str]) -> list[str]:
    """What a reader must know: scores whose making is unknown or of another version, and unequal numbers of seeds.

    Raises:
        CorpusError: if a measure was computed in different ways.
    """
    notes, runs = [], [run for system in systems for run in system.runs]
    unknown = [str(run.path) for run in runs if run.signatures is None]
    if unknown:
        said = f"it is not recorded how the scores of {', '.join(unknown)} were computed"
        notes.append(f"{said}; `precis test` records it")
    for name in measures:
        found = {run.signatures[name]: run for run in runs if run.signatures and name in run.signatures}
        ways = {signature.partition("|precis:")[0]: run for signature, run in found.items()}
        if len(ways) > 1:
            (one, first), (other, second), *_ = ways.items()
            raise CorpusError(
                f"{second.path}: {name} was computed as {other}, in {first.path} as {one}; "
                "run `precis test` on both with one version of the suite"
            )
        if len(found) > 1:
            versions = ", ".join(sorted(signature.partition("|precis:")[2] for signature in found))
            notes.append(f"{name} was computed by several versions of the suite: {versions}")
    counts = {system.name: len(system.runs) for system in systems}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        notes.append(f"systems have different numbers of seeds: {said}")
    return notes


def choose_measures(systems: Sequence[System], wanted: str | None) -> list[str]:
    """The measures to compare.

    Raises:
        CorpusError: for one that a run lacks; or if nothing is asked for and there is no ROUGE.
    """
    runs = [run for system in systems for run in system.runs]
    shared = [name for name in runs[0].measures if all(name in run.measures for run in runs)]
    names = [name.strip() for name in wanted.split(",") if name.strip()] if wanted else list(DEFAULT)
    for name in names:
        if name not in shared:
            lacking = next(run for run in runs if name not in run.measures)
            raise CorpusError(
                f"{lacking.path}: no scores for {name!r}; all runs have {', '.join(shared)} (others come from "
                "`precis test`, or from `precis evaluate` on the predictions, which writes scores beside them)"
            )
    return list(dict.fromkeys(names))


def choose_baseline(systems: Sequence[System], given: Path | None) -> int:
    """The index of the system that a run (or a system's name) belongs to; the first if none is given.

    Raises:
        CorpusError: if no system has it.
    """
    if given is None:
        return 0
    for index, system in enumerate(systems):
        if system.name == str(given) or any(run.path.resolve() == given.resolve() for run in system.runs):
            return index
    names = ", ".join(repr(system.name) for system in systems)
    raise CorpusError(f"--baseline {given}: none of the runs that are compared; give one of them, or one of {names}")


def cell_lines(cell: Cell) -> list[str]:
    """What is shown of a cell: mean, interval, difference and p."""
    spread = f" ± {cell.spread:.2f}" if cell.spread is not None else ""
    lines = [f"{cell.mean:.2f}{spread}", f"[{cell.low:.2f}, {cell.high:.2f}]"]
    if cell.difference is not None:
        lines.append(f"{cell.difference:+.2f}{' *' if cell.significant else ''}")
        if cell.p_randomisation is not None and cell.p_bootstrap is not None:
            lines.append(f"p {cell.p_randomisation:.4f}, {cell.p_bootstrap:.4f}")
    return lines


def how_computed(found: Comparison, resamples: int, seed: int) -> list[str]:
    """What stands below the table."""
    tests = (len(found.systems) - 1) * len(found.measures)
    lines = [
        f"{found.documents:,} documents; in brackets 95 % bootstrap intervals over documents, {resamples:,} resamples, "
        f"seed {seed}; ± the standard deviation over seeds"
    ]
    if tests:
        lines.append(
            f"differences to {found.systems[found.baseline].name!r}; p of paired approximate randomisation and of the "
            f"paired bootstrap, corrected for {tests} comparisons (Holm); * where both are below {SIGNIFICANT}"
        )
    return lines + [f"note: {note}" for note in found.notes]
