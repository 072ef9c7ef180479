"""Files of records, some of them damaged, and what became of each record.

A record is lost if it was not damaged and is neither read as it was nor within the lines that a message names, or if it
was damaged and is neither read nor named with its line.
"""

import csv
import io
import json
import random
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from harness import TimeLimit, time_limit

from datamodules.corpora.corpus import build_documents
from datamodules.corpora.files import Files
from datamodules.documents import BadRecord, Record, UserError

SECONDS = 60  # for a file; more is a hang
WORDS = ["Zürich", "otter", "the", "rain", "東京", "mill", "said", "“so”", "1,5", "e\u0301", "🧬", "a;b", "x\u2028y"]


def good_record(number: int, rng: random.Random) -> dict[str, str]:
    text = " ".join(rng.choices(WORDS, k=rng.randrange(3, 20))).capitalize() + "."
    return {"id": f"r{number}", "document": text, "summary": " ".join(rng.choices(WORDS, k=4)) + "."}


def _replace(key: str, *values: object) -> Callable[[dict, random.Random], bytes]:
    return lambda record, rng: json.dumps(record | {key: rng.choice(values)}).encode()


def _raw(change: Callable[[bytes, random.Random], bytes]) -> Callable[[dict, random.Random], bytes]:
    return lambda record, rng: change(json.dumps(record, ensure_ascii=False).encode(), rng)


def flip(content: bytes, rng: random.Random, size: int | None = None) -> bytes:
    """Return a content with another bit, in its first bytes where a size is given."""
    at = rng.randrange(min(size or len(content), len(content)))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


ODD = (None, 7, -1.5, True, [], {}, [[]], [None], [1, "a"], {"a": "b"}, "", " \t", "\ud800", "\x00", float("nan"))
JSON_DAMAGES: dict[str, Callable[[dict, random.Random], bytes]] = {
    "truncated": _raw(lambda line, rng: line[: rng.randrange(1, len(line))]),
    "flipped bit": _raw(flip),
    "inserted bytes": _raw(lambda line, rng: line[:9] + rng.randbytes(3).replace(b"\n", b"") + line[9:]),
    "random bytes": lambda record, rng: b"x" + rng.randbytes(rng.randrange(1, 80)).replace(b"\n", b""),
    "latin1": lambda record, rng: json.dumps(record, ensure_ascii=False).encode("latin1", "replace") + b"\xfc",
    "utf16": lambda record, rng: json.dumps(record).encode("utf-16-le").replace(b"\n", b""),
    "nested": lambda record, rng: b"[" * rng.randrange(1, 100_000),
    "many digits": lambda record, rng: b'{"id": ' + b"9" * rng.randrange(4000, 20_000) + b"}",
    "odd document": _replace("document", *ODD),
    "odd summary": _replace("summary", *ODD),
    "odd id": _replace("id", *ODD, 1 << 80, "r0", "x" * 100_000),
    "no document": lambda record, rng: json.dumps({"id": record["id"], "summary": "x"}).encode(),
    "no object": lambda record, rng: rng.choice([b"[]", b"3", b'"text"', b"null", b"NaN", b"-", b"{}", b"{]"]),
    "twice a key": _raw(lambda line, rng: line[:-1] + b', "document": 3}'),
    "control characters": _replace("document", *(f"a{chr(code)}b." for code in (1, 7, 13, 27, 127, 133, 155, 0x202E))),
    "byte order mark": _raw(lambda line, rng: b"\xef\xbb\xbf" + line),
    "carriage returns": _raw(lambda line, rng: line.replace(b" ", b"\r", 2)),
    "huge number": _raw(lambda line, rng: line[:-1] + b', "n": 1e999}'),
    "two objects": _raw(lambda line, rng: line + line),
}


def json_lines(records: list[dict], damaged: dict[int, str], rng: random.Random) -> tuple[bytes, list[range]]:
    parts = []
    for number, record in enumerate(records):
        whole = json.dumps(record, ensure_ascii=False).encode()
        parts.append((JSON_DAMAGES[damaged[number]](record, rng) if number in damaged else whole) + b"\n")
    lines = accumulate((part.count(b"\n") for part in parts), initial=1)
    return b"".join(parts), [range(first, end) for first, end in pairwise(lines)]


CSV_DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "field too many": lambda line, rng: line + b",more",
    "field too few": lambda line, rng: line.split(b",")[0],
    "not UTF-8": lambda line, rng: line.replace(b"r", b"r\xfc", 1),
    "random bytes": lambda line, rng: b"x" + rng.randbytes(20).translate(None, b'\n\r",'),
    "NUL": lambda line, rng: line + b"\x00",
    "open quote": lambda line, rng: line.replace(b",", b',"', 1),
    "quote inside": lambda line, rng: line.replace(b',"', b',"a"b', 1) if b',"' in line else line + b',"a"b',
    "empty fields": lambda line, rng: b",,",
}


def csv_lines(records: list[dict], damaged: dict[int, str], rng: random.Random) -> tuple[bytes, list[range]]:
    parts = [b"id,document,summary"]
    for number, record in enumerate(records):
        text, quoting = io.StringIO(), csv.QUOTE_ALL if number % 3 else csv.QUOTE_MINIMAL
        csv.writer(text, lineterminator="", quoting=quoting).writerow(record.values())
        row = text.getvalue().encode()
        parts.append(CSV_DAMAGES[damaged[number]](row, rng) if number in damaged else row)
    return b"\n".join([*parts, b""]), [range(line, line + 1) for line in range(2, len(records) + 2)]


