"""Cells: the measurements of a part, each recorded in a file of its own, so that a second call continues."""

import json
import os
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from datamodules.atomic_write import atomic_write

# Rates from which minutes are estimated: about half of what an H200-class GPU reaches on large matrix products in bf16,
# and most of its memory bandwidth.
FLOPS, BYTES = 400e12, 4e12
RUNNING = "running"  # file that names the cell in progress
LOST_GPU = 3  # exit status of a worker whose GPU context an error has made unusable


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        name: file name of its record, unique in its part.
        seconds: estimated time.
        run: function that measures and returns figures that can be written as JSON.
        settings: description of what is measured, for the record.
    """

    name: str
    seconds: float
    run: Callable[[], dict[str, Any]]
    settings: dict[str, Any] = field(default_factory=dict)


def estimate(flops: float, moved: float, repetitions: int, compiling: float = 0.0) -> float:
    """Return estimated seconds: the larger one of arithmetic and memory traffic, and time for compilation.

    Args:
        flops: floating-point operations of a repetition.
        moved: bytes that a repetition reads and writes.
        repetitions: number of repetitions.
        compiling: seconds of compilation and start.
    """
    return repetitions * max(flops / FLOPS, moved / BYTES) + compiling


def read_record(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the record of a cell, None if there is none."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write_record(folder: Path, name: str, **values: Any) -> None:
    """Write the record of a cell atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / f"{name}.json", json.dumps({"name": name, "time": time.time()} | values, indent=1) + "\n")


def is_due(folder: Path, name: str, started: float) -> bool:
    """Return whether a cell is to be run: it has not finished, and has not failed since `started`."""
    record = read_record(folder, name)
    return record is None or ("error" in record and record["time"] < started)


def run_cells(cells: Iterable[Cell], folder: Path, started: float, until: float) -> int:
    """Run the cells that are due, one after another; a failure is recorded and does not end the others.

    Args:
        cells: cells of a part, in order of value.
        folder: folder of their records.
        started: time of the call; what failed earlier is tried again.
        until: time after which no cell is begun.

    Returns:
        0, or `LOST_GPU` after an error that leaves the GPU unusable for this process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for cell in cells:
        if not is_due(folder, cell.name, started):
            continue
        if time.time() + cell.seconds > until:
            print(f"{folder.name}/{cell.name}: not begun, it takes about {cell.seconds:.0f} s", flush=True)
            continue
        (folder / RUNNING).write_text(cell.name, encoding="utf-8")
        begin = time.perf_counter()
        try:
            outcome = {"result": cell.run()}
        except Exception as error:  # any failure is a result of this measurement
            outcome = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        seconds = time.perf_counter() - begin
        write_record(folder, cell.name, settings=cell.settings, seconds=seconds, **outcome)
        (folder / RUNNING).unlink()
        print(f"{folder.name}/{cell.name}: {outcome.get('error', 'done')} ({seconds:.1f} s)", flush=True)
        if "CUDA error" in outcome.get("error", ""):
            return LOST_GPU
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return 0


def record_interrupted(folder: Path, reason: str) -> None:
    """Record the cell in which a worker ended as failed."""
    running = folder / RUNNING
    if running.is_file():
        write_record(folder, running.read_text(encoding="utf-8"), error=reason, traceback="")
        os.remove(running)
