"""Readers of JSON Lines, Parquet and CSV files, plain or compressed."""

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, AnyStr

from datamodules.documents import FIX_OR_SKIP, OR_SKIP, BadRecord, UserError
from datamodules.text.lines import load_json

Row = dict[str, Any] | BadRecord

LONGEST_LINE = 64 << 20  # bytes; about ten times the longest books
LONGEST_ARRAY = 512 << 20  # bytes; a shard of PreSumm's 2,000 articles has about 15 MiB
LARGEST_RATIO = 100  # of unpacked to packed bytes of a large Parquet column; text has about 5
_LIST = re.compile(r"""\[[\[\s]*(['"].*['"][\]\s]*)?\]""", re.DOTALL)  # of strings, as JSON, Python or NumPy write it
_ROWS_AT_ONCE = 4  # of Parquet, each of which may be as long as the longest line
_TYPES = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv")


def _open_zstd(path: Path, mode: str) -> IO[bytes]:  # same arguments as `gzip.open` etc.; `mode` is always "rb"
    import pyarrow as pa

    return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))


_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _open_zstd}


def read_rows(path: Path, fields: list[str]) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a file, bad ones as `BadRecord`, with line numbers (row numbers in Parquet and arrays) from 1.

    Args:
        path: file whose suffix tells its type: `.jsonl`, `.ndjson` or `.json` (one object per line, or in `.json` one
            array), `.csv`, `.tsv` (with header), `.parquet`; all but Parquet also with `.gz`, `.bz2`, `.xz` or `.zst`.
        fields: names of the fields to read; others are not read from Parquet.

    Raises:
        UserError: if the file is missing, truncated or of unknown type, or has a line or row of more than 64 MiB.
    """
    kind, compression = file_type(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; check the path")
    try:
        if kind == ".parquet":
            yield from _parquet_rows(path, fields)
            return
        with _OPENERS.get(compression, open)(path, "rb") as stream:
            if kind in (".csv", ".tsv"):
                yield from _csv_rows(stream, path, kind, fields)
            elif kind == ".json" and stream.peek(1024).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
                yield from _json_array(stream, path)
            else:
                yield from _json_lines(stream, path)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, *_arrow_errors()) as error:  # of damaged or incomplete files
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: cannot be read ({reason}); get a complete copy of the file") from error


def _arrow_errors() -> tuple[type[Exception], ...]:
    """Return the errors of pyarrow; an empty tuple if it is not imported, since then it cannot raise one."""
    pyarrow = sys.modules.get("pyarrow")
    return (pyarrow.ArrowException,) if pyarrow else ()


def file_type(path: Path) -> tuple[str, str]:
    """Return the suffix of a file's type, such as ".csv", and the suffix of its compression, such as ".gz", or "".

    Raises:
        UserError: if `read_rows` does not read this type.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in _OPENERS else ""
    kind = suffixes[-1] if suffixes else ""
    if kind not in _TYPES or (kind == ".parquet" and compression):
        types = f"{', '.join(_TYPES)}; all but .parquet may be followed by {', '.join(_OPENERS)}"
        raise UserError(f"{path}: unknown type of file; the suffix must be one of {types}")
    return kind, compression


def _lines(stream: IO[AnyStr], path: Path) -> Iterator[AnyStr]:
    """Yield the lines of a file of bytes or text; raise a `UserError` for one of more than 64 MiB."""
    number = 0
    while line := stream.readline(LONGEST_LINE + 1):  # keeps at most this many bytes or characters in memory
        number += 1
        if len(line) > LONGEST_LINE:  # a small compressed file could otherwise fill the memory
            raise _too_long(f"{path}:{number}", "line")
        yield line


def _too_long(where: str, kind: str) -> UserError:
    problem = f"a {kind} of more than {LONGEST_LINE >> 20} MiB, longer than any document"
    return UserError(f"{where}: {problem}; check what the file holds, or split the {kind}")


def _json_lines(stream: IO[bytes], path: Path) -> Iterator[tuple[int, Row]]:
    """Yield line number and object of each line that is not empty, or a `BadRecord` for an invalid line."""
    for number, line in enumerate(_lines(stream, path), start=1):
        line = line.removeprefix(codecs.BOM_UTF8)  # also within files that were concatenated
        if not line.strip():
            continue
        try:
            row = _checked_object(load_json(line.decode("utf-8")), f"{path}:{number}", "write one object per line")
        except UnicodeDecodeError as error:
            row = _not_utf8(f"{path}:{number}", line[error.start])
        except ValueError as error:  # invalid JSON, or a number with more digits than Python reads
            row = BadRecord(f"{path}:{number}", f"broken JSON ({error})", f"fix it (one object per line), {OR_SKIP}")
        yield number, row


