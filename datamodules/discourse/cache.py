"""Content-addressed cache of discourse parses in a folder: concurrent writers, atomic writes, verified reads.

    manifest.json                         format and version of the folder
    parses-RANK-NAME-DIGEST.safetensors   a shard: the tensors of some documents, with a manifest in its header

There is no central index: every writer adds its own shards, readers list all shards, and content is verified by
digests (`shards.py`). Documents are read from a memory map, so that loading one reads only its own bytes.
"""

import json
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from datamodules.discourse import shards
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.discourse.shards import FORMAT, NAME, VERSION, WRITING, BrokenShard, Shard
from datamodules.documents import UserError
from datamodules.text.hashing import text_digest
from datamodules.text.lines import load_json


class MissingParse(UserError):
    """Raised for a document whose parse is not in the cache."""


def parse_key(request: ParseRequest, fingerprint: str, rows: str, band: int) -> str:
    """Return the cache key of a parse: SHA-256 of everything that it depends on.

    These are the text, its sentences, paragraphs and EDUs, the parser (`fingerprint`), its settings (half-width
    `band`; `rows`: EDUs with probability, see `tree_ldd`) and the cache version, but not the id of the document.
    """
    inputs = [VERSION, fingerprint, rows, band, request.sentences, request.paragraphs, request.edus, request.text]
    return text_digest(json.dumps(inputs))


class ParseCache:
    """Cache of discourse parses by `parse_key`, in shards: files of many parses in a folder, which may not exist yet.

    Raises:
        UserError: if the folder is not a cache of parses, or has another version of the format.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._shards: dict[Path, Shard] = {}  # intact shards
        self._broken: dict[Path, str] = {}  # damaged shards, with the reason
        self._shards_of: dict[str, list[Path]] = {}  # key of a parse -> shards; several may contain it
        self._verified: set[tuple[Path, str]] = set()  # (shard, key) of documents verified in this process
        self._check_manifest()
        self.refresh()

    def __reduce__(self) -> tuple[type[Self], tuple[Path]]:
        return type(self), (self.folder,)  # other processes open the files themselves

    def __len__(self) -> int:
        return len(self._shards_of)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys of the parses, sorted."""
        return iter(sorted(self._shards_of))

    def __contains__(self, key: str) -> bool:
        return key in self._shards_of

    @property
    def nbytes(self) -> int:
        """Size of the shards on disk."""
        return sum(path.stat().st_size for path in self._shards)

    def refresh(self) -> None:
        """Update the list of shards, which other processes may have written or removed; warn of damaged headers."""
        paths = set(self.folder.glob("*.safetensors"))
        for path in self._shards.keys() - paths:
            self._forget(path)
        self._broken = {path: reason for path, reason in self._broken.items() if path in paths}  # still there
        for path in sorted(paths - self._shards.keys() - self._broken.keys()):  # sorted: all read the same copy
            try:
                shard = self._shards[path] = shards.read_header(path)
            except FileNotFoundError:  # another process removed it
                continue
            except (BrokenShard, OSError) as error:
                self._ignore(path, str(error))
                continue
            for key in shard.documents:
                self._shards_of.setdefault(key, []).append(path)

    def size(self, key: str) -> int:
        """Return the number of EDUs of a cached parse, from the header of its shard."""
        shard = self._shards[self._shards_of[key][0]]
        _, shape, _ = shard.documents[key].tensors["edus"]  # (type, shape [E, 2], offset in the file)
        return shape[0]

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Return the keys whose parse is missing or damaged, each once, in the order of `keys`.

        Every parse is read and verified (about one second per gigabyte).
        """
        self.refresh()
        keys = list(dict.fromkeys(keys))
        num_damaged = None
        # A damaged parse removes its shard, even with parses that this loop found intact: repeat until none is removed.
        while num_damaged != len(self._broken):
            num_damaged = len(self._broken)
            for key in keys:
                self._find(key)  # removes damaged shards from the list
        return [key for key in keys if key not in self]

    def get(self, key: str, id: str | None = None) -> DiscourseParse:
        """Return a parse; its tensors are a private memory map, which loads only the pages that are accessed.

        Its id becomes `id`; by default it is that of the parsed document, which may be another with the same text.

        Raises:
            MissingParse: if the parse is missing or damaged.
        """
        if key not in self._shards_of:
            self.refresh()  # another process may have written it in the meantime
        parse = self._find(key)
        if parse is None:
            name = f"document {id!r}" if id is not None else f"key {key[:12]}"
            raise MissingParse(f"{self.folder}: no parse of {name}; run `precis parse` with this folder as --out")
        return parse if id is None else replace(parse, id=id)

    def _find(self, key: str) -> DiscourseParse | None:
        """Return the first intact copy of a parse, None if there is none; ignore the damaged shards before it."""
        paths = list(self._shards_of.get(key, []))  # copied, because `_ignore` removes paths
        return next(filter(None, (self._read_parse(path, key) for path in paths)), None)

    def _read_parse(self, path: Path, key: str) -> DiscourseParse | None:
        """Return a parse of a shard, verified once per process; None, and ignore the shard, if it is damaged."""
        shard = self._shards[path]
        try:
            parse = shard.read(key)
        except (OSError, RuntimeError) as error:  # the file was removed or truncated in the meantime
            self._ignore(path, " ".join(str(error).split()))  # in one line
            return None
        if (path, key) not in self._verified and not shard.is_intact(key, parse):
            self._ignore(path, f"document {parse.id!r} differs from what was written")
            return None
        self._verified.add((path, key))
        return parse

    def _ignore(self, path: Path, reason: str) -> None:
        """Ignore a damaged shard with all its documents, since damage in one place suggests more elsewhere."""
        if path in self._shards:  # not listed if its header is damaged
            self._forget(path)
        self._broken[path] = reason
        documents = "its documents count as missing and are parsed again by `precis parse`"
        warnings.warn(f"{path}: not used: {reason}; {documents}", stacklevel=4)  # the caller of `ParseCache(folder)`

    def _forget(self, path: Path) -> None:
        """Remove a shard from the list, and the keys that no other shard contains."""
        for key in self._shards.pop(path).documents:
            self._shards_of[key].remove(path)
            if not self._shards_of[key]:
                del self._shards_of[key]

    def _check_manifest(self) -> None:
        """Raise UserError if the folder exists but is not a cache of parses of this version."""
        path = self.folder / "manifest.json"
        if self.folder.exists() and not self.folder.is_dir():
            raise UserError(f"{self.folder}: a file; name a folder for parses")
        if not path.exists():  # a new cache; `prepare` writes the manifest
            return
        try:
            manifest = load_json(path.read_text(encoding="utf-8"))
            format_name, version = manifest["format"], manifest["version"]
        except (ValueError, KeyError, TypeError):  # not JSON, without these keys, or not an object
            format_name = version = None
        if format_name != FORMAT:
            raise UserError(f"{path}: not that of a folder of discourse parses; choose another folder")
        if version != VERSION:
            versions = f"parses of format version {version}, and this is version {VERSION}"
            raise UserError(f"{self.folder}: {versions}; choose another folder, or remove it to parse again")

    def prepare(self) -> None:
        """Prepare the folder for a writer: write the manifest, rename damaged shards, remove leftover files."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"format": FORMAT, "version": VERSION}, indent=1) + "\n"
            if not (self.folder / "manifest.json").exists():
                shards.durable_write(self.folder / "manifest.json", text.encode())
            for path in self._broken:
                if NAME.fullmatch(path.name):  # a shard, not another program's *.safetensors, which `refresh` lists too
                    with suppress(FileNotFoundError):  # another process renamed it first
                        path.rename(path.with_name(f"{path.name}.broken"))
            # Write a test file, because permissions do not tell whether the disk is full or read-only.
            # `durable_write` also removes the temporary files of killed writers, whose names begin with WRITING.
            shards.durable_write(self.folder / f"{WRITING}try", b"")
            (self.folder / f"{WRITING}try").unlink(missing_ok=True)
        except OSError as error:
            raise shards.cannot_write(self.folder, error) from None


