"""Sizes of the pages of Parquet files, from the pages' headers: Arrow unpacks a page as a whole, whatever its size.

The headers are structs of Thrift's compact protocol. What the file's footer says about sizes is not checked by Arrow.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow.parquet as pq

_UNPACKED, _PACKED = 2, 3  # numbers of the fields `uncompressed_page_size` and `compressed_page_size`


def page_sizes(path: Path, metadata: pq.FileMetaData, columns: list[str]) -> Iterator[tuple[int, int]]:
    """Yield bytes in the file and bytes in memory of each page of some columns.

    Raises:
        OSError: if a header is damaged.
    """
    with path.open("rb") as stream:
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for chunk in map(group.column, range(group.num_columns)):
                if chunk.path_in_schema.partition(".")[0] not in columns:
                    continue
                start = chunk.data_page_offset
                if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
                    start = chunk.dictionary_page_offset
                stream.seek(start)
                while stream.tell() < start + chunk.total_compressed_size:
                    header = _read_struct(stream)
                    packed, unpacked = header.get(_PACKED, -1), header.get(_UNPACKED, -1)
                    if packed < 0:
                        raise OSError("damaged header of a page")
                    yield packed, unpacked
                    stream.seek(packed, 1)


def _read_struct(stream: BinaryIO) -> dict[int, int]:
    """Return the integers of a struct by the number of their fields."""
    fields, number = {}, 0
    while head := _read_byte(stream):
        step, kind = divmod(head, 16)
        number = number + step if step else _read_integer(stream)
        if kind in (4, 5, 6):
            fields[number] = _read_integer(stream)
        elif kind == 8:  # text
            stream.seek(_read_varint(stream), 1)
        elif kind == 12:
            _read_struct(stream)
        elif kind not in (1, 2):  # a boolean has no further bytes
            raise OSError("damaged header of a page")
    return fields


def _read_integer(stream: BinaryIO) -> int:
    """Return an integer whose lowest bit is its sign."""
    value = _read_varint(stream)
    return (value >> 1) ^ -(value & 1)


def _read_varint(stream: BinaryIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = _read_byte(stream)
        value |= (byte & 127) << shift
        if byte < 128:
            return value
    raise OSError("damaged header of a page")


def _read_byte(stream: BinaryIO) -> int:
    if not (byte := stream.read(1)):
        raise OSError("truncated")
    return byte[0]
