"""The folder of caches: where it is, and which entries it holds."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from datamodules.documents import UserError

Kind = Literal["documents", "features", "tokenizers", "proposals", "parses", "vectors"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# Paths of entries, relative to the folder of caches. Files that do not match are never removed.
_PATTERNS: dict[Kind, str] = {
    "documents": r"[a-z_]+-(train|val|test)-[0-9a-f]{20}",
    "features": r"features/[0-9a-f]{24}(_\d{5}_of_\d{5})?\.arrow",
    "tokenizers": r"text/[0-9a-f]{24}",
    "proposals": r"proposals/[0-9a-f]+\.json",
    "vectors": r"vectors/[0-9a-f]{24}\.safetensors",
    "parses": r"parses/parses-\d+-[0-9a-f]+-[0-9a-f]{32}\.safetensors",
}


class CacheEntry(NamedTuple):
    """An entry of the cache."""

    kind: Kind  # kind of its content
    path: Path  # a file, or a folder of files
    nbytes: int  # size on disk
    last_used: float  # time of the last access or change, in seconds since the epoch


def default_cache() -> Path:
    """Return `$PRECIS_CACHE`, or `precis` in the user's cache folder, which is created for this user only.

    Raises:
        UserError: if `$PRECIS_CACHE` is a file.
    """
    if named := os.environ.get("PRECIS_CACHE"):
        if Path(named).is_file():
            raise UserError(f"{named}: a file, but PRECIS_CACHE names the folder of caches; name another one")
        return Path(named)  # several users may share this folder, so that its permissions are not changed
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "precis"
    with suppress(OSError):  # an error is reported with the path as soon as something is written to the folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def list_entries(folder: Path) -> Iterator[CacheEntry]:
    """Yield the entries of a folder of caches, ordered by kind and name; other files and folders are left out."""
    for kind, pattern in _PATTERNS.items():
        parent = Path(folder, *pattern.split("/")[:-1])  # the folder that holds entries of this kind
        for path in sorted(parent.iterdir()) if parent.is_dir() else ():
            if not path.is_symlink() and re.fullmatch(pattern, path.relative_to(folder).as_posix()):
                yield _measure(kind, path)


def _measure(kind: Kind, path: Path) -> CacheEntry:
    """Return the entry of a file or folder, with the total size of its files and the time of their latest use."""
    stats = [file.stat() for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
    # `st_mtime`, the time of the last change, too: file systems mounted with `noatime` do not update `st_atime`
    last_used = max((max(stat.st_atime, stat.st_mtime) for stat in stats), default=path.stat().st_mtime)
    return CacheEntry(kind, path, sum(stat.st_size for stat in stats), last_used)
