"""Shards of discourse parses: files of `safetensors` whose names carry the digest of their headers.

The header holds the digest of every document in turn, so that no byte need be used unchecked.
"""

import errno
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import torch
import xxhash
from safetensors.torch import save
from torch import Tensor

from datamodules.discourse.parses import DiscourseParse
from datamodules.documents import CorpusError

# Raised whenever what is stored, or what a key covers, changes its meaning.
VERSION = 2
FORMAT = "precis discourse parses"
WRITING = ".writing-"  # beginning of the names of files that are not whole yet
_NAME = re.compile(r"parses-\d+-[0-9a-f]+-([0-9a-f]{32})\.safetensors")
_FIELDS = ("edus", "tree", "ldd", "gamma")
_DTYPES = {"F32": torch.float32, "I32": torch.int32, "U8": torch.uint8}
_FULL = (errno.ENOSPC, errno.EDQUOT)


class BrokenShard(ValueError):
    """A file that is no shard, or not the one that was written."""


class Entry(NamedTuple):
    """A document in a shard."""

    id: str
    text_digest: str
    relations: tuple[str, ...]
    rows: str
    digest: str
    tensors: dict[str, tuple[torch.dtype, tuple[int, ...], int]]  # field -> type, shape, first byte in the file


class Shard(NamedTuple):
    """A shard's path, size, and its documents by key."""

    path: Path
    size: int
    documents: dict[str, Entry]

    def read(self, key: str) -> DiscourseParse:
        """A document, its tensors in a private memory map of which only the pages that are read are loaded.

        Raises:
            OSError, RuntimeError: if the file is gone or shorter than it was.
        """
        entry = self.documents[key]
        mapped = torch.from_file(str(self.path), shared=False, size=self.size, dtype=torch.uint8)
        found = {}
        for field, (dtype, shape, first) in entry.tensors.items():
            count = torch.Size(shape).numel() * dtype.itemsize
            found[field] = mapped[first : first + count].view(dtype).view(shape)
        return DiscourseParse(entry.id, entry.text_digest, relations=entry.relations, rows=entry.rows, **found)

    def sound(self, key: str, parse: DiscourseParse) -> bool:
        """Whether a document that was read is what was written."""
        return _digest(getattr(parse, field) for field in _FIELDS) == self.documents[key].digest


def is_shard_name(name: str) -> bool:
    """Whether a file has the name of a shard, and so was written by us."""
    return _NAME.fullmatch(name) is not None


def write_shard(folder: Path, rank: int, parses: dict[str, DiscourseParse]) -> Path:
    """Writes parses by key as one shard, whole or not at all.

    Raises:
        CorpusError: if it cannot be written.
    """
    content = _content(parses)
    digest = xxhash.xxh3_128(content[: _header_end(content)]).hexdigest()
    path = folder / f"parses-{rank:05d}-{uuid4().hex[:12]}-{digest}.safetensors"
    try:
        write_whole(path, content)
    except OSError as error:
        raise cannot_write(folder, error) from None
    return path


def _content(parses: dict[str, DiscourseParse]) -> bytes:
    """The bytes of a shard."""
    kinds = list(dict.fromkeys(parse.relations for parse in parses.values()))
    tensors, documents = {}, {}
    for number, (key, parse) in enumerate(parses.items()):
        own = {field: getattr(parse, field).contiguous() for field in _FIELDS}
        tensors |= {f"{number}.{field}": tensor for field, tensor in own.items()}
        relations = kinds.index(parse.relations)
        documents[key] = [number, parse.id, parse.text_digest, relations, parse.rows, _digest(own.values())]
    said = {"version": VERSION, "relations": kinds, "documents": documents}
    return save(tensors, {"format": FORMAT, "parses": json.dumps(said)})


def _digest(tensors: Iterable[Tensor]) -> str:
    """Digest of tensors: 128 bits of xxHash, ten times as fast as SHA-256, against decay and not against malice."""
    digest = xxhash.xxh3_128()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.numpy())
    return digest.hexdigest()


def _header_end(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def read_header(path: Path) -> Shard:
    """What is in a shard; of its documents nothing is read.

    Raises:
        BrokenShard: if its name or its header is not that of a whole shard.
    """
    name = _NAME.fullmatch(path.name)
    if name is None:
        raise BrokenShard("a foreign file, its name is not that of a shard")
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        end = _header_end(head)
        if len(head) < 8 or end > size:
            raise BrokenShard("cut off within its header")
        head += file.read(end - 8)
    if xxhash.xxh3_128(head).hexdigest() != name[1]:
        raise BrokenShard("its header does not have the digest in its name")
    header = json.loads(head[8:])  # as it was written, from here on
    said = json.loads(header["__metadata__"]["parses"])
    if said["version"] != VERSION:
        raise BrokenShard(f"written in format version {said['version']}, this is version {VERSION}")
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    if end + max(ends, default=0) != size:
        raise BrokenShard("cut off, or longer than it was")
    relations = [tuple(names) for names in said["relations"]]
    documents = {}
    for key, (number, id, text, kind, rows, digest) in said["documents"].items():
        found = {field: header[f"{number}.{field}"] for field in _FIELDS}
        tensors = {
            field: (_DTYPES[entry["dtype"]], tuple(entry["shape"]), end + entry["data_offsets"][0])
            for field, entry in found.items()
        }
        documents[key] = Entry(id, text, relations[kind], rows, digest, tensors)
    return Shard(path, size, documents)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that appears under its name with all its content, and on disk, or not at all."""
    building = path.with_name(f"{WRITING}{uuid4().hex}")
    try:
        with building.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(building, path)
    except BaseException:
        building.unlink(missing_ok=True)
        raise
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)  # the new name, too
    finally:
        os.close(handle)


def cannot_write(folder: Path, error: OSError) -> CorpusError:
    """What to say of a folder that cannot be written to."""
    remedy = "free some space" if error.errno in _FULL else "check the path and its permissions"
    reason = error.strerror or error
    return CorpusError(f"{folder}: parses cannot be written ({reason}); {remedy}, or name another folder")
