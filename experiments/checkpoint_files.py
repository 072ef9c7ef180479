"""Checkpoints on disk: written whole, the one before kept, broken ones found out and left aside."""

import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities import rank_zero_only, rank_zero_warn

from datamodules.documents import CorpusError
from lightning_modules.checkpoints import find_damage

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
        partial.unlink(missing_ok=True)  # which stays where both are the same file already, after a kill
    except OSError:  # a file system without links: for a moment there is no last one, but the one before
        path.replace(other)


def is_whole(path: Path) -> bool:
    """Whether a file has the end of a checkpoint: one that was cut off has not."""
    return path.is_file() and zipfile.is_zipfile(path)


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
        raise CorpusError(f"{last}: no checkpoint to resume from; pass --resume auto, which then starts the run anew")
    reasons: list[str] = []
    for path in there:
        if not (reason := find_damage(path)):
            if reasons:
                rank_zero_warn(f"{reasons[0]}; going on from the one before, {path}")
                if write:
                    last.replace(folder / BROKEN)
            return path
        reasons.append(f"{path}: {reason}")
    raise CorpusError(f"{'; '.join(reasons)}; start the run anew in another folder")


def adapt_best_models(trainer: Trainer, checkpoint: dict[str, Any]) -> None:
    """Change what a checkpoint says of the best models to where they are now, before its callbacks read it.

    Lightning forgets best scores when the folder of checkpoints has changed, and keeps them when the files are lost.
    Here a run folder that was moved or copied keeps its best models; one that lost a best model, or whose best model is
    damaged, keeps the next one that is validated.

    Args:
        trainer: with the callbacks that the run is resumed with.
        checkpoint: content of the checkpoint that it is resumed from; changed in place.
    """
    states = checkpoint.get("callbacks", {})
    for callback in trainer.checkpoint_callbacks:
        state = states.get(callback.state_key)
        if not isinstance(callback, ModelCheckpoint) or not state:
            continue
        moved = partial(_in_folder, old=state["dirpath"], new=callback.dirpath)
        state["dirpath"] = callback.dirpath
        for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
            state[name] = moved(state[name])
        state["best_k_models"] = {moved(path): score for path, score in state["best_k_models"].items()}
        if trainer.strategy.broadcast(_lacks_a_best_model(state)):
            states[callback.state_key] = callback.state_dict()  # that of a new run


def _in_folder(path: str, old: str, new: str) -> str:
    """A path inside of a folder that was moved; any other as it is."""
    return os.path.join(new, os.path.relpath(path, old)) if path.startswith(os.path.join(old, "")) else path


def _lacks_a_best_model(state: Mapping[str, Any]) -> bool:
    """Whether a best model is lost or damaged, which is said in a warning; a damaged one is put aside."""
    lacking = False
    for path in map(Path, state["best_k_models"]):
        if damage := find_damage(path) if path.is_file() else "not there":
            lacking = True
            rank_zero_warn(f"{path}: {damage}; the next validation writes a best model again")
            if path.is_file() and rank_zero_only.rank == 0:
                path.replace(path.with_suffix(".broken.ckpt"))
    return lacking


def has_checkpoint(run: Path) -> bool:
    """Whether a run has a checkpoint to resume from."""
    return any((Path(run) / "checkpoints" / name).is_file() for name in (LAST, PREVIOUS))


def check_unused(run: Path) -> None:
    """Refuse a folder that holds a run already, with the command that continues it.

    Raises:
        CorpusError: if it does.
    """
    if (Path(run) / "config.yaml").exists():
        how = "continue it" if has_checkpoint(run) else "it has no checkpoint yet: start it anew"
        command = f"precis fit --run {run}"
        raise CorpusError(f"{run}: a run is there already; {how} with `{command}`, or pass another --run_dir")


def clear_start(run: Path) -> None:
    """Remove what a start that was killed before its first checkpoint has left; config.yaml stays until it is replaced,
    so that another kill does not cost it."""
    for name in ("metrics.csv", "checkpoints/best.ckpt"):
        (Path(run) / name).unlink(missing_ok=True)


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
