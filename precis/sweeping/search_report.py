"""Status of a search: trials by state, and the best one so far."""

import json
from collections import Counter
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console
from rich.table import Table
from rich.text import Text

from datamodules.file_locks import is_locked
from datamodules.text.lines import printable_line
from precis.config.run_config import format_value, short_key
from precis.sweeping.sweep_folder import states, worker_jobs
from precis.trials.search_folder import BEST
from precis.trials.study import Search

STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
STYLES = {"complete": "green", "pruned": "cyan", "interrupted": "yellow", "failed": "red"}


def trial_rows(search: Search) -> list[dict[str, Any]]:
    """Return a dict for each trial that was started: number, state, score, searched values, and so on, for JSON."""
    workers = states(search.out, worker_jobs(search.out, 1))  # 1: at least worker 1
    active = {worker.job.folder.name for worker in workers if worker.state == "running"}
    described = []
    for trial in search.trials:
        if trial.state == TrialState.WAITING:
            continue  # enqueued but not started
        worker = trial.user_attrs.get("worker")  # its number
        is_working = is_locked(search.out / f"worker-{worker}" / ".work.lock")  # held also by workers started by hand
        unfinished = "running" if f"worker-{worker}" in active or is_working else "interrupted"
        state = STATES.get(trial.state, unfinished)  # one that is not in `STATES` has not ended
        score = trial.value if trial.state == TrialState.COMPLETE else None
        result = {"trial": trial.number, "state": state, "score": score, "validations": trial.last_step or 0}
        failure = trial.user_attrs.get("failure")
        described.append(result | {"values": trial.params, "worker": worker, "failure": failure})
    return described


def describe(search: Search, trial: FrozenTrial) -> str:
    """Return as text the score of a trial, the validation after which it was pruned, why it failed, or "running"."""
    if trial.state == TrialState.COMPLETE:
        return f"{search.section['metric']} {trial.value:.4g}"
    if trial.state == TrialState.PRUNED:
        return f"pruned after validation {trial.last_step}"
    return trial.user_attrs.get("failure") or STATES.get(trial.state, "running")


def describe_best(search: Search) -> str:
    """Return a text with the best score so far, and the number of its trial."""
    best = search.best
    if best is None:
        return "no trial is complete yet"
    return f"best {search.section['metric']} {best.value:.4g} (trial {best.number})"


def print_search(search: Search, as_json: bool = False) -> None:
    """Print the trials, their number by state, and the best one so far."""
    best = search.best
    trials = trial_rows(search)
    counts = Counter(trial["state"] for trial in trials)
    if as_json:
        best_trial = {"trial": best.number, "score": best.value} if best is not None else None
        print(json.dumps({"counts": counts, "best": best_trial, "trials": trials}, ensure_ascii=False, indent=1))
        return
    keys = search.section["keys"]
    table = Table()
    names = [short_key(key, set(keys)) for key in keys]
    for name in ("trial", "state", search.section["metric"], "validations", *names, ""):  # "": "best" or a failure
        layout = {"no_wrap": True} if name == "state" else {"overflow": "fold"}
        table.add_column(name, justify="left" if name in ("state", "") else "right", **layout)
    for trial in trials:
        cells = [str(trial["trial"]), trial["state"], _cell(trial["score"]), str(trial["validations"])]
        cells += [_cell(trial["values"].get(key)) for key in keys]
        cells.append("best" if best is not None and best.number == trial["trial"] else trial["failure"] or "")
        table.add_row(*(Text(printable_line(cell)) for cell in cells), style=STYLES.get(trial["state"], ""))
    console = Console()
    console.print(table)
    by_state = ", ".join(f"{count} {state}" for state, count in counts.items()) or "none has started"
    console.print(f"{len(trials)} of {search.section['trials']} trials: {by_state}", soft_wrap=True)
    console.print(describe_best(search) + (f", in {search.out / BEST}" if best is not None else ""), soft_wrap=True)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else format_value(value)
