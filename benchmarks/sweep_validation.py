"""Time for composing and checking all points of a sweep before any starts.

    python -m benchmarks.sweep_validation [--points 200]

A grid of ten values of one key, five of another and four seeds, and the same number of points of a random search:
points that only differ in their seed are parsed once. Processor time of this process, and wall time.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from benchmarks.measuring import alternate, options, print_table
from experiments.sweeping.composition import compose
from experiments.sweeping.grid import read_sweep

BASE = Path(__file__).parents[1] / "experiments" / "configs" / "pointer_generator" / "docstrings.yaml"


def sweeps(points: int) -> dict[str, dict]:
    """Return the varying parts of sweep files, by name."""
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
    parser = options(__doc__)
    parser.add_argument("--points", type=int, default=200, help="number of points of each sweep, a multiple of 20")
    rows = []
    with TemporaryDirectory() as folder:
        for name, parts in sweeps(parser.parse_args().points).items():
            path, points = Path(folder) / "sweep.yaml", []
            path.write_text(yaml.safe_dump({"base": str(BASE), **parts}), encoding="utf-8")
            run = lambda path=path, points=points: points.extend(compose(read_sweep(path)))  # noqa: E731
            wall, cpu = alternate({name: run}, 1, warm_up=False)[name].medians()
            rows.append([name, len(points), f"{cpu:.1f}", f"{wall:.1f}"])
    print_table(["sweep", "points", "seconds of the process", "seconds of the clock"], rows)


if __name__ == "__main__":
    main()
