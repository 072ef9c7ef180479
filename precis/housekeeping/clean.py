"""`precis clean`: list and remove entries of the cache by age and size."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from uuid import uuid4

from jsonargparse import ArgumentParser
from rich.console import Console
from rich.table import Table

from datamodules.building import BUILDING, builders_lock
from datamodules.cache_folder import KINDS, CacheEntry, default_cache, list_entries
from datamodules.documents import UserError
from datamodules.text.lines import counted
from precis.files.sizes import format_seconds, format_size

DAY = 86400.0


def clean(arguments: list[str]) -> None:
    """`precis clean [--delete]`: list cache entries by age and size, and remove them; run folders are never touched."""
    parser = ArgumentParser(prog="precis clean", description=clean.__doc__, exit_on_error=False)
    parser.add_argument(
        "--older_than", type=float, default=30.0, help="minimal number of days since an entry was last used"
    )
    parser.add_argument("--larger_than", type=float, default=0.0, help="minimal size of an entry in MiB")
    parser.add_argument(
        "--kinds", type=list[Literal[*KINDS]], default=list(KINDS), help=f"kinds of entries, out of {', '.join(KINDS)}"
    )
    parser.add_argument("--cache_dir", type=Path | None, default=None, help="cache folder; by default $PRECIS_CACHE")
    parser.add_argument("--delete", action="store_true", help="remove the entries; without it they are only counted")
    options = parser.parse_args(arguments)
    if options.older_than < 0 or options.larger_than < 0:
        raise UserError("--older_than (days) and --larger_than (MiB) are at least 0")
    folder = check_cache(options.cache_dir or default_cache())
    entries = [entry for entry in list_entries(folder) if entry.kind in options.kinds]
    chosen = choose_entries(entries, options.older_than, options.larger_than)
    _print_table(folder, entries, chosen)
    if options.delete:
        freed = sum(map(remove_entry, chosen))
        print(f"removed {counted(len(chosen), 'entry')}, {format_size(freed)}; what a run needs again is built again")
    elif chosen:
        print("nothing was removed; pass --delete to remove the entries counted on the right")


def check_cache(folder: Path) -> Path:
    """Return the folder of caches.

    Raises:
        UserError: if it does not exist, or is a run folder.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; there is no cache yet, or pass --cache_dir")
    if (folder / "config.yaml").exists() or (folder / "checkpoints").exists():
        raise UserError(f"{folder}: a run folder, and no cache; pass the folder of a cache as --cache_dir")
    return folder


def choose_entries(entries: Sequence[CacheEntry], days: float, mebibytes: float) -> list[CacheEntry]:
    """Return the entries unused for at least `days` days whose size is at least `mebibytes` MiB."""
    now = time.time()
    return [entry for entry in entries if now - entry.last_used >= days * DAY and entry.nbytes >= mebibytes * 2**20]


def remove_entry(entry: CacheEntry) -> int:
    """Remove an entry and return its size; a process that has it open keeps reading it."""
    if entry.path.is_file():
        entry.path.unlink(missing_ok=True)
        return entry.nbytes
    with builders_lock(entry.path.parent):
        partial = entry.path.with_name(f"{BUILDING}{uuid4().hex}")  # no process finds half a folder
        entry.path.rename(partial)
        shutil.rmtree(partial)
    return entry.nbytes


def _print_table(folder: Path, entries: Sequence[CacheEntry], chosen: Sequence[CacheEntry]) -> None:
    table = Table(title=str(folder))
    for name in ("", "entries", "size", "last used", "to remove", "size of these"):
        table.add_column(name, justify="left" if not name else "right")
    for kind in [*KINDS, "all"]:
        of_kind = [entry for entry in entries if kind in (entry.kind, "all")]
        removable = [entry for entry in chosen if kind in (entry.kind, "all")]
        age = time.time() - max(entry.last_used for entry in of_kind) if of_kind else None
        table.add_row(
            kind,
            str(len(of_kind)),
            format_size(sum(entry.nbytes for entry in of_kind)),
            "" if age is None else f"{format_seconds(max(age, 0))} ago",
            str(len(removable)),
            format_size(sum(entry.nbytes for entry in removable)),
        )
    Console().print(table)
