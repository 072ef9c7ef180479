"""Training on two processes beside training on one with batches of twice the size: largest differences of each model.

    make harden        (or: python tests/hardening/two_processes.py)

The runs are those of tests/test_ddp.py: two epochs, clipped gradients, an uneven last batch, and one run with
accumulated gradients and a last batch that is empty for one process; and those of tests/callbacks/
test_self_critical_ddp.py: four steps of self-critical training with samples that are a function of the document. Both
are done in double precision and, for the gradients of the first step, in single precision.
"""

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "callbacks"))
sys.path.insert(0, str(Path(__file__).parents[2]))  # first, since tests/ has folders of the same names

import test_ddp
import test_self_critical_ddp
import torch
from long_use import corpus
from torch import Tensor

MAX_DIFFERENCES = {"32-true": 1e-6, "64-true": 1e-12}  # of gradients, relative to the largest entry
CANCELLING = {"matchsum": 5.0}  # factors: differences of nearly equal cosines lose digits


def difference(one: Tensor, other: Tensor) -> float:
    """Return the largest difference of entries, relative to the largest entry."""
    return float((one - other).abs().max() / one.abs().max().clamp_min(1e-30))


def doubles(values: list[float]) -> Tensor:
    """Return numbers in double precision."""
    return torch.tensor(values, dtype=torch.float64)


def in_single(files: dict[str, str], folder: Path, rank: int, world: int, port: int) -> None:
    """Target of a process: the runs of tests/test_ddp.py in single precision."""
    test_ddp.PRECISION = "32-true"
    test_ddp.process(files, folder, rank, world, port)


def self_critical_in_single(files: dict[str, str], folder: Path, rank: int, world: int, port: int) -> None:
    """Target of a process: self-critical training in single precision."""
    test_ddp.PRECISION = "32-true"
    test_self_critical_ddp.process(files, folder, rank, world, port)


def runs_of(result: dict | list) -> dict[str, tuple[list[float], list[Tensor], dict[str, Tensor]]]:
    """Return losses, gradients of all steps and final weights of each run by its name."""
    if isinstance(result, list):
        names = [f"{run[0]}, self-critical" + accumulation(run[3]) for run in test_self_critical_ddp.RUNS]
        return dict(zip(names, result, strict=True))
    return {
        case + accumulation(batches): (run["losses"], run["gradients"], run["weights"])
        for (case, batches), run in result.items()
    }


def accumulation(batches: int) -> str:
    """Return a note on accumulated batches."""
    return f", {batches} batches accumulated" if batches > 1 else ""


def compare(results: list, steps: int | None = None) -> dict[str, tuple[int, float, float, float]]:
    """Return the number of steps of each run, and the differences of losses, gradients, and final weights.

    Args:
        results: results of the first and second of two processes, and of one alone.
        steps: number of steps whose gradients are compared; None for all.
    """
    first, second, alone = map(runs_of, results)
    table = {}
    for name, (losses, gradients, weights) in alone.items():
        mean = (doubles(first[name][0]) + doubles(second[name][0])) / 2
        pairs = list(zip(gradients, first[name][1], strict=True))[:steps]
        both = [torch.cat([w.double().flatten() for w in run.values()]) for run in (weights, first[name][2])]
        largest = max(difference(ours, theirs) for ours, theirs in pairs)
        table[name] = len(gradients), difference(doubles(losses), mean), largest, difference(*both)
    return table


def measure(target, files: dict[str, str], folder: Path, steps: int | None = None) -> dict:
    """Train on one and on two processes, and return what `compare` does."""
    folder.mkdir()
    context = multiprocessing.get_context("spawn")
    return compare(test_ddp.run_on_one_and_two(context, target, files, folder, seconds=1800), steps)


def main() -> int:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="precis-ddp-") as place:
        folder = Path(place)
        os.environ |= {"PRECIS_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
        files = corpus(folder)
        test_ddp.prepare(files)
        double = measure(test_ddp.process, files, folder / "double")
        double |= measure(test_self_critical_ddp.process, files, folder / "rewards")
        single = measure(in_single, files, folder / "single", steps=1)
        single |= measure(self_critical_in_single, files, folder / "single-rewards", steps=1)
    print("| model | steps | loss | gradients | final weights | gradients, single precision |")
    print("|---|---|---|---|---|---|")
    for name, (steps, *differences) in double.items():
        values = [f"{value:.0e}" for value in (*differences, single[name][2])]
        print(f"| {name} | {steps} | {' | '.join(values)} |")
    failed = []
    for precision, table in (("64-true", double), ("32-true", single)):
        for name, row in table.items():
            if row[2] > MAX_DIFFERENCES[precision] * CANCELLING.get(name, 1.0):
                failed.append(f"{name}, {precision}: gradients differ by {row[2]:.0e}")
    print(*failed, sep="\n", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
