"""A folder of discourse parses: content-addressed, written by many, whole or not at all, checked on reading.

    manifest.json                         what the folder is: format and version
    parses-RANK-NAME-DIGEST.safetensors   a shard: some documents' tensors, and in its header its own manifest

Nobody keeps a list of what is there: every writer adds shards of its own, readers see all there are, and what is in a
shard is checked by its digests (`shards.py`). Documents are read out of a memory map: a load touches its own bytes.
"""

import hashlib
import json
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.discourse.shards import (
    FORMAT,
    VERSION,
    WRITING,
    BrokenShard,
    Shard,
    cannot_write,
    is_shard_name,
    read_header,
    write_shard,
    write_whole,
)
from datamodules.documents import CorpusError

_LEFT_BEHIND = 3600  # seconds after which a file that is not whole has no writer any more


class MissingParse(CorpusError):
    """A document whose parse is not in the cache."""


def parse_key(request: ParseRequest, fingerprint: str, rows: str, band: int) -> str:
    """What a parse depends on, as a SHA-256: the text, its sentences, paragraphs and given EDUs, the parser, the
    settings of the LDD, and the cache's version. The document's id is not part of it.

    Args:
        request: the document.
        fingerprint: of the parser: its weights, its code, how it segments.
        rows: reading of the LDD.
        band: half-width that is to be stored.
    """
    given = [VERSION, fingerprint, rows, band, request.sentences, request.paragraphs, request.edus, request.text]
    return hashlib.sha256(json.dumps(given).encode()).hexdigest()


class ParseCache:
    """The parses in a folder.

    Args:
        folder: need not exist yet.

    Raises:
        CorpusError: if the folder is something else, or was written in another version of the format.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._shards: dict[Path, Shard] = {}
        self._broken: dict[Path, str] = {}
        self._where: dict[str, list[Path]] = {}
        self._sound: set[tuple[Path, str]] = set()  # documents whose digest was right in this process
        self._check_manifest()
        self.refresh()

    def __len__(self) -> int:
        return len(self._where)

    def __iter__(self) -> Iterator[str]:
        """Keys of the parses, sorted."""
        return iter(sorted(self._where))

    def __contains__(self, key: str) -> bool:
        return key in self._where

    @property
    def nbytes(self) -> int:
        """Size of the shards on disk."""
        return sum(path.stat().st_size for path in self._shards)

    @property
    def broken(self) -> dict[str, str]:
        """Names of the shards that are not used, each with the reason."""
        return {path.name: reason for path, reason in self._broken.items()}

    def refresh(self) -> None:
        """Looks for shards that others have written or removed since."""
        there = set(self.folder.glob("*.safetensors"))
        for path in [path for path in self._shards if path not in there]:
            self._forget(path)
        self._broken = {path: reason for path, reason in self._broken.items() if path in there}
        for path in sorted(there - self._shards.keys() - self._broken.keys()):
            try:
                shard = self._shards[path] = read_header(path)
            except FileNotFoundError:  # somebody was faster
                continue
            except (BrokenShard, OSError) as error:
                self._ignore(path, str(error))
                continue
            for key in shard.documents:
                self._where.setdefault(key, []).append(path)

    def size(self, key: str) -> int:
        """Number of EDUs of a parse that is there; of it nothing is read."""
        entry = self._shards[self._where[key][0]].documents[key]
        return entry.tensors["edus"][1][0]

    def missing(self, keys: Iterable[str], deep: bool = True) -> list[str]:
        """Which of some parses are not there, or cannot be used; each once, in order.

        Args:
            keys: see `parse_key`.
            deep: whether every document is read and checked (about a second a gigabyte), not only that it is there.
        """
        self.refresh()
        keys, broken = list(dict.fromkeys(keys)), None
        while deep and broken != len(self._broken):  # a shard that proves to be broken takes others along
            broken = len(self._broken)
            for key in keys:
                self._find(key)
        return [key for key in keys if key not in self]

    def get(self, key: str, id: str | None = None) -> DiscourseParse:
        """A parse, its tensors in a private memory map (pages that nobody reads are never loaded).

        Args:
            key: see `parse_key`.
            id: of the document; by default, of the one that was parsed, which may be another with the same text.

        Raises:
            MissingParse: if it is not there, or broken.
        """
        if key not in self._where:
            self.refresh()
        parse = self._find(key)
        if parse is None:
            name = f"document {id!r}" if id is not None else f"key {key[:12]}"
            raise MissingParse(f"{self.folder}: no parse of {name}; run `precis parse` with this folder as --out")
        return parse if id is None else replace(parse, id=id)

    def verify(self) -> dict[str, str]:
        """Reads and checks everything.

        Returns:
            Names of the shards that cannot be used, each with the reason.
        """
        self.refresh()
        self._sound.clear()
        for key in list(self._where):
            for path in list(self._where.get(key, [])):
                self._read(path, key)
        return self.broken

    def writer(self, rank: int = 0, **limits: float) -> "ShardWriter":
        """A writer; broken shards are put aside first (`.broken` behind their names).

        Args:
            rank: of the process, for people who look into the folder.
            limits: see `ShardWriter`.

        Raises:
            CorpusError: if the folder cannot be written to.
        """
        return ShardWriter(self, rank, **limits)

    # Finding and checking ----------------------------------------------------------------------------------------

    def _find(self, key: str) -> DiscourseParse | None:
        """A sound copy of a document."""
        for path in list(self._where.get(key, [])):
            if parse := self._read(path, key):
                return parse
        return None

    def _read(self, path: Path, key: str) -> DiscourseParse | None:
        """A document of a shard if it is what was written, which is looked at once a process."""
        if path not in self._shards:
            return None
        shard = self._shards[path]
        try:
            parse = shard.read(key)
        except (OSError, RuntimeError) as error:  # the file was removed or cut off meanwhile
            self._ignore(path, " ".join(str(error).split()))
            return None
        if (path, key) not in self._sound and not shard.sound(key, parse):
            self._ignore(path, f"document {parse.id!r} is not what was written")
            return None
        self._sound.add((path, key))
        return parse

    def _ignore(self, path: Path, reason: str) -> None:
        """Leaves a shard out, and all that is in it: what is wrong in one place may be in another."""
        self._forget(path)
        self._broken[path] = reason
        documents = "its documents count as missing and are parsed again by `precis parse`"
        warnings.warn(f"{path}: not used: {reason}; {documents}", stacklevel=4)

    def _forget(self, path: Path) -> None:
        shard = self._shards.pop(path, None)
        for key in shard.documents if shard else ():
            self._where[key].remove(path)
            if not self._where[key]:
                del self._where[key]

    # The folder --------------------------------------------------------------------------------------------------

    def _check_manifest(self) -> None:
        path = self.folder / "manifest.json"
        if self.folder.exists() and not self.folder.is_dir():
            raise CorpusError(f"{self.folder}: a file; name a folder for parses")
        if not path.exists():
            return
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            form, version = found["format"], found["version"]
        except (ValueError, KeyError, TypeError):
            form = version = None
        if form != FORMAT:
            raise CorpusError(f"{path}: not that of a folder of discourse parses; name another folder")
        if version != VERSION:
            wanted = f"parses of format version {version}, and this is version {VERSION}"
            raise CorpusError(f"{self.folder}: {wanted}; name another folder, or remove this one to parse again")

    def prepare(self) -> None:
        """Makes the folder ready for writers: manifest, no leftovers, broken shards put aside.

        Raises:
            CorpusError: if it cannot be written to.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"format": FORMAT, "version": VERSION}, indent=1) + "\n"
            if not (self.folder / "manifest.json").exists():
                write_whole(self.folder / "manifest.json", text.encode())
            for path in self.folder.glob(f"{WRITING}*"):
                with suppress(FileNotFoundError):  # another writer was faster, here and below
                    if time.time() - path.stat().st_mtime > _LEFT_BEHIND:
                        path.unlink()
            for path in filter(lambda path: is_shard_name(path.name), self._broken):
                with suppress(FileNotFoundError):
                    path.rename(path.with_name(f"{path.name}.broken"))
            write_whole(self.folder / f"{WRITING}try", b"")  # permissions do not say all: disks are full or read-only
            (self.folder / f"{WRITING}try").unlink(missing_ok=True)
        except OSError as error:
            raise cannot_write(self.folder, error) from None


