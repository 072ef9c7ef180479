"""Damaged records, damaged files and hostile configs, and counts of what went wrong (aim: none).

    make harden        (or: python tests/hardening/files.py)

The defaults are 10,000 records of each kind in 100 files, ten files with each damage of whole files, and 90 configs.
"""

import sys
from collections import Counter
from pathlib import Path

import harness  # first, since it finds the others
import yaml
from conftest import write_corpus
from damaged_files import ALL_DAMAGES, MAX_MEMORY, count_damaged_files
from damaged_records import count_files
from hostile_configs import count_configs, run_command

COLUMNS = ("tracebacks", "hangs", "lost", "ran", "unexplained")


def hostile_base(folder: Path) -> dict:
    """Return a config with an optimizer and a callback, over files of made-up documents."""
    annealing = {"class_path": "callbacks.CoverageAnnealing", "init_args": {"start_step": 2}}
    optimizer = {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.01}}
    return harness.tiny_config(write_corpus(folder), max_epochs=1, callbacks=[annealing]) | {"optimizer": optimizer}


def row(name: str, total: int, damaged: int, counts: Counter) -> str:
    """A line of the table."""
    return " | ".join([f"| {name}", f"{total:,}", f"{damaged:,}", *(str(counts[column]) for column in COLUMNS)]) + " |"


def count_whole_files(number: int, seed: int, folder: Path) -> int:
    """Print a table of damages of whole files, half of them JSON Lines, half CSV; return the number of failures."""
    head = ("files", "read", "named", "refused", "lost", "tracebacks", "hangs", "memory")
    print(f"\n| damage | {' | '.join(head)}, MiB |\n|---|" + "---|" * len(head), flush=True)
    failed = 0
    for damage in ALL_DAMAGES:
        kinds = [count_damaged_files(damage, kind, number // 2, 50, seed, folder) for kind in ("jsonl", "csv")]
        counts = sum(kinds, Counter())
        counts["memory"] = max(one["memory"] for one in kinds)
        failed += sum(counts[name] for name in ("lost", "tracebacks", "hangs")) + (counts["memory"] > MAX_MEMORY)
        print(f"| {damage} | {' | '.join(f'{counts[name]:,}' for name in head)} |", flush=True)
    return failed


def main() -> None:
    options = harness.read_options(
        __doc__,
        files=(100, "number of files of each kind of records"),
        records=(100, "number of records in each of them"),
        whole=(10, "number of files with each damage of whole files"),
        configs=(90, "number of hostile configs and sweeps"),
    )
    print("| | number | damaged | " + " | ".join(COLUMNS) + " |\n|---|---|---|" + "---|" * len(COLUMNS), flush=True)
    wrong: list[str] = []
    failed = 0
    with harness.prepared_folder() as folder:
        for kind in ("jsonl", "csv", "parquet"):
            counts = count_files(kind, options.files, options.records, options.seed, folder)
            failed += sum(counts[column] for column in COLUMNS)
            print(row(f"records, {kind}", counts["records"], counts["damaged"], counts), flush=True)
        failed += count_whole_files(options.whole, options.seed, folder)
        base, run, path = hostile_base(folder), folder / "whole", folder / "base.yaml"
        path.write_text(yaml.safe_dump(base), encoding="utf-8")
        status, messages = run_command(["fit", f"--config={path}", f"--run_dir={run}"])
        assert status == 0, messages
        counts, wrong = count_configs(base, run, options.configs, options.seed, folder)
        print("\n| | number | refused | " + " | ".join(COLUMNS) + " |\n|---|---|---|" + "---|" * len(COLUMNS))
        failed += sum(counts[column] for column in COLUMNS)
        print(row("configs and sweeps", counts["configs"], counts["refused"], counts), flush=True)
    print("\n".join(["", *wrong]), file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
