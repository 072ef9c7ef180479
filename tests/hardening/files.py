"""Damaged records, damaged files and hostile configs, and counts of what went wrong (aim: none).

    make harden        (or: python tests/hardening/files.py)

The defaults are 10,000 records of each kind in 100 files, ten files with each damage of whole files, and 90 configs.
"""

import gzip
import json
import os
import random
import resource
import sys
import tempfile
import warnings
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import datasets  # noqa: F401  # imported once, before processes are forked
import harness  # first, since it finds the others
from conftest import pointer_generator_config, write, write_corpus
from damaged_records import SECONDS, count_files, csv_lines, good_record, json_lines
from harness import TimeLimit, in_a_child, time_limit
from hostile_configs import count_configs, run_whole

from datamodules.corpora.corpus import build_documents, read_manifest
from datamodules.corpora.files import Files
from datamodules.documents import BadRecord, UserError

COLUMNS = ("tracebacks", "hangs", "lost", "ran", "unexplained")
MAX_MEMORY = 1024  # MiB that reading a file may add: several times the longest permitted line, 64 MiB
BOMB = (200 << 20, 400 << 20)  # bytes
MILLION = "The otter guards the mill. " * 200_000  # words


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(10, len(content) - 9)]


# by name, of which those that begin with "gzip" get the suffix .gz
DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "none": lambda content, rng: content,
    "byte order mark": lambda content, rng: b"\xef\xbb\xbf" + content,
    "lines that end with CR LF": lambda content, rng: content.replace(b"\n", b"\r\n"),
    "UTF-16": lambda content, rng: content.decode().encode(rng.choice(["utf-16", "utf-16-le", "utf-16-be"])),
    "Latin-1": lambda content, rng: content.decode().encode("latin1", "replace"),
    "empty": lambda content, rng: b"",
    "bytes of value 0": lambda content, rng: bytes(rng.randrange(1, 10_000)),
    "random bytes": lambda content, rng: rng.randbytes(rng.randrange(1, 10_000)),
    "gzip": lambda content, rng: gzip.compress(content),
    "gzip, cut short": lambda content, rng: _cut(gzip.compress(content), rng),
    "gzip, twice": lambda content, rng: gzip.compress(gzip.compress(content)),
    "gzip bomb in one line": lambda content, rng: gzip.compress(content + b"a" * rng.randrange(*BOMB), 1),
    "gzip bomb of empty lines": lambda content, rng: gzip.compress(content + b"\n" * (1 << 20), 1),
}
ALL_DAMAGES = [*DAMAGES, "the same id", "a document of a million words"]


