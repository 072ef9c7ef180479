"""How long it takes to compose and check every point of a sweep before any starts.

    python benchmarks/sweep_validation.py [--points 200]

A grid of ten values of one key by five of another by four seeds, and as many points that differ in more than the seed
(random search): points that differ in their seed alone are parsed once. Seconds of this process, and of the clock.
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from rich.console import Console
from rich.table import Table

from experiments.sweeping.grid import compose, read_sweep

BASE = Path(__file__).parents[1] / "experiments" / "configs" / "pointer_generator" / "docstrings.yaml"


def sweeps(points: int) -> dict[str, dict]:
    """Parts of a sweep file by what they are called."""
    rows = points // 20
    grid = {
        "model.hidden_size": [8 * (number + 1) for number in range(rows)],
        "model.dropout": [0.0, 0.1, 0.2, 0.3, 0.4],
    }
    keys = {"model.dropout": {"uniform": [0.0, 0.5]}, "data.batch_size": {"integer": [4, 64]}}
    return {
        "grid x seeds": {"grid": grid, "seeds": [1, 2, 3, 4]},
        "random": {"random": {"budget": points, "keys": keys}},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200, help="of each sweep; a multiple of 20")
    options = parser.parse_args()
    table = Table(title="composing and checking every point of a sweep")
    for name in ("sweep", "points", "seconds of the process", "seconds of the clock"):
        table.add_column(name, justify="left" if name == "sweep" else "right")
    with TemporaryDirectory() as folder:
        for name, parts in sweeps(options.points).items():
            path = Path(folder) / "sweep.yaml"
            path.write_text(yaml.safe_dump({"base": str(BASE), **parts}), encoding="utf-8")
            process, clock = time.process_time(), time.perf_counter()
            found = compose(read_sweep(path))
            spent = time.process_time() - process, time.perf_counter() - clock
            table.add_row(name, str(len(found)), *(f"{seconds:.1f}" for seconds in spent))
    Console().print(table)


if __name__ == "__main__":
    main()
