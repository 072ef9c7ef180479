"""All measurements that need a GPU, the most important first, with one command.

    python -m benchmarks.gpu --minutes 30 --out runs/gpu [--part attention models] [--dry-run]

Parts:

    attention  time and memory of encoder attention and layers, against transformers' LED and the released recipe
    models     training step and decoding of every model, against eager fp32 and settings of public implementations

Each part gets its share of the minutes; what one does not use goes to the next. Each measurement is a cell with a JSON
file of its own. A second call skips finished cells and repeats failed ones. A part runs in processes of its own: a cell
that fails, crashes or exceeds the time of its part is recorded and does not end the others. Plots and `summary.md` are
written at the end.

`--tiny` runs the same code with tiny sizes, on a CPU as well. `--dry-run` prints the plan; its minutes are estimated
from floating-point operations and bytes at assumed rates (see cells.py), not measured.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import torch

from benchmarks.gpu.cells import Cell, is_due, read_record, record_interrupted, run_cells
from benchmarks.measuring import machine, options

# share of the remaining time that each part may use
SHARES = {"attention": 0.5, "models": 1.0}


def cells_of(part: str, arguments: argparse.Namespace) -> list[Cell]:
    """Return the measurements of a part of the benchmark."""
    return import_module(f"benchmarks.gpu.{part}").cells(arguments)


def parse() -> argparse.Namespace:
    """Return the arguments."""
    parser = options(__doc__)
    parser.add_argument("--part", nargs="+", choices=SHARES, default=list(SHARES))
    parser.add_argument("--minutes", type=float, default=30.0, help="time for all parts")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder of records and plots")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to test this command")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and end")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--worker", nargs=2, type=float, metavar=("STARTED", "UNTIL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.device == "cpu" and not (arguments.tiny or arguments.dry_run):
        parser.error("there is no GPU here; --tiny runs the same code with tiny sizes, --dry-run prints the plan")
    return arguments


def print_plan(arguments: argparse.Namespace) -> None:
    """Print the cells of each part with estimated minutes."""
    print("Minutes are estimated from operations and bytes at assumed rates, not measured.\n")
    for part in arguments.part:
        cells = cells_of(part, arguments)
        print(f"{part}: {len(cells)} cells, {sum(cell.seconds for cell in cells) / 60:.1f} minutes")
        for cell in cells:
            done = "" if is_due(arguments.out / part, cell.name, time.time()) else "  (finished)"
            print(f"  {cell.seconds / 60:5.2f}  {cell.name}{done}")


def run_part(part: str, arguments: argparse.Namespace, started: float, until: float) -> None:
    """Run the cells of a part in a separate process, which is replaced by a new one if it crashes."""
    folder = arguments.out / part
    command = [sys.executable, "-m", "benchmarks.gpu", "--part", part, "--out", str(arguments.out)]
    command += ["--device", arguments.device, "--minutes", str(arguments.minutes)]
    command += ["--tiny"] if arguments.tiny else []
    while time.time() < until:
        records = set(folder.glob("*.json"))
        status = run_worker([*command, "--worker", str(started), str(until)], until - time.time())
        record_interrupted(folder, f"the process ended with status {status}" if status else "the part's time was over")
        if not status or set(folder.glob("*.json")) == records:
            return
        print(f"{part}: continues in a new process", flush=True)


def run_worker(command: list[str], seconds: float) -> int | None:
    """Return the exit status of a process, None after the time limit, which ends the process and its children."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:  # after Ctrl-C as well
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def summarize(arguments: argparse.Namespace) -> int:
    """Write plots and `summary.md`; return the number of failed cells."""
    failures, lines = 0, [f"# Measurements on {machine(arguments.device)}", ""]
    for part in SHARES:
        paths = sorted((arguments.out / part).glob("*.json"))
        records = [read_record(path.parent, path.stem) for path in paths]
        failed = [record for record in records if "error" in record]
        failures += len(failed)
        if records:
            lines += [f"## {part}: {len(records) - len(failed)} finished, {len(failed)} failed", ""]
            lines += import_module(f"benchmarks.gpu.{part}").report(records, arguments.out)
            lines += [f"- failed: {record['name']}: {record['error'].splitlines()[0]}" for record in failed] + [""]
    (arguments.out / "summary.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"\n{arguments.out / 'summary.md'}: {failures} failed cells")
    return failures


def main() -> int:
    """Run the command; return 1 if a cell failed."""
    arguments = parse()
    if arguments.dry_run:
        print_plan(arguments)
        return 0
    if arguments.worker:  # a process that `run_part` started
        (part,) = arguments.part
        return run_cells(cells_of(part, arguments), arguments.out / part, *arguments.worker)
    started = time.time()
    end = started + 60 * arguments.minutes
    try:
        for part in arguments.part:
            # A part may use its share of the remaining time, the last one all of it.
            share = 1.0 if part == arguments.part[-1] else SHARES[part]
            run_part(part, arguments, started, time.time() + share * (end - time.time()))
    except KeyboardInterrupt:
        summarize(arguments)
        print("interrupted; the same command continues with the cells that are missing", file=sys.stderr)
        return 130
    return int(summarize(arguments) > 0)


if __name__ == "__main__":
    sys.exit(main())
