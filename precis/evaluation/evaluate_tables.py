"""Tables of `precis evaluate` on a terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from datamodules.text.lines import counted, one_line
from precis.statistics.statistics import CORRELATIONS

_MOST_SYSTEMS = 3  # with a table of all measures each; more systems are rows of one table
_MOST_MEASURES = 8  # columns of the leaderboard


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print the results of `evaluate` as tables."""
    empty = result["empty_predictions"]
    if len(result["systems"]) > _MOST_SYSTEMS:
        _show_leaderboard(result, console)
    else:
        for system in result["systems"] or [None]:
            rows = [row for row in result["scores"] if row["system"] == system]
            console.print(_score_table(rows, system or result["file"]))
    counts = f"{counted(result['summaries'], 'summary')} of {counted(result['documents'], 'document')}"
    console.print(f"{counts}; {empty or 'no'} empty prediction{'' if empty == 1 else 's'}", highlight=False)
    intervals = f"{100 * result['level']:.0f} % intervals: percentile bootstrap over documents"
    console.print(f"{intervals}, {result['resamples']:,} resamples, seed {result['seed']}", highlight=False)
    for (judgement, level), rows in grouped(result["human"], "judgement", "level").items():
        console.print(_human_table(rows, f"{judgement}, {level} level: {rows[0]['definition']}"))
    if result["human"] and result["human"][0]["intervals"]:
        draws = f"{result['correlation_resamples']:,} resamples, seed {result['seed']}"
        console.print(f"intervals of correlations: bootstrap, drawn: {result['resampled']}; {draws}", highlight=False)
    if result["human"] and not any(row["level"] == "system" for row in result["human"]):
        console.print("no system level: it needs at least three systems, named in the field `system`", highlight=False)
    # Printed without rich, which would wrap signatures; users copy them.
    print("signatures", *_short_signatures(result["scores"]), sep="\n  ")
    for name, reason in result["left_out"].items():
        print(f"left out: {name}: {reason}")
    for note in result["notes"]:
        print(f"note: {note}")
    print(f"scores of every document: {result['scores_file']}", flush=True)


def _score_table(rows: list[dict[str, Any]], title: str) -> Table:
    table = Table(title=Text(one_line(title)))
    for name in ("measure", "mean", "95 % interval", "documents"):
        table.add_column(name, justify="left" if name == "measure" else "right")
    for row in rows:
        interval = "none" if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}"
        table.add_row(row["measure"], _shown(row["mean"]), interval, f"{row['documents']:,}")
    return table


def _show_leaderboard(result: Mapping[str, Any], console: Console) -> None:
    """Print a row for each system, the best by the first measure first."""
    measures = list(dict.fromkeys(row["measure"] for row in result["scores"]))
    table = Table(title=Text(one_line(result["file"])))
    for name in ("system", *measures[:_MOST_MEASURES]):
        table.add_column(name, justify="left" if name == "system" else "right")
    for system, cells in rank_systems(result["scores"]):
        means = [_shown(cells[measure]["mean"]) for measure in measures[:_MOST_MEASURES]]
        table.add_row(Text(one_line(system)), *means)
    console.print(table)
    if len(measures) > _MOST_MEASURES:
        console.print(f"{len(measures) - _MOST_MEASURES} more measures: see --html PAGE or --json", highlight=False)


def rank_systems(rows: list[dict[str, Any]]) -> list[tuple[str, dict[str, dict[str, Any]]]]:
    """Return the systems and their rows of scores by measure, sorted by the mean of the first measure."""
    systems: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        systems.setdefault(row["system"], {})[row["measure"]] = row
    first = rows[0]["measure"]

    def key(item: tuple[str, dict[str, dict[str, Any]]]) -> float:
        mean = item[1][first]["mean"]
        return float("-inf") if mean is None else mean

    return sorted(systems.items(), key=key, reverse=True)


def _human_table(rows: list[dict[str, Any]], title: str) -> Table:
    table = Table(title=Text(one_line(title)))
    for name in ("measure", *CORRELATIONS, "used"):
        table.add_column(name, justify="left" if name == "measure" else "right")
    for row in rows:
        values = [correlation_text(row, name) for name in CORRELATIONS]
        table.add_row(row["measure"], *values, f"{row['used']:,} of {row['of']:,}")
    return table


def correlation_text(row: Mapping[str, Any], name: str) -> str:
    """Return a coefficient with its interval and the p-value of its difference to the measure `--against`."""
    text = _shown(row[name], 3)
    low, high = (row["intervals"] or {}).get(name, (None, None))
    if low is not None:
        text += f" ({low:.2f} to {high:.2f})"
    if "p" in row:
        text += f" p={_shown(row['p'][name], 3)}"
    return text


def _short_signatures(rows: list[dict[str, Any]]) -> list[str]:
    """Return the signatures, with a common one for measures that only differ in the name."""
    measures: dict[str, list[str]] = {}
    for row in rows:
        names = measures.setdefault(row["signature"].partition("|")[2], [])
        if row["measure"] not in names:
            names.append(row["measure"])
    return [f"{','.join(names)}|{settings}" for settings, names in measures.items()]


def grouped(rows: list[dict[str, Any]], *names: str) -> dict[tuple, list[dict[str, Any]]]:
    """Return rows grouped by the values of some keys."""
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def _shown(value: float | None, digits: int = 2) -> str:
    return "none" if value is None else f"{value:.{digits}f}"
