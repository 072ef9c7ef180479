"""Shards of parses: `safetensors` files with the digest of their header in the name, and digests of documents in it."""

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

from datamodules.atomic_write import FULL, builders_lock
from datamodules.discourse.parses import DiscourseParse
from datamodules.documents import UserError

# Increased whenever the stored data or the inputs of a key change their meaning.
VERSION = 2
FORMAT = "precis discourse parses"
WRITING = ".writing-"  # prefix of the names of incomplete files
NAME = re.compile(r"parses-\d+-[0-9a-f]+-([0-9a-f]{32})\.safetensors")
_FIELDS = ("edus", "tree", "ldd", "gamma")
_DTYPES = {"F32": torch.float32, "I32": torch.int32, "U8": torch.uint8}


class BrokenShard(ValueError):
    """A file that is not a shard, or a shard that is damaged."""


class Entry(NamedTuple):
    """Header entry of one document of a shard."""

    id: str
    text_digest: str
    relations: tuple[str, ...]
    rows: str  # `Parser.rows`, `side` or `nucleus`: which EDUs carry probability
    digest: str  # of the tensors
    tensors: dict[str, tuple[torch.dtype, tuple[int, ...], int]]  # field -> type, shape, first byte in the file


class Shard(NamedTuple):
    """A shard, a file with parses of many documents: its path, size in bytes, and entries by cache key."""

    path: Path
    size: int
    documents: dict[str, Entry]

    def read(self, key: str) -> DiscourseParse:
        """Read one document; its tensors are a memory map, which loads pages on access and keeps changes private.

        Raises:
            OSError, RuntimeError: if the file was removed or truncated.
        """
        entry = self.documents[key]  # its `rows`, `side` or `nucleus`: which EDUs carry probability
        mapped = torch.from_file(str(self.path), shared=False, size=self.size, dtype=torch.uint8)
        tensors = {}
        for field, (dtype, shape, first_byte) in entry.tensors.items():  # `view` needs alignment: wide types are first
            num_bytes = torch.Size(shape).numel() * dtype.itemsize
            tensors[field] = mapped[first_byte : first_byte + num_bytes].view(dtype).view(shape)
        return DiscourseParse(entry.id, entry.text_digest, relations=entry.relations, rows=entry.rows, **tensors)

    def is_intact(self, key: str, parse: DiscourseParse) -> bool:
        """Return whether the tensors of a parse still have the digest with which they were written."""
        return _digest(getattr(parse, field) for field in _FIELDS) == self.documents[key].digest


def write_shard(folder: Path, rank: int, parses: dict[str, DiscourseParse]) -> None:
    """Write parses by key as one shard of a rank, atomically, with the header's digest in the name.

    Raises:
        UserError: if it cannot be written.
    """
    content = _content(parses)
    digest = xxhash.xxh3_128(content[: _header_end(content)]).hexdigest()  # the header has digests of tensors
    # The random part separates shards that several processes of one rank, in different runs, write at once.
    path = folder / f"parses-{rank:05d}-{uuid4().hex[:12]}-{digest}.safetensors"
    try:
        durable_write(path, content)
    except OSError as error:
        raise cannot_write(folder, error) from None


def _content(parses: dict[str, DiscourseParse]) -> bytes:
    """Return a shard's bytes: tensors such as `0.ldd` (labeled discourse distribution of document 0) and a manifest."""
    inventories = list(dict.fromkeys(parse.relations for parse in parses.values()))  # distinct relation names
    tensors: dict[str, Tensor] = {}
    documents: dict[str, list] = {}  # key -> number in names of tensors, then values as in `Entry`
    for number, (key, parse) in enumerate(parses.items()):
        fields = {field: getattr(parse, field).contiguous() for field in _FIELDS}
        tensors |= {f"{number}.{field}": tensor for field, tensor in fields.items()}
        inventory_id = inventories.index(parse.relations)  # instead of the names; `rows`: which EDUs carry probability
        documents[key] = [number, parse.id, parse.text_digest, inventory_id, parse.rows, _digest(fields.values())]
    manifest = {"version": VERSION, "relations": inventories, "documents": documents}
    return save(tensors, {"format": FORMAT, "parses": json.dumps(manifest)})  # the second argument is for the header


