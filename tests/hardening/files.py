"""Damaged records, damaged files and hostile configs, and counts of what went wrong (aim: none).

    make harden        (or: python tests/hardening/files.py)

The defaults are 10,000 records of each kind in 100 files, ten files with each damage of whole files, and 90 configs.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))  # first, since tests/ has folders of the same names

import yaml
from conftest import write_corpus
from damaged_files import ALL_DAMAGES, MAX_MEMORY, count_damaged_files
from damaged_records import count_files
from hostile_configs import count_configs, run_command

COLUMNS = ("tracebacks", "hangs", "lost", "ran", "unexplained")


def tiny_config(folder: Path) -> dict:
    """The config of a small pointer-generator over files of made-up documents."""
    decoding = {"beam_size": 2, "min_length": 2, "max_length": 8}
    model = {"vocab_size": 40, "embedding_size": 12, "hidden_size": 12, "decoding": decoding}
    corpus = {"class_path": "datamodules.corpora.Files", "init_args": write_corpus(folder)}
    data = {"corpus": corpus, "max_source": 30, "max_target": 12, "batch_size": 4}
    annealing = {"class_path": "callbacks.CoverageAnnealing", "init_args": {"start_step": 2}}
    trainer = {"callbacks": [annealing], "max_epochs": 1, "accelerator": "cpu"}
    trainer |= {"enable_progress_bar": False, "enable_model_summary": False}
    return {
        "seed_everything": 3,
        "model": {"class_path": "lightning_modules.PointerGenerator", "init_args": model},
        "data": {"class_path": "datamodules.PointerGeneratorData", "init_args": data},
        "optimizer": {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.01}},
        "trainer": trainer,
        "wandb": "off",
        "previews": 0,
    }


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100, help="number of files of each kind of records")
    parser.add_argument("--records", type=int, default=100, help="number of records in each of them")
    parser.add_argument("--whole", type=int, default=10, help="number of files with each damage of whole files")
    parser.add_argument("--configs", type=int, default=90, help="number of hostile configs and sweeps")
    parser.add_argument("--seed", type=int, default=1, help="seed of all damages")
    options = parser.parse_args()
    print("| | number | damaged | " + " | ".join(COLUMNS) + " |\n|---|---|---|" + "---|" * len(COLUMNS), flush=True)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"PRECIS_CACHE": str(folder / "cache"), "WANDB_MODE": "offline"}
        failed = 0
        for kind in ("jsonl", "csv", "parquet"):
            counts = count_files(kind, options.files, options.records, options.seed, folder)
            failed += sum(counts[column] for column in COLUMNS)
            print(row(f"records, {kind}", counts["records"], counts["damaged"], counts), flush=True)
        failed += count_whole_files(options.whole, options.seed, folder)
        base, run, path = tiny_config(folder), folder / "whole", folder / "base.yaml"
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