def read_file(path: Path, folder: Path) -> None:
    """Write what became of the records of a file, and MiB of memory that it took, to standard output as JSON."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = {"read": 0, "named": 0, "documents": 0, "left_out": 0, "refused": ""}
    try:
        with time_limit(SECONDS), tempfile.TemporaryDirectory(dir=folder) as cache, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that some were left out
            for record in Files(train=str(path)).records("train"):
                outcome["named" if isinstance(record, BadRecord) else "read"] += 1
            documents = build_documents(Files(train=str(path)), "train", cache, on_bad_record="skip")
            outcome |= {"documents": len(documents), "left_out": len(read_manifest(documents)["skipped"])}
    except UserError as error:
        outcome["refused"] = str(error)
    except TimeLimit:
        outcome["refused"] = "hang"
    outcome["memory"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    os.write(1, json.dumps(outcome).encode())


def count_damaged_files(damage: str, kind: str, files: int, number: int, seed: int, folder: Path) -> Counter:
    """Return counts over a number of files with one of `ALL_DAMAGES`, jsonl or csv, each with a number of records."""
    counts = Counter(files=files, read=0, named=0, refused=0, lost=0, tracebacks=0, hangs=0, memory=0)
    for index in range(files):
        rng = random.Random(f"{damage} {kind} {seed} {index}")
        records = [good_record(each, rng) for each in range(number)]
        if damage == "the same id":
            records = [record | {"id": "r0"} for record in records]
        elif damage == "a document of a million words":
            records[number // 2]["document"] = MILLION
        path = folder / f"records.{kind}{'.gz' if damage.startswith('gzip') else ''}"
        content, _ = (json_lines if kind == "jsonl" else csv_lines)(records, {}, rng)
        path.write_bytes(DAMAGES.get(damage, DAMAGES["none"])(content, rng))
        output = folder / "output.txt"
        if in_a_child(lambda path=path: read_file(path, folder), output):
            counts["tracebacks"] += 1
            continue
        outcome = json.loads(output.read_text().splitlines()[-1])
        counts["memory"] = max(counts["memory"], round(outcome["memory"]))
        counts.update(read=outcome["read"], named=outcome["named"])
        if outcome["refused"]:
            counts["hangs"] += outcome["refused"] == "hang"
            counts["refused"] += 1
            # the message is one line that names the file or says that it has no document
            counts["lost"] += "\n" in outcome["refused"] or str(path) not in outcome["refused"]
        else:
            expected = number if damage not in ("bytes of value 0", "random bytes", "empty", "gzip, twice") else 0
            counts["lost"] += max(0, expected - outcome["read"] - outcome["named"])
            # the documents that are built from it, and the records that are left out with a message
            counts["lost"] += abs(outcome["read"] + outcome["named"] - outcome["documents"] - outcome["left_out"])
    return counts


def hostile_base(folder: Path) -> dict:
    annealing = {"class_path": "callbacks.CoverageAnnealing", "init_args": {"start_step": 2}}
    optimizer = {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.01}}
    config = pointer_generator_config(write_corpus(folder), 4, max_epochs=1, callbacks=[annealing])
    return config | {"optimizer": optimizer}


def print_counts(name: str, total: int, damaged: int, counts: Counter) -> int:
    harness.print_row(name, f"{total:,}", f"{damaged:,}", *(counts[column] for column in COLUMNS))
    return sum(counts[column] for column in COLUMNS)


def count_whole_files(number: int, seed: int, folder: Path) -> int:
    """Print a table of damages of whole files, half of them JSON Lines, half CSV; return the number of failures."""
    head = ("files", "read", "named", "refused", "lost", "tracebacks", "hangs", "memory")
    print()
    harness.print_head("damage", *head[:-1], "memory, MiB")
    failed = 0
    for damage in ALL_DAMAGES:
        kinds = [count_damaged_files(damage, kind, number // 2, 50, seed, folder) for kind in ("jsonl", "csv")]
        counts = sum(kinds, Counter())
        counts["memory"] = max(one["memory"] for one in kinds)
        failed += sum(counts[name] for name in ("lost", "tracebacks", "hangs")) + (counts["memory"] > MAX_MEMORY)
        harness.print_row(damage, *(f"{counts[name]:,}" for name in head))
    return failed


def count_all(options: Namespace, folder: Path) -> int:
    harness.print_head("", "number", "damaged", *COLUMNS)
    failed = 0
    for kind in ("jsonl", "csv", "parquet"):
        counts = count_files(kind, options.files, options.records, options.seed, folder)
        failed += print_counts(f"records, {kind}", counts["records"], counts["damaged"], counts)
    failed += count_whole_files(options.whole, options.seed, folder)
    base, run = hostile_base(folder), folder / "whole"
    run_whole(["fit", f"--config={write(folder / 'base.yaml', base)}", f"--run_dir={run}"])
    counts, wrong = count_configs(base, run, options.configs, options.seed, folder)
    print()
    harness.print_head("", "number", "refused", *COLUMNS)
    failed += print_counts("configs and sweeps", counts["cases"], counts["refused"], counts)
    print("\n".join(["", *wrong]), file=sys.stderr)
    return failed


if __name__ == "__main__":
    harness.run(
        __doc__, count_all,
        files=(100, "number of files of each kind of records"),
        records=(100, "number of records in each of them"),
        whole=(10, "number of files with each damage of whole files"),
        configs=(90, "number of hostile configs and sweeps"),
    )  # fmt: skip
