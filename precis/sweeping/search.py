"""Adaptive search: its check before anything starts, and its workers.

A search runs as workers (`precis sweep work`), which a launcher starts like points. Each worker claims a trial from the
study, trains it as an ordinary run in its own process, and records how it ended.
"""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import yaml
from jsonargparse.typing import PositiveInt

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from datamodules.file_locks import release_lock, take_lock
from datamodules.text.hashing import text_digest
from datamodules.text.lines import printable_line
from precis.config.written_paths import check_links
from precis.runs.run_state import read_state, write_state
from precis.runs.sweep_points import read_described
from precis.sweeping.grid import Point, Sweep
from precis.sweeping.job import Job, Running, is_signal_status, received_signals
from precis.sweeping.sweep_commands import folder_parser
from precis.sweeping.sweep_folder import last_line, write_points
from precis.trials.search_folder import BASE, MODES, is_search, label, read_search, with_metric, write_best
from precis.trials.search_space import extreme_points

if TYPE_CHECKING:
    from precis.trials.study import Search

MAX_FAILURES = 3  # trials in a row that fail, after which a worker gives up


def compose_search(sweep: Sweep) -> list[Point]:
    """Return points to check before a search: its base, then keys at their limits; a `UserError` if one is wrong."""
    from precis.sweeping.composition import compose_configs  # imports torch and Lightning

    section = sweep.search
    fixed = dict(sweep.fixed)
    if "metric" in section:
        fixed["checkpoint.monitor"] = section["metric"]
    if "direction" in section:
        fixed["checkpoint.mode"] = MODES[section["direction"]]
    corners = [{}, *extreme_points(section["keys"])]  # overrides: {} for the base, smallest and largest values
    points = [Point(label(values, section["keys"]) or "base", fixed | values) for values in corners]
    configs = compose_configs(sweep, points)
    points = [replace(point, config=config) for point, config in zip(points, configs)]
    model = configs[0]["model"]
    checkpoint = configs[0]["checkpoint"]
    if model.get("init_args", {}).get("val_summaries") == 0 and checkpoint["monitor"] == "val/rouge1":
        raise UserError(f"{sweep.path}: search: val/rouge1 needs model.val_summaries; or give metric: val/loss")
    if not str(checkpoint["monitor"]).startswith("val/"):
        raise UserError(f"{sweep.path}: search: checkpoint.monitor of the base is not of the validation; give metric")
    return points


def record_search(sweep: Sweep, base: dict[str, Any], out: Path) -> "Search":
    """Write a search to `out`, with the config `base` that trials change; a `UserError` if `out` has another search."""
    from precis.trials.study import Search  # imports Optuna

    points_file = out / "points.json"
    if points_file.is_file() and not is_search(out):
        raise UserError(f"{out}: has a sweep without search; pass another --out")
    out.mkdir(parents=True, exist_ok=True)
    digest = text_digest(json.dumps(base, sort_keys=True))
    search = Search(out, with_metric(sweep.search, base), digest)  # refuses `out` if its search has another digest
    atomic_write(out / BASE, yaml.safe_dump(base, sort_keys=False, allow_unicode=True))
    atomic_write(out / "sweep.yaml", sweep.path.read_text(encoding="utf-8"))
    if not points_file.is_file():  # otherwise it has the trials of an earlier start
        write_points(sweep, out, [])  # trials are added when they start
    return search


def work(arguments: list[str]) -> None:
    """`precis sweep work FOLDER --worker N`: run trials of a search until there are no more.

    `precis sweep` starts its workers itself. Others may be started by hand, on any machine that shares the folder."""
    parser = folder_parser("work", work.__doc__)
    parser.add_argument("--worker", type=PositiveInt, required=True, help="number of the worker, from 1")
    options = parser.parse_args(arguments)
    out = options.folder
    worker = options.worker
    search = read_search(out)
    folder = out / f"worker-{worker}"
    check_links(folder, out)
    folder.mkdir(exist_ok=True)
    lock = take_lock(folder / ".work.lock")  # not .lock, which the launcher of this worker may hold
    if lock is None:
        raise UserError(f"{folder}: worker {worker} is running already; pass another --worker")
    with received_signals(signal.SIGUSR1, signal.SIGTERM, signal.SIGINT) as received:
        try:
            _run_trials(search, worker, received)
        finally:
            release_lock(lock)
    if received:
        raise SystemExit(128 + received[0])  # the status of a process that a signal ends


