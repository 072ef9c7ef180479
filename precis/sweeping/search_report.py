"""Status of a search: trials by state, the best one so far, and a page with plots."""

import io
import warnings
from collections import Counter
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console
from rich.table import Table
from rich.text import Text

from datamodules.atomic_write import atomic_write
from datamodules.file_locks import is_locked
from datamodules.text.printable import printable_line
from precis.config.labels import format_value, short_key
from precis.sweeping.progress import STYLES
from precis.sweeping.sweep_folder import states, worker_jobs
from precis.trials.search_folder import BEST
from precis.trials.study import Search

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
TRIAL_STYLES = STYLES | {"complete": "green", "pruned": "cyan", "interrupted": "yellow"}
MIN_TRIALS = 4  # completed ones, from which importance is computed


def trial_rows(search: Search) -> list[dict[str, Any]]:
    """Return a row for each trial: number, state, score, validations, values, worker, and why it failed."""
    active = {p.job.folder.name for p in states(search.out, worker_jobs(search.out, 1)) if p.state == "running"}
    rows = []
    for trial in search.trials:
        if trial.state == TrialState.WAITING:
            continue
        worker = trial.user_attrs.get("worker")
        locked = is_locked(search.out / f"worker-{worker}" / ".work.lock")
        unfinished = "running" if f"worker-{worker}" in active or locked else "interrupted"
        rows.append(
            {
                "trial": trial.number,
                "state": STATES.get(trial.state, unfinished),
                "score": trial.value if trial.state == TrialState.COMPLETE else None,
                "validations": trial.last_step or 0,
                "values": trial.params,
                "worker": worker,
                "failure": trial.user_attrs.get("failure"),
            }
        )
    return rows


def describe(search: Search, trial: FrozenTrial) -> str:
    """Return how a trial ended."""
    if trial.state == TrialState.COMPLETE:
        return f"{search.section['metric']} {trial.value:.4g}"
    if trial.state == TrialState.PRUNED:
        return f"pruned after validation {trial.last_step}"
    return trial.user_attrs.get("failure") or STATES.get(trial.state, "running")


def describe_best(search: Search) -> str:
    """Return the best score so far, and its trial."""
    best = search.best
    if best is None:
        return "no trial is complete yet"
    return f"best {search.section['metric']} {best.value:.4g} (trial {best.number})"


def show_status(search: Search, console: Console) -> None:
    """Print a table of trials, their number by state, and the best one so far."""
    keys = search.section["keys"]
    names = {key: short_key(key, set(keys)) for key in keys}
    table = Table()
    for name in ("trial", "state", search.section["metric"], "validations", *names.values(), ""):
        wide = {"min_width": 11} if name == "state" else {"overflow": "fold"}  # "interrupted" on a line
        table.add_column(name, justify="left" if name in ("state", "") else "right", **wide)
    best, rows = search.best, trial_rows(search)
    for row in rows:
        cells = [str(row["trial"]), row["state"], "" if row["score"] is None else f"{row['score']:.4g}"]
        cells += [str(row["validations"]), *(_cell(row["values"], key) for key in keys)]
        cells.append("best" if best is not None and best.number == row["trial"] else row["failure"] or "")
        table.add_row(*(Text(printable_line(cell)) for cell in cells), style=TRIAL_STYLES.get(row["state"], ""))
    console.print(table)
    counts = Counter(row["state"] for row in rows)
    started = ", ".join(f"{count} {state}" for state, count in counts.items())
    console.print(f"{len(rows)} of {search.section['trials']} trials: {started or 'none has started'}", soft_wrap=True)
    console.print(describe_best(search) + (f", in {search.out / BEST}" if best is not None else ""), soft_wrap=True)


def _cell(values: dict[str, Any], key: str) -> str:
    value = values.get(key, "")
    return f"{value:.4g}" if isinstance(value, float) else format_value(value)


# Page ----------------------------------------------------------------------------------------------------------------


def importances(search: Search) -> dict[str, float]:
    """Return the share of the variance of scores that each key explains (fANOVA); empty with few trials.

    Keys that not all completed trials have, because of a condition, are left out.
    """
    complete = [trial for trial in search.trials if trial.state == TrialState.COMPLETE]
    if len(complete) < MIN_TRIALS or len({trial.value for trial in complete}) == 1:
        return {}
    from optuna.importance import get_param_importances  # imports scikit-learn

    return get_param_importances(search.study)


def draw_search(search: Search) -> dict[str, "Figure"]:
    """Return the plots of a search by title; those that need more trials are left out."""
    import matplotlib
    from optuna.visualization import matplotlib as plots

    matplotlib.use("Agg")
    figures, name = {}, {"target_name": search.section["metric"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # all plots of matplotlib are called experimental
        if search.best is not None:
            figures["Scores of the trials"] = plots.plot_optimization_history(search.study, **name).figure
            axes = plots.plot_parallel_coordinate(search.study, **name)
            axes.collections[0].set_cmap("viridis")  # with Optuna's colours, trials with low scores cannot be seen
            figures["Values of the trials"] = axes.figure
        if importances(search):
            figures["Importance"] = plots.plot_param_importances(search.study, **name).figure
    for figure in figures.values():
        figure.set_size_inches(9, 4.5)
    return figures


def write_search_page(path: Path, search: Search) -> None:
    """Write a page that needs no other file: the best trial, plots, and a table of all trials."""
    from precis.files.figures import html_page, png_element

    keys = search.section["keys"]
    parts = [f"<p>{escape(describe_best(search))}; {len(search.trials)} of {search.section['trials']} trials.</p>"]
    for title, figure in draw_search(search).items():
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=110, bbox_inches="tight")
        parts.append(f"<section><h2>{title}</h2>{png_element(picture.getvalue(), title)}</section>")
    heads = "".join(f"<th>{escape(name)}</th>" for name in ("trial", "state", search.section["metric"], *keys))
    lines = []
    for row in trial_rows(search):
        score = "" if row["score"] is None else f"{row['score']:.4g}"
        cells = [str(row["trial"]), row["state"], score, *(_cell(row["values"], key) for key in keys)]
        lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    parts.append(f"<section><h2>Trials</h2><table><tr>{heads}</tr>{''.join(lines)}</table></section>")
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, html_page(f"Search {search.out.name}", "\n".join(parts)))