def _digest(tensors: Iterable[Tensor]) -> str:
    """Return the 128-bit xxHash of tensors: ten times as fast as SHA-256; detects damage, not manipulation."""
    digest = xxhash.xxh3_128()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.numpy())
    return digest.hexdigest()


def _header_end(content: bytes) -> int:
    """Return the size of the header of a `safetensors` file, including the first 8 bytes, which give its length."""
    return 8 + int.from_bytes(content[:8], "little")


def read_header(path: Path) -> Shard:
    """Read and verify the header of a shard, without the tensors.

    Raises:
        BrokenShard: if its name, header or size is not that of a complete shard.
    """
    name_match = NAME.fullmatch(path.name)
    if name_match is None:
        raise BrokenShard("a foreign file, its name is not that of a shard")
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)  # a `safetensors` file begins with the length of its header in 8 bytes
        end = _header_end(head)  # offset of the first tensor; meaningless if `head` is short, which is checked next
        if len(head) < 8 or end > size:
            raise BrokenShard("truncated within its header")
        head += file.read(end - 8)
    if xxhash.xxh3_128(head).hexdigest() != name_match[1]:  # the digest in the name
        raise BrokenShard("its header does not have the digest in its name")
    header = json.loads(head[8:])  # as it was written, because its digest is right: no further checks are needed
    manifest = json.loads(header.pop("__metadata__")["parses"])
    if manifest["version"] != VERSION:
        raise BrokenShard(f"written in format version {manifest['version']}, this is version {VERSION}")
    tensor_ends = [tensor["data_offsets"][1] for tensor in header.values()]  # counted from the end of the header
    if end + max(tensor_ends, default=0) != size:
        raise BrokenShard("truncated, or longer than written")
    inventories = [tuple(names) for names in manifest["relations"]]  # distinct lists of relation names of parsers
    documents = {}
    for key, (number, id, text_digest, inventory_id, rows, digest) in manifest["documents"].items():  # see `_content`
        tensors = {}  # field -> type, shape, first byte in the file
        for field in _FIELDS:
            tensor = header[f"{number}.{field}"]
            tensors[field] = (_DTYPES[tensor["dtype"]], tuple(tensor["shape"]), end + tensor["data_offsets"][0])
        relations = inventories[inventory_id]  # and `rows`, `side` or `nucleus`: which EDUs carry probability
        documents[key] = Entry(id, text_digest, relations=relations, rows=rows, digest=digest, tensors=tensors)
    return Shard(path, size, documents)


def durable_write(path: Path, content: bytes) -> None:
    """Write a file atomically and durably: temporary name, sync to disk, rename, sync of the folder.

    After a crash or power failure, the file is complete or absent. Temporary files of killed writers are removed.
    """
    temporary = path.with_name(f"{WRITING}{uuid4().hex}")
    with builders_lock(path.parent, WRITING):  # shared by writers; if alone, this one removes files of killed ones
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # before the rename, which could otherwise reach the disk first
            os.replace(temporary, path)
        except BaseException:  # also KeyboardInterrupt
            temporary.unlink(missing_ok=True)
            raise
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)  # the new name is on disk only after the folder is synced
    finally:
        os.close(handle)


def cannot_write(folder: Path, error: OSError) -> UserError:
    """Return the error for the user if parses cannot be written, with a remedy that fits the cause."""
    remedy = "free some space" if error.errno in FULL else "check the path and its permissions"  # `FULL`: disk or quota
    reason = error.strerror or error  # errors that Python code raises may have no text of the system
    return UserError(f"{folder}: parses cannot be written ({reason}); {remedy}, or choose another folder")