def _run_trials(search: "Search", worker: int, received: list[int]) -> None:
    """Run trials until none is left or `received` has a signal; a `UserError` if `MAX_FAILURES` in a row fail."""
    failures = 0  # in a row
    while not received and failures < MAX_FAILURES:
        with search.locked():
            claimed = search.claim(worker)
        if claimed is None:  # there are no more trials
            return
        number, values = claimed
        try:
            job = _job(search, number, values)
            failure = _run(job, received)  # None, "stopped", or why it failed
        except UserError as error:  # the config of the trial is invalid
            failure = str(error)
        if failure == "stopped":
            print(f"trial {number}: stopped; precis sweep retry {quote(str(search.out))} continues it", flush=True)
            return
        outcome = search.end(number, failure)  # complete, pruned or failed
        failures = failures + 1 if outcome == "failed" else 0
        if outcome == "pruned":
            write_state(job.folder, "pruned", read_state(job.folder)["step"])  # instead of finished, as `fit` wrote
        _report(search, number, values)
    if failures == MAX_FAILURES:  # otherwise, a signal ended the loop
        last = f"{failures} trials failed in a row, the last one is trial {number}: {failure}"
        raise UserError(f"{last}; correct the cause, then start the search again")


def _job(search: "Search", number: int, values: dict[str, Any]) -> Job:
    """Compose the config of a trial from the values of its keys, add it to points.json, and return its job."""
    from precis.sweeping.composition import compose_configs  # imports torch and Lightning

    sweep = Sweep(search.out / "sweep.yaml", search.out / BASE)  # path for messages, path of the base
    name = f"trial-{number:03}"
    text = f"trial {number}: {label(values, search.section['keys'])}"
    (config,) = compose_configs(sweep, [Point(text, values)])
    with search.locked():  # other workers write points.json, too
        content = read_described(search.out)
        points = [point for point in content["points"] if point["run"] != name]  # without an earlier start of the trial
        points.append({"run": name, "label": text, "overrides": values, "config": config})
        content["points"] = sorted(points, key=lambda point: point["run"])
        atomic_write(search.out / "points.json", json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return Job(text, search.out / name, config, after=())  # no test: trials are compared by their validation


def _run(job: Job, received: list[int]) -> str | None:
    """Train or continue a trial; return None if it finished, "stopped" if it saved and stopped, or why it failed."""
    while not received:
        # In the process group of this worker, so that a launcher that kills the worker kills the run, too.
        run = Running(job, os.environ, own_session=False)
        while run.state == "running":
            if received and not run.stopping:
                # SIGUSR1, since Ctrl-C has reached the run already, and a second SIGINT would end it without saving.
                run.stop(signal.SIGUSR1)
            run.poll()
            time.sleep(0.1)  # seconds
        if run.state != "elsewhere":
            break
        time.sleep(1)  # elsewhere: the run of an earlier worker that was killed still holds the lock
    else:  # a signal came before the run could start
        return "stopped"
    if run.state == "stopped" or (run.state == "failed" and is_signal_status(run.process.returncode)):
        return "stopped"  # the second case: a signal to the process group ended the run before the worker saw it
    return f"fit failed: {last_line(job.log)}" if run.state == "failed" else None


def _report(search: "Search", number: int, values: dict[str, Any]) -> None:
    """Print how a trial ended, and write the config of the best one so far to best.yaml."""
    from precis.sweeping.search_report import describe, describe_best  # imports Optuna

    with search.locked():  # other workers write best.yaml, too
        if best := search.best:
            write_best(search, best)
    outcome = describe(search, search.trials[number])
    line = f"trial {number}: {label(values, search.section['keys'])}: {outcome}; {describe_best(search)}"
    print(printable_line(line), flush=True)
