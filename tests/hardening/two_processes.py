"""Training on two processes beside training on one with batches of twice the size: largest differences of each model.

    make harden        (or: python tests/hardening/two_processes.py)

The runs are those of tests/test_ddp.py: double precision, two epochs, clipped gradients, an uneven last batch, and one
run with accumulated gradients and a last batch that is empty for one process.
"""

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))  # first, since tests/ has folders of the same names

import torch
from long_use import corpus
from test_ddp import process, run_on_one_and_two
from torch import Tensor

MAX_DIFFERENCE = 1e-10  # of gradients, relative to the largest entry


def difference(one: Tensor, other: Tensor) -> float:
    """Return the largest difference of entries, relative to the largest entry."""
    return float((one - other).abs().max() / one.abs().max().clamp_min(1e-30))


def doubles(values: list[float]) -> Tensor:
    """Return numbers in double precision."""
    return torch.tensor(values, dtype=torch.float64)


def rows(first: dict, second: dict, alone: dict) -> list[tuple[str, int, float, float, float]]:
    """Return name and number of steps of each run, and the differences of losses, gradients, and final weights."""
    table = []
    for key, one in alone.items():
        two = first[key]
        losses = (doubles(two["losses"]) + doubles(second[key]["losses"])) / 2
        name = key[0] + (f", {key[1]} batches accumulated" if key[1] > 1 else "")
        pairs = zip(one["gradients"], two["gradients"], strict=True)
        gradients = max(difference(ours, theirs) for ours, theirs in pairs)
        weights = difference(*(torch.cat([w.double().flatten() for w in r["weights"].values()]) for r in (one, two)))
        table.append((name, len(one["gradients"]), difference(doubles(one["losses"]), losses), gradients, weights))
    return table


def main() -> int:
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="precis-ddp-") as place:
        folder = Path(place)
        os.environ |= {"PRECIS_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
        files = corpus(folder)
        first, second, alone = run_on_one_and_two(context, process, files, folder, seconds=1800)
    table = rows(first, second, alone)
    print("| model | steps | loss | gradients | final weights |\n|---|---|---|---|---|")
    for name, steps, *differences in table:
        print(f"| {name} | {steps} | " + " | ".join(f"{value:.0e}" for value in differences) + " |")
    return int(any(row[3] > MAX_DIFFERENCE for row in table))


if __name__ == "__main__":
    sys.exit(main())
