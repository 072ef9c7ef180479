"""`precis clean`: list and remove entries of the cache by age and size."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from uuid import uuid4

from jsonargparse import ArgumentParser
from jsonargparse.typing import NonNegativeFloat
from rich.console import Console
from rich.filesize import decimal as format_size
from rich.table import Table

from datamodules.atomic_write import BUILDING, builders_lock
from datamodules.cache_folder import KINDS, CacheEntry, default_cache, list_entries
from datamodules.documents import UserError
from datamodules.text.lines import counted

DAY = 86400.0  # seconds


def clean(arguments: list[str]) -> None:
    """`precis clean [--delete]`: list cache entries by age and size, and remove them; run folders are never touched."""
    parser = ArgumentParser(prog="precis clean", description=clean.__doc__, exit_on_error=False)
    parser.add_argument("--older_than", type=NonNegativeFloat, default=30.0, help="minimum days since the last use")
    parser.add_argument("--larger_than", type=NonNegativeFloat, default=0.0, help="minimum size of an entry in MiB")
    kinds_help = f"kinds of entries, out of {', '.join(KINDS)}"
    parser.add_argument("--kinds", type=list[Literal[*KINDS]], default=list(KINDS), help=kinds_help)
    parser.add_argument("--cache_dir", type=Path | None, default=None, help="cache folder; by default $PRECIS_CACHE")
    parser.add_argument("--delete", action="store_true", help="remove the entries; without it they are only counted")
    options = parser.parse_args(arguments)
    folder = options.cache_dir or default_cache()
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; there is no cache yet, or pass --cache_dir")
    if (folder / "config.yaml").exists() or (folder / "checkpoints").exists():
        raise UserError(f"{folder}: a run folder, and no cache; pass the folder of a cache as --cache_dir")
    entries = [entry for entry in list_entries(folder) if entry.kind in options.kinds]
    latest_use = time.time() - options.older_than * DAY
    min_bytes = options.larger_than * 2**20  # MiB
    removable = [entry for entry in entries if entry.last_used <= latest_use and entry.nbytes >= min_bytes]
    _print_table(folder, entries, removable)
    if options.delete:
        for entry in removable:
            _remove(entry.path)
        freed = format_size(sum(entry.nbytes for entry in removable))
        print(f"removed {counted(len(removable), 'entry')}, {freed}; what a run needs again is built again")
    elif removable:
        print("nothing was removed; pass --delete to remove the entries counted on the right")


def _remove(path: Path) -> None:
    """Remove a file or folder of the cache; a process that has its files open can still read them."""
    if path.is_file():
        path.unlink(missing_ok=True)  # another process may have removed it
        return
    with builders_lock(path.parent):  # otherwise another process would take the renamed folder for a leftover
        partial = path.with_name(f"{BUILDING}{uuid4().hex}")  # renamed first: no process reads half an entry
        path.rename(partial)
        shutil.rmtree(partial)


def _print_table(folder: Path, entries: Sequence[CacheEntry], removable: Sequence[CacheEntry]) -> None:
    """Print number and size of all entries and of removable ones, with a line for each kind and for all kinds."""
    table = Table(title=str(folder))
    for name in ("", "entries", "size", "to remove", "size of these"):
        table.add_column(name, justify="right" if name else "left")
    for kind in [*KINDS, "all"]:
        cells = [kind]
        for group in (entries, removable):
            sizes = [entry.nbytes for entry in group if kind in ("all", entry.kind)]
            cells += [str(len(sizes)), format_size(sum(sizes))]
        table.add_row(*cells)
    Console().print(table)