# a file, how many of its records are damaged, how many are lost if it is refused, and of what became of them
DamagedFile = tuple[Path, int, Callable[[UserError], int], Callable[[list], int]]


def write_text_file(kind: str, number: int, rng: random.Random, folder: Path) -> DamagedFile:
    records = [good_record(index, rng) for index in range(number)]
    damages = JSON_DAMAGES if kind == "jsonl" else CSV_DAMAGES
    # two neighbours are never both damaged: in CSV one may take the other's line with it
    damaged = {index: rng.choice(list(damages)) for index in range(1, number, 3) if rng.random() < 0.7}
    content, spans = (json_lines if kind == "jsonl" else csv_lines)(records, damaged, rng)
    path = folder / f"records.{kind}"
    path.write_bytes(content)

    def lost(outcomes: list) -> int:
        texts = {record.id: record.parts for record in outcomes if not isinstance(record, BadRecord)}
        named, count = _named_lines(outcomes), 0
        for index, record in enumerate(records):
            if index in damaged:
                unread = record["id"] not in texts
            else:
                unread = "".join("".join(part) for part in texts.get(record["id"], [])) != record["document"]
            count += unread and named.isdisjoint(spans[index])
        return count

    return path, len(damaged), lambda error: number, lost  # one record must not cost the others


def _named_lines(outcomes: list) -> set[int]:
    """Lines that a bad record names, and those at which other records begin."""
    lines: set[int] = set()
    for outcome in outcomes:
        first = last = _line(outcome)
        if isinstance(outcome, BadRecord) and (reach := re.search(r", up to line (\d+)", outcome.problem)):
            last = int(reach[1])
        lines.update(range(first, last + 1))
    return lines


def _line(outcome: Record | BadRecord) -> int:
    """Return the line or row of a record, which follows the path and may be followed by an id."""
    return int(re.search(r"records\.\w+:(\d+)", outcome.where)[1])


def _build(path: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as cache, warnings.catch_warnings():
        try:
            warnings.simplefilter("ignore")  # that some were left out
            build_documents(Files(train=str(path)), "train", cache, on_bad_record="skip")
        except UserError as error:
            if "no usable document" not in str(error):
                raise


ODD_COLUMNS = [pa.null(), pa.int64(), pa.float64(), pa.bool_(), pa.list_(pa.int64()), pa.binary()]


def write_parquet(number: int, rng: random.Random, folder: Path) -> DamagedFile:
    """Write text that is not UTF-8, a column of an odd type, or damaged bytes, which may cost the whole file."""
    records = [good_record(index, rng) for index in range(number)]
    texts = [record["document"].encode() for record in records]
    bad = {index for index in range(number) if rng.random() < 0.2}
    for index in bad:
        texts[index] += bytes([rng.randrange(0x80, 0xC0)])
    offsets = [0, *accumulate(map(len, texts))]
    buffers = [pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(b"".join(texts))]
    columns = {"id": [r["id"] for r in records], "document": pa.StringArray.from_buffers(number, *buffers)}
    columns["summary"] = [record["summary"] for record in records]
    damage = rng.choice(["none", "odd column", "bytes", "truncated"])
    if damage == "odd column":
        columns[rng.choice(list(columns))] = pa.nulls(number, rng.choice(ODD_COLUMNS))
    path = folder / "records.parquet"
    pq.write_table(pa.table(columns), path, compression=rng.choice(["none", "snappy", "zstd"]))
    content = path.read_bytes()
    if damage == "bytes":
        for _ in range(rng.randrange(1, 8)):
            content = flip(content, rng)
    path.write_bytes(content[: rng.randrange(len(content))] if damage == "truncated" else content)
    whole = damage == "none"

    def lost(outcomes: list) -> int:
        named = {_line(outcome) - 1 for outcome in outcomes if isinstance(outcome, BadRecord)}
        return abs(number - len(outcomes)) + (len(named ^ bad) if whole else 0)

    def lost_if_refused(error: UserError) -> int:
        return number if whole or str(path) not in str(error) else 0

    return path, len(bad) if whole else number, lost_if_refused, lost


def count_files(kind: str, files: int, number: int, seed: int, folder: Path) -> Counter:
    """Return counts of `records`, `damaged`, `tracebacks`, `hangs`, `lost` over some files: jsonl, csv or parquet."""
    counts: Counter = Counter(tracebacks=0, hangs=0, lost=0)
    for index in range(files):
        rng = random.Random(f"{kind} {seed} {index}")
        write = write_parquet if kind == "parquet" else partial(write_text_file, kind)
        path, damaged, lost_if_refused, lost = write(number, rng, folder)
        counts.update(records=number, damaged=damaged)
        try:
            with time_limit(SECONDS):
                outcomes = list(Files(train=str(path)).records("train"))
                if kind != "parquet":
                    _build(path, folder)
            counts["lost"] += lost(outcomes)
        except TimeLimit:
            counts["hangs"] += 1
        except UserError as error:
            counts["lost"] += lost_if_refused(error)
        except Exception as error:
            counts.update(["tracebacks", type(error).__name__])
    return counts