def _json_array(stream: IO[bytes], path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the objects of one JSON array, numbered from 1."""
    content = stream.read(LONGEST_ARRAY + 1)  # an array is read at once
    if len(content) > LONGEST_ARRAY:
        raise UserError(f"{path}: an array of more than {LONGEST_ARRAY >> 20} MiB; write one object per line instead")
    try:
        rows = load_json(content.decode("utf-8-sig"))
    except ValueError as error:
        raise UserError(f"{path}: broken JSON ({error}); correct it, or get a complete copy of the file") from None
    for number, row in enumerate(rows, start=1):
        yield number, _checked_object(row, f"{path}:{number}", FIX_OR_SKIP)


def _checked_object(row: Any, where: str, remedy: str) -> Row:
    if isinstance(row, dict):
        return row
    return BadRecord(where, f"a JSON {type(row).__name__}, not an object with fields", remedy)


def _csv_rows(stream: IO[bytes], path: Path, kind: str, fields: list[str]) -> Iterator[tuple[int, Row]]:
    """Yield (number of the first line, values or `BadRecord`) of each row of a CSV or TSV file; rows may span lines."""
    csv.field_size_limit(LONGEST_LINE)  # the default is shorter than a book
    # Invalid UTF-8 is decoded to lone surrogates, so that messages can name the row.
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    lines = _lines(text, path)
    first = next(lines, "")  # with the header, outside whose quoted names is the separator; some programs write `;`
    delimiter = max("\t" if kind == ".tsv" else ",;\t", key=re.sub('"[^"]*"', "", first).count)
    rows = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    while True:
        start = rows.line_num + 1
        where = f"{path}:{start}"
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield start, BadRecord(where, f"broken CSV ({error}){_up_to_line(start, rows)}", FIX_OR_SKIP)
            continue
        if row is None:
            return
        if surrogate := next((c for text in row for c in text if "\udc80" <= c <= "\udcff"), None):
            bad = _not_utf8(where, ord(surrogate) - 0xDC00, _up_to_line(start, rows))  # byte b is U+DC00 + b
            if header is None:
                raise UserError(f"{where}: {bad.problem}; {bad.remedy.removesuffix(f', {OR_SKIP}')}")
            yield start, bad
        elif header is None:
            header = [name.strip() for name in row]
            if twice := next((name for name in fields if header.count(name) > 1), None):
                raise UserError(f"{path}: two columns are named {twice!r}; rename one of them")
        elif row and len(row) != len(header):
            problem = f"{len(row)} fields where the header has {len(header)}{_up_to_line(start, rows)}"
            yield start, BadRecord(where, problem, FIX_OR_SKIP)
        elif name := next((key for key, text in zip(header, row) if key in fields and _LIST.fullmatch(text)), None):
            problem = f"field {name!r} is a list, which CSV cannot hold, unlike JSON Lines and Parquet"
            yield start, BadRecord(where, problem, FIX_OR_SKIP)
        elif row:  # not an empty line
            yield start, dict(zip(header, row))


def _up_to_line(start: int, rows: Any) -> str:
    """Return ", up to line N" if a CSV row spans lines, for messages: an open quotation mark swallows lines."""
    return f", up to line {rows.line_num}" if rows.line_num > start else ""


def _parquet_rows(path: Path, fields: list[str]) -> Iterator[tuple[int, Row]]:
    """Yield number (from 1) and `fields` of each row; if the file lacks one, also other columns, None, for messages."""
    import pyarrow.parquet as pq  # here, because most commands read no such file

    number = 0
    with pq.ParquetFile(path) as file:
        columns = [name for name in file.schema_arrow.names if name in fields]
        if len(columns) > len(set(columns)):  # only one of two columns with a name would be in the row
            raise UserError(f"{path}: two columns have the same name ({', '.join(columns)}); rename one of them")
        unread = dict.fromkeys(name for name in file.schema_arrow.names if name not in fields)  # other columns, None
        for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                # Arrow unpacks whole pages, so a small file could fill the memory.
                if column.total_uncompressed_size > max(LONGEST_LINE, LARGEST_RATIO * column.total_compressed_size):
                    problem = f"unpacks to more than {LARGEST_RATIO} times its size, as no text does"
                    raise UserError(f"{path}: {problem}; check what the file holds")
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns or None):  # None reads all
            for start in range(len(batch)):
                row = batch.slice(start, 1)  # a batch of one row
                number += 1
                if row.nbytes > LONGEST_LINE:
                    raise _too_long(f"{path}:{number}", "row")
                try:
                    (values,) = row.to_pylist()
                except UnicodeDecodeError as error:  # Arrow reads strings without checking that they are UTF-8
                    yield number, _not_utf8(f"{path}:{number}", error.object[error.start])
                else:
                    yield number, values if len(columns) == len(fields) else values | unread  # messages list `unread`


def _not_utf8(where: str, byte: int, until: str = "") -> BadRecord:
    """Return the error of a record with an invalid byte; `until` may tell where it ends, see `_up_to_line`."""
    problem = f"not UTF-8 (byte 0x{byte:02x}){until}"
    encoding = "utf-16" if byte in (0xFE, 0xFF) else "latin1"  # FE and FF are the byte order mark of UTF-16
    return BadRecord(where, problem, f"convert the file (iconv -f {encoding} -t utf-8), {OR_SKIP}")
