"""Report of the scores of a parser in Markdown."""

from collections.abc import Sequence
from typing import Any

from lightning_modules.metrics.calibration import KINDS
from lightning_modules.metrics.parseval import LEVELS
from precis.statistics.statistics import Interval

VARIANTS = {"original": "original Parseval", "rst": "RST-Parseval"}
CELLS = {"labelled": "a relation and a pair", "summed": "a pair, relations summed"}
ERRORS = {
    "ece": "ECE, all cells",
    "ece_probable": "ECE, p >= {floor:g}",
    "ece_mass": "equal-mass ECE, all cells",
    "ece_mass_probable": "equal-mass ECE, p >= {floor:g}",
}


def page(result: dict[str, Any]) -> str:
    """Return all scores as Markdown tables."""
    facts = "{parser} on {treebank}: {documents:,} documents, {edus:,} EDUs, {relations} coarse relations."
    facts = facts.format(**result)
    share = f"{100 * result['level']:.0f} % intervals: bootstrap over documents, {result['resamples']:,} resamples."
    parts = [f"    {result['command']}", f"{facts} {share}", _trees(result), _places(result), _genres(result)]
    return "\n\n".join([*parts, *_calibration(result)])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(value: Interval | float, digits: int = 1) -> str:
    """Format a number, with its interval if it has one; `none` for NaN."""
    if not isinstance(value, Interval):
        return "none" if value != value else f"{value:.{digits}f}"
    if value.mean != value.mean:
        return "none"
    return f"{value.mean:.{digits}f} ({value.low:.{digits}f} to {value.high:.{digits}f})"


def _trees(result: dict[str, Any]) -> str:
    rows, end_to_end = [], result["end_to_end"]
    for variant, title in VARIANTS.items():
        for system, scores in result["gold_edus"].items():
            decoding = f", {result['decoding']}" if system == result["parser"] and result["decoding"] else ""
            rows.append([f"{title}, gold EDUs", system + decoding, *_cells(scores[variant]), ""])
        for system, scores in end_to_end["parseval"].items():
            segmentation = shown(end_to_end["segmentation_f1"])
            rows.append([f"{title}, end to end", system, *_cells(scores[variant]), segmentation])
    note = (
        "End to end: only the text is given; the right-branching tree has the parser's EDUs, and both have the "
        "sentences and paragraphs that are detected in the text."
    )
    return f"{table(['', 'tree', *LEVELS, 'EDU F1'], rows)}\n\n{note}"


def _cells(scores: dict[str, Any]) -> list[str]:
    return [shown(scores[level]) for level in LEVELS]


def _places(result: dict[str, Any]) -> str:
    rows = []
    for system, places in result["places"].items():
        for place, scores in places.items():
            rows.append([place, system, f"{scores['nodes']:,}", *_cells(scores)])
    rows.sort(key=lambda row: list(result["places"][result["parser"]]).index(row[0]))
    return table(["original Parseval, gold EDUs", "tree", "nodes", *LEVELS], rows)


def _genres(result: dict[str, Any]) -> str:
    rows, (parser, branching) = [], result["genres"].values()
    for genre, scores in parser.items():
        cells = [f"{cell} ({baseline})" for cell, baseline in zip(_cells(scores), _cells(branching[genre]))]
        rows.append([genre, str(scores["documents"]), *cells])
    head = f"original Parseval, gold EDUs: {result['parser']} (right-branching)"
    return table([head, "documents", *LEVELS], rows)


def _calibration(result: dict[str, Any]) -> list[str]:
    calibration = result["calibration"]
    away = calibration["pairs_too_far_apart"]
    errors = {key: title.format(**result) for key, title in ERRORS.items()}
    explanation = [
        f"Calibration of the LDD, `rows: {result['rows']}`, over {calibration['pairs']:,} ordered pairs of EDUs",
        f"({away:,} further apart than --band are left out)." if away else "(all).",
        f"ECE: expected calibration error, {result['bins']} bins of equal width, or of like number of cells.",
        "Brier: sum over the relations of a pair of squared errors, a mean over pairs. Smoothed: (1 - epsilon) 1-best"
        f" tree + epsilon prior, the prior being each relation's share among the gold trees' pairs and epsilon ="
        f" {calibration['epsilon']:.3f} the one with the lowest Brier score over relations, both taken from this"
        " treebank, to the advantage of the smoothed tree.",
    ]
    parts = [" ".join(explanation)]
    for kind in KINDS:
        head = [f"a cell: {CELLS[kind]}", "Brier", "above the LDD's", *errors.values()]
        rows = []
        for system, scores in calibration["systems"].items():
            above = "" if system == "LDD" else shown(scores[f"{kind}/brier_above"], 4)
            cells = [shown(scores[f"{kind}/{key}"], 4) for key in errors]
            rows.append([system, shown(scores[f"{kind}/brier"], 4), above, *cells])
        parts.append(table(head, rows))
    return parts
