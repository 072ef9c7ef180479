"""Part `tests`: the tests marked `cuda`, one cell for each file."""

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.gpu.cells import Cell

TESTS = Path(__file__).parents[2] / "tests"
# files and estimated seconds: mostly of compilation (attention) and of starting trainers (models)
FILES = {
    "gpu/test_attention_on_devices.py": 150,
    "gpu/test_models_on_devices.py": 300,
    "gpu/test_two_processes.py": 40,
    "lightning_modules/rstformer/test_rstformer_training.py": 60,
}
TINY = ("gpu/test_attention_on_devices.py", "forward_and_backward and cpu and product-none")


def run_tests(path: Path, report: Path, selection: list[str]) -> dict[str, Any]:
    """Run the selected tests of a file.

    Raises:
        RuntimeError: if a test fails, with the names and messages of the tests that failed.
    """
    report.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-rs", f"--junitxml={report}", *selection, str(path)]
    try:
        done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        raise RuntimeError(f"pytest did not run:\n{done.stdout}\n{done.stderr}") from None
    outcomes = {case.get("name"): {part.tag: part.get("message") for part in case} for case in cases}
    failed = [name for name, parts in outcomes.items() if {"failure", "error"} & parts.keys()]
    skipped = {name: parts["skipped"] for name, parts in outcomes.items() if "skipped" in parts}
    if done.returncode:
        raise RuntimeError(f"{len(failed)} of {len(cases)} tests failed: {', '.join(failed)}\n{done.stdout[-20000:]}")
    return {"tests": len(cases), "skipped": skipped, "seconds": {c.get("name"): float(c.get("time")) for c in cases}}


def cells(arguments) -> list[Cell]:
    """Return one cell for each file with tests of GPUs."""
    out = arguments.out.resolve() / "tests"
    if arguments.tiny:
        path, words = TINY
        return [Cell("tiny", 30, lambda: run_tests(TESTS / path, out / "tiny.xml", ["-k", words]))]

    def cell(path: str, seconds: float) -> Cell:
        name = Path(path).stem
        return Cell(name, seconds, lambda: run_tests(TESTS / path, out / f"{name}.xml", ["-m", "cuda"]))

    return [cell(path, seconds) for path, seconds in FILES.items()]


def report(records: list[dict[str, Any]], folder: Path) -> list[str]:
    """Return lines for the summary: tests that ran, and the reasons of those that were skipped."""
    lines = []
    for record in records:
        if "result" in record:
            skipped = record["result"]["skipped"]
            passed = record["result"]["tests"] - len(skipped)
            lines.append(f"- {record['name']}: {passed} passed, {len(skipped)} skipped")
            lines += [f"    - {reason}" for reason in sorted(set(skipped.values()))]
    return lines
