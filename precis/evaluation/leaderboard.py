"""HTML page of `precis evaluate`: systems by measure, and correlations with human judgements; self-contained."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from datamodules.atomic_write import atomic_write
from datamodules.text.lines import counted
from precis.evaluation.compare_page import page_template
from precis.evaluation.evaluate_tables import grouped, rank_systems
from precis.statistics.statistics import CORRELATIONS


def write_leaderboard(path: Path, result: Mapping[str, Any]) -> None:
    """Write the page.

    Args:
        path: output file.
        result: what `precis evaluate --json` prints.
    """
    page = page_template("leaderboard.html", "leaderboard.js")
    signatures = dict.fromkeys(row["signature"] for row in result["scores"])
    parts = {
        "SUMMARY": escape(_summary(result)),
        "SCORES": _score_table(result["scores"]),
        "NOTES": _list([*_notes(result), *result["notes"]]),
        "PEOPLE": _agreement(result),
        "SIGNATURES": _list([*signatures, *(f"left out: {name}: {why}" for name, why in result["left_out"].items())]),
    }
    for name, html in parts.items():
        page = page.replace(f"<!--{name}-->", html)
    # Half of a surrogate pair, which a name may have, is in no file.
    atomic_write(path, page.encode("utf-8", "replace").decode("utf-8"))


def _summary(result: Mapping[str, Any]) -> str:
    systems = counted(len(result["systems"]) or 1, "system")
    counts = f"{counted(result['summaries'], 'summary')} of {counted(result['documents'], 'document')}"
    return f"{result['file']}: {systems}, {counts}"


def _notes(result: Mapping[str, Any]) -> list[str]:
    level, draws, seed = 100 * result["level"], result["resamples"], result["seed"]
    how = f"percentile bootstrap over documents, {draws:,} resamples, seed {seed}"
    empty = result["empty_predictions"]
    return [
        f"{level:.0f} % intervals: {how}.",
        "Click on the name of a measure to sort by it; again for the reverse order.",
        f"{empty or 'No'} empty prediction{'' if empty == 1 else 's'}.",
    ]


def _score_table(rows: list[dict[str, Any]]) -> str:
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    lines = []
    for system, cells in rank_systems(rows):
        columns = [_cell(cells[measure]["mean"], cells[measure]["low"], cells[measure]["high"]) for measure in measures]
        lines.append([escape(system or "all outputs"), *columns])
    return _table(["system", *measures], lines)


def _agreement(result: Mapping[str, Any]) -> str:
    """Return a section with a table for each judgement and level; nothing without judgements."""
    if not result["human"]:
        return ""
    parts = []
    for (judgement, level), rows in grouped(result["human"], "judgement", "level").items():
        parts.append(f"<h3>{escape(judgement)}, {level} level</h3>")
        definition = f"Correlation {rows[0]['definition']}; {rows[0]['of']:,} in all."
        parts.append(f'<p class="small">{escape(definition)}</p>')
        lines = [[escape(row["measure"]), *(_coefficient(row, name) for name in CORRELATIONS)] for row in rows]
        parts.append(_table(["measure", *CORRELATIONS], lines))
    notes = []
    if result["human"][0]["intervals"]:
        draws = f"{result['correlation_resamples']:,} resamples, seed {result['seed']}"
        notes.append(
            f"95 % intervals of correlations: bootstrap (Deutsch et al. 2021), drawn: {result['resampled']}; {draws}."
        )
    if result["against"]:
        notes.append(f"p: permutation test of the difference to {result['against']}, not corrected for several tests.")
    return f'<section id="people"><h2>Agreement with people</h2>{"".join(parts)}{_list(notes)}</section>'


def _coefficient(row: Mapping[str, Any], name: str) -> str:
    low, high = (row["intervals"] or {}).get(name, (None, None))
    p_value = row["p"][name] if "p" in row else None
    return _cell(row[name], low, high, extra="" if p_value is None else f"p = {p_value:.3f}")


def _cell(mean: float | None, low: float | None, high: float | None, extra: str = "") -> str:
    """Return a cell with a number, the value it is sorted by, and its interval."""
    if mean is None:
        return '<td class="number">–</td>'
    lines = [f"{low:.2f} to {high:.2f}" if low is not None else "", extra]
    spans = "".join(f"<span>{line}</span>" for line in lines if line).replace("-", "−")
    number = f"{mean:.2f}".replace("-", "−")
    return f'<td class="number" data-value="{mean}"><strong>{number}</strong>{spans}</td>'


def _table(names: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table; the first entry of a line is its header, the others are cells."""
    header = [f'<th scope="col">{escape(names[0])}</th>']
    for name in names[1:]:
        header.append(f'<th scope="col" class="number"><button type="button">{escape(name)}</button></th>')
    body = "".join(f'<tr><th scope="row">{first}</th>{"".join(cells)}</tr>' for first, *cells in lines)
    head = f"<thead><tr>{''.join(header)}</tr></thead>"
    table = f'<table class="sortable">{head}<tbody>{body}</tbody></table>'
    return f'<div class="wide" tabindex="0">{table}</div>'


def _list(lines: Sequence[str]) -> str:
    return f'<ul class="small">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>'