class ShardWriter(AbstractContextManager):
    """Buffered writer of parses, which writes each shard atomically.

    A shard is written when the buffer has `documents` parses or `megabytes`, or when `add` finds its oldest parse
    `seconds` old. A killed process loses only the parses since the last shard. Use the writer in a `with` block, whose
    end writes the buffer, also after an exception. Damaged shards are renamed to `*.broken`.

    Raises:
        UserError: if the folder cannot be written to.
    """

    def __init__(
        self, cache: ParseCache, rank: int = 0, documents: int = 1000, megabytes: float = 64, seconds: float = 60
    ) -> None:
        self.cache = cache
        self.rank = rank  # names of shards tell the rank that wrote them
        self.documents = documents
        self.megabytes = megabytes
        self.seconds = seconds
        self.waiting: dict[str, DiscourseParse] = {}  # the buffer, by key of the parse (`ParseCache`)
        self._size = 0  # bytes in the buffer
        self._buffered_since = 0.0  # time of the oldest parse in the buffer
        cache.prepare()  # creates the folder, renames damaged shards, and tests whether a file can be written

    def __exit__(self, *_: object) -> None:
        self.flush()

    def add(self, key: str, parse: DiscourseParse) -> None:
        """Add a parse; write a shard if the buffer then has `documents` parses or `megabytes`, or is `seconds` old.

        Raises:
            UserError: if the shard cannot be written.
        """
        if not self.waiting:
            self._buffered_since = time.monotonic()
        self.waiting[key] = parse
        self._size += parse.nbytes
        is_old = time.monotonic() - self._buffered_since >= self.seconds
        is_full = len(self.waiting) >= self.documents or self._size >= self.megabytes * 1e6  # bytes
        if is_old or is_full:
            self.flush()

    def flush(self) -> None:
        """Write the buffer as a shard, unless it is empty.

        Raises:
            UserError: if the shard cannot be written; the buffer is kept.
        """
        if not self.waiting:
            return
        shards.write_shard(self.cache.folder, self.rank, self.waiting)
        self.waiting = {}
        self._size = 0
