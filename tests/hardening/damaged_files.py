"""Files that are damaged or hostile as a whole: each record is read or named, or the file is refused in one line."""

import gzip
import json
import os
import random
import resource
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import datasets  # noqa: F401  # imported once, before processes are forked
from damaged_records import SECONDS, csv_lines, good_record, json_lines
from processes import TimeLimit, in_a_child, time_limit

from datamodules.corpora.corpus import build_documents, read_manifest
from datamodules.corpora.files import Files
from datamodules.documents import BadRecord, UserError

MAX_MEMORY = 1024  # MiB that reading a file may add: several times the longest permitted line, 64 MiB
MILLION = "The otter guards the mill. " * 200_000  # words


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(10, len(content) - 9)]


def _bomb(content: bytes, rng: random.Random) -> bytes:
    return gzip.compress(content + b"a" * rng.randrange(200 << 20, 400 << 20), 1)


Damage = Callable[[bytes, random.Random], bytes]
# by name: suffix of the compression, and the content of the file
DAMAGES: dict[str, tuple[str, Damage]] = {
    "none": ("", lambda content, rng: content),
    "byte order mark": ("", lambda content, rng: b"\xef\xbb\xbf" + content),
    "lines that end with CR LF": ("", lambda content, rng: content.replace(b"\n", b"\r\n")),
    "UTF-16": ("", lambda content, rng: content.decode().encode(rng.choice(["utf-16", "utf-16-le", "utf-16-be"]))),
    "Latin-1": ("", lambda content, rng: content.decode().encode("latin1", "replace")),
    "empty": ("", lambda content, rng: b""),
    "bytes of value 0": ("", lambda content, rng: bytes(rng.randrange(1, 10_000))),
    "random bytes": ("", lambda content, rng: rng.randbytes(rng.randrange(1, 10_000))),
    "gzip": (".gz", lambda content, rng: gzip.compress(content)),
    "gzip, cut short": (".gz", lambda content, rng: _cut(gzip.compress(content), rng)),
    "gzip, twice": (".gz", lambda content, rng: gzip.compress(gzip.compress(content))),
    "gzip bomb in one line": (".gz", _bomb),
    "gzip bomb of empty lines": (".gz", lambda content, rng: gzip.compress(content + b"\n" * (1 << 20), 1)),
}


def write_file(kind: str, damage: str, records: list[dict], rng: random.Random, folder: Path) -> Path:
    """Write a damaged file of records."""
    suffix, change = DAMAGES.get(damage, ("", lambda content, rng: content))
    path = folder / f"records.{kind}{suffix}"
    content, _ = (json_lines if kind == "jsonl" else csv_lines)(records, {}, rng)
    path.write_bytes(change(content, rng))
    return path


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
        path, output = write_file(kind, damage, records, rng, folder), folder / "output.txt"
        status = in_a_child(lambda path=path: read_file(path, folder), output)
        if status:
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


ALL_DAMAGES = [*DAMAGES, "the same id", "a document of a million words"]
