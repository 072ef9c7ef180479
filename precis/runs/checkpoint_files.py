"""Checkpoint files: atomic writes, a copy of the previous one, detection of damaged ones."""

import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities import rank_zero_only, rank_zero_warn

from datamodules.documents import UserError
from lightning_modules.checkpoints import find_damage

LAST, PREVIOUS, BROKEN = "last.ckpt", "previous.ckpt", "last.broken.ckpt"


class _ErrorRecordingFile:
    """File that records write errors and interruptions, which torch would replace by an error of its own."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.error: BaseException | None = None

    def write(self, content: Any) -> int:
        try:
            return self.file.write(content)
        except BaseException as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


class WholeCheckpoints(TorchCheckpointIO):
    """Write checkpoints atomically, so that there is always a complete one.

    The replaced `last.ckpt` is kept as `previous.ckpt`.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a checkpoint; if the disk is full or not writable, existing files are unchanged."""
        path = Path(path)
        partial = path.with_name(f".{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(checkpoint, partial)
            if path.name == LAST and path.is_file() and zipfile.is_zipfile(path):  # a truncated one does not replace it
                _link(path, path.with_name(PREVIOUS))
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            intact = next((candidate for candidate in (path, path.with_name(PREVIOUS)) if candidate.exists()), None)
            remaining = f"{intact} is unchanged" if intact else "there is no earlier one"
            raise UserError(
                f"{path}: the checkpoint of step {checkpoint.get('global_step', '?')} cannot be written "
                f"({error.strerror or error}); {remaining}; make room or give permission, then continue the run"
            ) from None


def _write(checkpoint: dict[str, Any], path: Path) -> None:
    with path.open("wb") as file:
        recording = _ErrorRecordingFile(file)
        try:
            torch.save(checkpoint, recording)
        except RuntimeError as error:
            if recording.error is None and isinstance(error.__context__, KeyboardInterrupt | SystemExit):
                raise error.__context__ from None  # a signal outside of `write`
            raise recording.error or error from None
        file.flush()
        os.fsync(file.fileno())


def _link(path: Path, target: Path) -> None:
    """Create a hard link, replacing an existing file of that name."""
    partial = target.with_name(f".{target.name}.part")
    partial.unlink(missing_ok=True)
    try:
        os.link(path, partial)
        partial.replace(target)
        partial.unlink(missing_ok=True)  # it remains if both are the same file, after a kill
    except OSError:  # without hard links, there is briefly only the previous checkpoint
        path.replace(target)


def resumable(run: Path, write: bool = True) -> Path:
    """Return the newest intact checkpoint of a run; `write` lets it rename a damaged last one to `last.broken.ckpt`."""
    folder = Path(run) / "checkpoints"
    problems: list[str] = []
    for path in (folder / LAST, folder / PREVIOUS):
        if not path.is_file():
            continue
        if damage := find_damage(path):
            problems.append(f"{path}: {damage}")
            continue
        if problems:
            rank_zero_warn(f"{problems[0]}; continuing from the previous one, {path}")
            if write:
                (folder / LAST).replace(folder / BROKEN)
        return path
    if problems:
        raise UserError(f"{'; '.join(problems)}; start the run again in another folder")
    raise UserError(f"{folder / LAST}: no checkpoint to resume from; pass --resume auto, which then starts a new run")


def adapt_best_models(trainer: Trainer, checkpoint: dict[str, Any]) -> None:
    """Update the paths of best models in a checkpoint to their present location, before callbacks read it.

    Lightning forgets best scores if the folder of checkpoints has changed, and keeps them if the files are missing.
    Here a run folder that was moved or copied keeps its best models; if one is missing or damaged, the next validation
    writes a best model again.
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
            states[callback.state_key] = callback.state_dict()  # state of a new run


def _in_folder(path: str, old: str, new: str) -> str:
    """Return the new path of a file, inside the folder: Lightning removes replaced models, named anywhere."""
    if not path:
        return path
    relative = os.path.relpath(path, old)
    return os.path.join(new, os.path.basename(path) if relative.startswith(os.pardir) else relative)


def _lacks_a_best_model(state: Mapping[str, Any]) -> bool:
    """Return whether a best model is missing or damaged, with a warning; rename damaged ones."""
    lacking = False
    for path in map(Path, state["best_k_models"]):
        if damage := find_damage(path) if path.is_file() else "not found":
            lacking = True
            rank_zero_warn(f"{path}: {damage}; the next validation writes a best model again")
            if path.is_file() and rank_zero_only.rank == 0:
                path.replace(path.with_suffix(".broken.ckpt"))
    return lacking


def has_checkpoint(run: Path) -> bool:
    """Return whether a run has a checkpoint to resume from."""
    return any((Path(run) / "checkpoints" / name).is_file() for name in (LAST, PREVIOUS))


def check_unused(run: Path) -> None:
    """Raise a `UserError` with the command that continues the run if a folder already has one."""
    if (Path(run) / "config.yaml").exists():
        remedy = "continue it" if has_checkpoint(run) else "it has no checkpoint yet: start it again"
        command = f"precis fit --run {run}"
        raise UserError(f"{run}: the folder already has a run; {remedy} with `{command}`, or pass another --run_dir")


def clear_start(run: Path) -> None:
    """Remove the files of a start that was killed before its first checkpoint.

    config.yaml is kept until it is replaced, so that it survives another kill.
    """
    for name in ("metrics.csv", "checkpoints/best.ckpt"):
        (Path(run) / name).unlink(missing_ok=True)


def check_writable(run: Path) -> None:
    """Raise a `UserError` if nothing can be written in a run folder, before anything is computed."""
    is_new, folder = False, Path(run)
    try:
        is_new = not folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
        for folder in (Path(run), Path(run) / "checkpoints"):
            if folder.is_dir():
                with TemporaryFile(dir=folder) as probe:
                    probe.write(b"precis")
                    probe.flush()
    except OSError as error:
        raise UserError(
            f"{folder}: the run folder cannot be written to ({error.strerror or error}); make room, give "
            "permission, or pass another --run_dir"
        ) from None
    finally:
        if is_new:
            with suppress(OSError):
                Path(run).rmdir()
