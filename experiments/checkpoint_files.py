"""Checkpoints on disk: written whole, the one before kept, broken ones found out and left aside."""

import os
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning.utilities import rank_zero_warn

from datamodules.documents import CorpusError

LAST, PREVIOUS, BROKEN = "last.ckpt", "previous.ckpt", "last.broken.ckpt"


class _Recording:
    """A file that remembers why it could not be written: torch reports another error in its place."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, content: Any) -> int:
        try:
            return self.file.write(content)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


class WholeCheckpoints(TorchCheckpointIO):
    """Writes a checkpoint under a temporary name and renames it once it is on disk; at every time there is a whole one.

    The `last.ckpt` that it replaces stays as `previous.ckpt`.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Writes, or leaves everything as it was.

        Raises:
            CorpusError: if the disk is full or does not permit it.
        """
        path = Path(path)
        partial = path.with_name(f".{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(checkpoint, partial)
            if path.name == LAST and is_whole(path):
                _link(path, path.with_name(PREVIOUS))
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            kept = next((other for other in (path, path.with_name(PREVIOUS)) if other.exists()), None)
            there = f"{kept} is as it was" if kept else "there is none from before"
            raise CorpusError(
                f"{path}: the checkpoint of step {checkpoint.get('global_step', '?')} cannot be written "
                f"({error.strerror or error}); {there}; make room or give permission, then let the run go on"
            ) from None


def _write(checkpoint: dict[str, Any], path: Path) -> None:
    with path.open("wb") as file:
        recording = _Recording(file)
        try:
            torch.save(checkpoint, recording)
        except RuntimeError:
            raise recording.error or RuntimeError(f"{path}: not written") from None
        file.flush()
        os.fsync(file.fileno())


def _link(path: Path, other: Path) -> None:
    """A second name for a file, in place of what had that name."""
    partial = other.with_name(f".{other.name}.part")
    partial.unlink(missing_ok=True)
    try:
        os.link(path, partial)
        partial.replace(other)
    except OSError:  # a file system without links: for a moment there is no last one, but the one before
        path.replace(other)


def is_whole(path: Path) -> bool:
    """Whether a file has the end of a checkpoint: one that was cut off has not."""
    return path.is_file() and zipfile.is_zipfile(path)


def what_is_broken(path: Path) -> str:
    """Why a checkpoint cannot be gone on from; empty if it can. Every byte is read and checked."""
    if not zipfile.is_zipfile(path):
        return "no checkpoint, or only a part of one"
    try:
        with zipfile.ZipFile(path) as file:
            wrong = file.testzip()
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        return str(error)
    return f"{wrong} in it is damaged" if wrong else ""


def resumable(run: Path, write: bool = True) -> Path:
    """The newest checkpoint of a run that is whole. A broken last one is put aside, as `last.broken.ckpt`.

    Args:
        run: the run folder.
        write: whether this process is the one that may rename files.

    Raises:
        CorpusError: if there is none.
    """
    folder = Path(run) / "checkpoints"
    last, previous = folder / LAST, folder / PREVIOUS
    there = [path for path in (last, previous) if path.is_file()]
    if not there:
        raise CorpusError(f"{last}: no checkpoint to resume from; start the run without --resume")
    reasons: list[str] = []
    for path in there:
        if not (reason := what_is_broken(path)):
            if reasons:
                rank_zero_warn(f"{reasons[0]}; going on from the one before, {path}")
                if write:
                    last.replace(folder / BROKEN)
            return path
        reasons.append(f"{path}: {reason}")
    raise CorpusError(f"{'; '.join(reasons)}; start the run anew in another folder")


def check_writable(run: Path) -> None:
    """Tries a run folder before anything is computed for it.

    Raises:
        CorpusError: if nothing can be written there.
    """
    folder, probe = Path(run), None
    try:
        made = not folder.exists()
        for folder in (Path(run), Path(run) / "checkpoints"):
            if made or folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                probe = folder / ".probe"
                probe.write_bytes(b"precis")
                probe.unlink()
    except OSError as error:
        if probe is not None:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
        raise CorpusError(
            f"{folder}: the run folder cannot be written to ({error.strerror or error}); make room, give "
            "permission, or pass another --run_dir"
        ) from None
    if made:
        for folder in (Path(run) / "checkpoints", Path(run)):
            folder.rmdir()