class ShardWriter:
    """Collects parses and writes them as shards: a shard is there whole or not at all.

    A kill loses at most what was collected since the last shard. Use it in a `with` block: what is collected is written
    at its end, also when an exception ends it.

    Args:
        cache: where to.
        rank: of this process.
        documents: parses a shard, at most.
        megabytes: size from which a shard is written.
        seconds: age of the oldest parse from which a shard is written.
    """

    def __init__(
        self, cache: ParseCache, rank: int = 0, documents: int = 1000, megabytes: float = 64, seconds: float = 60
    ) -> None:
        self.cache, self.rank = cache, rank
        self.documents, self.megabytes, self.seconds = documents, megabytes, seconds
        self.waiting: dict[str, DiscourseParse] = {}
        self._size, self._since = 0, 0.0
        cache.prepare()

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def add(self, key: str, parse: DiscourseParse) -> None:
        """Takes a parse, and writes a shard if it is time to.

        Raises:
            CorpusError: if the shard cannot be written.
        """
        if not self.waiting:
            self._since = time.monotonic()
        self.waiting[key] = parse
        self._size += parse.nbytes
        old = time.monotonic() - self._since >= self.seconds
        if old or len(self.waiting) >= self.documents or self._size >= self.megabytes * 1e6:
            self.flush()

    def flush(self) -> None:
        """Writes what is collected; nothing happens where there is nothing.

        Raises:
            CorpusError: if the shard cannot be written; what was collected is kept.
        """
        if not self.waiting:
            return
        write_shard(self.cache.folder, self.rank, self.waiting)
        self.waiting, self._size = {}, 0
