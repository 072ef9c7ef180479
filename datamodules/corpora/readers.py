"""Rows out of files: JSON Lines, Parquet and CSV, plain or compressed."""

import bz2
import csv
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, AnyStr

import pyarrow as pa
import pyarrow.parquet as pq

from datamodules.documents import MEND_OR_SKIP, OR_SKIP, BadRecord, CorpusError

Row = tuple[str, dict[str, Any]]

_OPENERS = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": lambda path, mode: io.BufferedReader(pa.input_stream(str(path), compression="zstd")),
}
LONGEST_LINE = 64 << 20  # bytes; the longest books have a tenth of that
_KINDS = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv")


def read_rows(path: Path, fields: list[str]) -> Iterator[tuple[int, dict[str, Any] | BadRecord]]:
    """The rows of a file with the numbers of their lines (in Parquet: of their rows), from 1.

    Args:
        path: the suffix says what is in it: `.jsonl`, `.ndjson` or `.json` (an object a line), `.csv` or `.tsv` (with
            a header), `.parquet`; the first ones plain or with `.gz`, `.bz2`, `.xz` or `.zst` behind.
        fields: those that are wanted; Parquet reads no others.

    Raises:
        CorpusError: if the file is absent, of an unknown kind, breaks off, or has a line of more than 64 MiB.
    """
    kind, packing = kind_of(path)
    if not path.is_file():
        raise CorpusError(f"{path}: no such file; check the path")
    try:
        if kind == ".parquet":
            yield from _parquet(path, fields)
            return
        with _OPENERS.get(packing, open)(path, "rb") as stream:
            yield from _separated(stream, path, kind) if kind in (".csv", ".tsv") else _json_lines(stream, path)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise CorpusError(f"{path}: cannot be read ({reason}); get a whole copy of the file") from error


def kind_of(path: Path) -> tuple[str, str]:
    """What a file holds and how it is packed, by its suffixes.

    Raises:
        CorpusError: if it is nothing that `read_rows` reads.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packing = suffixes.pop() if suffixes and suffixes[-1] in _OPENERS else ""
    kind = suffixes[-1] if suffixes else ""
    if kind not in _KINDS or (kind == ".parquet" and packing):
        known = f"{', '.join(_KINDS)}, all but .parquet also with {', '.join(_OPENERS)} behind"
        raise CorpusError(f"{path}: the suffix names no kind of file that can be read; give one of {known}")
    return kind, packing


def _lines(stream: IO[AnyStr], path: Path) -> Iterator[AnyStr]:
    """The lines of a file, each up to the greatest length: a small packed file can hold one that fills the memory.

    Raises:
        CorpusError: if one is longer.
    """
    number = 0
    while line := stream.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise CorpusError(
                f"{path}:{number}: a line of more than {LONGEST_LINE >> 20} MiB, longer than any document; "
                "check what the file holds, or split the line"
            )
        yield line


def _json_lines(stream: IO[bytes], path: Path) -> Iterator[tuple[int, dict[str, Any] | BadRecord]]:
    for number, line in enumerate(_lines(stream, path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError as error:
            yield number, _not_utf8(f"{path}:{number}", line[error.start])
        except (ValueError, RecursionError) as error:  # no JSON, or a number of more digits than Python reads
            yield number, BadRecord(f"{path}:{number}", f"broken JSON ({error})", MEND_OR_SKIP)
        else:
            if isinstance(row, dict):
                yield number, row
            else:
                problem = f"a JSON {type(row).__name__}, not an object with fields"
                yield number, BadRecord(f"{path}:{number}", problem, "write one object a line")


def _separated(stream: IO[bytes], path: Path, kind: str) -> Iterator[tuple[int, dict[str, Any] | BadRecord]]:
    csv.field_size_limit(LONGEST_LINE)  # the default is shorter than a book
    # Bytes that are not UTF-8 come through as lone surrogates, so that the row they are in can be named.
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    rows = csv.reader(_lines(text, path), delimiter="\t" if kind == ".tsv" else ",", strict=True)
    header: list[str] | None = None
    while True:
        start = rows.line_num + 1
        where = f"{path}:{start}"
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield start, BadRecord(where, f"broken CSV ({error}){_reach(start, rows)}", MEND_OR_SKIP)
            continue
        if row is None:
            return
        if header is None:
            header = row
        elif foreign := next((c for text in row for c in text if "\udc80" <= c <= "\udcff"), None):
            yield start, _not_utf8(where, ord(foreign) - 0xDC00, _reach(start, rows))
        elif row and len(row) != len(header):
            problem = f"{len(row)} fields where the header has {len(header)}{_reach(start, rows)}"
            yield start, BadRecord(where, problem, MEND_OR_SKIP)
        elif row:
            yield start, dict(zip(header, row))


def _reach(start: int, rows: Any) -> str:
    """The last line of a row of CSV that takes several: an open quotation mark takes in records that follow."""
    return f", up to line {rows.line_num}" if rows.line_num > start else ""


def _parquet(path: Path, fields: list[str]) -> Iterator[tuple[int, dict[str, Any] | BadRecord]]:
    number = 0
    with pq.ParquetFile(path) as file:
        columns = [name for name in file.schema_arrow.names if name in fields]
        missing = dict.fromkeys(name for name in file.schema_arrow.names if name not in fields)
        for batch in file.iter_batches(batch_size=256, columns=columns or None):
            for row in _parquet_rows(batch):
                number += 1
                if isinstance(row, UnicodeDecodeError):
                    yield number, _not_utf8(f"{path}:{number}", row.object[row.start])
                else:
                    yield number, row if len(columns) == len(fields) else row | missing


def _parquet_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | UnicodeDecodeError]:
    """The rows of a batch; the error in the place of one with text that is not UTF-8, which Arrow does not check."""
    try:
        yield from batch.to_pylist()
        return
    except UnicodeDecodeError:
        pass  # row by row, to know which
    for index in range(len(batch)):
        try:
            yield from batch.slice(index, 1).to_pylist()
        except UnicodeDecodeError as error:
            yield error


def _not_utf8(where: str, byte: int, reach: str = "") -> BadRecord:
    problem = f"not UTF-8 (byte 0x{byte:02x}){reach}"
    encoding = "utf-16" if byte in (0xFE, 0xFF) else "latin1"  # such bytes open a file of UTF-16
    return BadRecord(where, problem, f"convert the file (iconv -f {encoding} -t utf-8), {OR_SKIP}")
