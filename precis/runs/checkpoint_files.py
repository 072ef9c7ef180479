"""Checkpoint files: atomic writes, a copy of the previous one, detection of damaged ones, and where training starts."""

import os
import shlex
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from io import BufferedWriter, FileIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch
from jsonargparse import Namespace
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities import rank_zero_info, rank_zero_only, rank_zero_warn

from callbacks.graceful_stop import ENDED_EARLY
from datamodules.documents import UserError
from datamodules.text.lines import printable_line
from lightning_modules.checkpoints import best_checkpoint, find_damage, read_checkpoint
from precis.config.run_config import read_config

LAST, PREVIOUS, BROKEN = "last.ckpt", "previous.ckpt", "last.broken.ckpt"


class _ErrorRecordingFile(BufferedWriter):
    """File for `torch.save` that records the error of a failed `write`, which torch hides in a RuntimeError."""

    error: BaseException | None = None  # also KeyboardInterrupt, which may interrupt a write

    def write(self, content: Any) -> int:
        """Write content; record an error for `_write`, and raise it again."""
        try:
            return super().write(content)
        except BaseException as error:
            self.error = error
            raise


class WholeCheckpoints(TorchCheckpointIO):
    """Write checkpoints atomically, so that one is always complete; keep the replaced one as `previous.ckpt`."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a checkpoint; if the disk is full or read-only, raise a `UserError` and keep existing files."""
        path = Path(path)
        partial = path.with_name(f".{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(checkpoint, partial)
            if path.name == LAST and path.is_file() and zipfile.is_zipfile(path):  # a truncated one is no zip file
                _hard_link(path, path.with_name(PREVIOUS))
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            intact = next((candidate for candidate in (path, path.with_name(PREVIOUS)) if candidate.exists()), None)
            remaining = f"{intact} is unchanged" if intact else "there is no earlier one"
            problem = f"the checkpoint of step {checkpoint.get('global_step', '?')} cannot be written"
            remedy = f"{remaining}; make room or give permission, then continue the run"
            raise UserError(f"{path}: {problem} ({error.strerror or error}); {remedy}") from None


def _write(checkpoint: dict[str, Any], path: Path) -> None:
    """Write a checkpoint to disk; raise the cause, as a full disk or Ctrl-C, where torch raises a `RuntimeError`."""
    with _ErrorRecordingFile(FileIO(path, "wb")) as file:
        try:
            torch.save(checkpoint, file)
        except RuntimeError as error:
            if file.error is None and isinstance(error.__context__, KeyboardInterrupt | SystemExit):
                raise error.__context__ from None  # the signal came while torch wrote, outside of `file.write`
            raise file.error or error from None  # the cause, such as a full disk, if there is one
        file.flush()
        os.fsync(file.fileno())  # on disk before it replaces the former checkpoint


def _hard_link(path: Path, target: Path) -> None:
    """Make `target` a hard link to `path`, atomically; on a file system without hard links, move `path` instead."""
    partial = target.with_name(f".{target.name}.part")
    partial.unlink(missing_ok=True)
    try:
        os.link(path, partial)
        partial.replace(target)
        partial.unlink(missing_ok=True)  # `replace` keeps `partial` if `target` is a link to `path` already
    except OSError:
        path.replace(target)


def resumable(run: Path, write: bool = True) -> Path:
    """Return the newest intact checkpoint of a run; with `write`, rename a damaged last one to `last.broken.ckpt`."""
    folder = Path(run) / "checkpoints"
    problems: list[str] = []  # damage of each checkpoint so far
    for path in filter(Path.is_file, (folder / LAST, folder / PREVIOUS)):
        if damage := find_damage(path):
            problems.append(f"{path}: {damage}")
            continue
        if problems:
            rank_zero_warn(f"{problems[0]}; continuing from the previous one, {path}")  # last.ckpt is damaged
            if write:
                (folder / LAST).replace(folder / BROKEN)  # else the next save replaces previous.ckpt by it
        return path
    if problems:
        raise UserError(f"{'; '.join(problems)}; start the run again in another folder")
    raise UserError(f"{folder / LAST}: no checkpoint to resume from; pass --resume auto, which then starts a new run")


def adapt_best_models(trainer: Trainer, checkpoint: dict[str, Any]) -> None:
    """Update the paths of best models in a checkpoint to their present location, before callbacks read it.

    Lightning forgets the best scores if the run folder was moved, and keeps the score of a model whose file is missing.
    Here a moved run keeps its scores; if a file is missing or damaged, the next validation writes a best model again.
    """
    states = checkpoint.get("callbacks", {})
    for callback in trainer.checkpoint_callbacks:
        state = states.get(callback.state_key)
        if not isinstance(callback, ModelCheckpoint) or not state:
            continue
        move = partial(_in_folder, old=state["dirpath"], new=callback.dirpath)  # maps a path to the present folder
        state["dirpath"] = callback.dirpath
        for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
            state[name] = move(state[name])
        state["best_k_models"] = {move(path): score for path, score in state["best_k_models"].items()}
        if trainer.strategy.broadcast(_lacks_best_model(state)):  # ranks might see different files: rank 0 decides
            states[callback.state_key] = callback.state_dict()  # as in a new run: without best scores


def _in_folder(path: str, old: str, new: str) -> str:
    """Return the path in folder `new` of a file that was in folder `old`; an empty path stays empty."""
    if not path:
        return path
    relative = os.path.relpath(path, old)
    if relative.split(os.sep)[0] == os.pardir:  # outside `old`: not kept, since Lightning would delete it when replaced
        relative = os.path.basename(path)
    return os.path.join(new, relative)


def _lacks_best_model(state: Mapping[str, Any]) -> bool:
    """Return whether a best model in a `ModelCheckpoint`'s state is missing or damaged; warn, rename a damaged one."""
    is_lacking = False
    for path in map(Path, state["best_k_models"]):
        if damage := find_damage(path) if path.is_file() else "not found":
            is_lacking = True
            rank_zero_warn(f"{path}: {damage}; the next validation writes a best model again")
            if path.is_file() and rank_zero_only.rank == 0:
                path.replace(path.with_suffix(".broken.ckpt"))  # which no command loads as the best model
    return is_lacking


def has_checkpoint(run: Path) -> bool:
    """Return whether a run has a checkpoint to resume from."""
    return any((Path(run) / "checkpoints" / name).is_file() for name in (LAST, PREVIOUS))


def check_unused(run: Path) -> None:
    """Raise a `UserError` if a folder already has a run, with the command that continues this run."""
    if (Path(run) / "config.yaml").exists():
        remedy = "continue it" if has_checkpoint(run) else "it has no checkpoint yet: start it again"
        command = shlex.join(["precis", "fit", "--run", str(run)])
        raise UserError(f"{run}: the folder already has a run; {remedy} with `{command}`, or pass another --run_dir")


def check_writable(run: Path) -> None:
    """Raise a `UserError` if no file can be written in a run folder; a folder made for this check is removed again."""
    is_new, folder = False, Path(run)
    try:
        is_new = not folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
        for folder in (Path(run), Path(run) / "checkpoints"):  # the error names the folder that fails
            if folder.is_dir():
                with TemporaryFile(dir=folder) as probe:
                    probe.write(b"precis")
                    probe.flush()  # a full disk or quota refuses content, not the creation of an empty file
    except OSError as error:
        remedy = "make room, give permission, or pass another --run_dir"
        problem = f"the run folder cannot be written to ({error.strerror or error})"
        raise UserError(f"{folder}: {problem}; {remedy}") from None
    finally:
        if is_new:
            with suppress(OSError):  # it was not created, or another process writes to it already
                Path(run).rmdir()


def source_checkpoint(config: Namespace) -> Path:
    """Return the checkpoint of `--start_from`, and let the data of `config` use the tokenizer of its run."""
    path = Path(config.start_from.replace("{seed}", str(config.seed_everything)))  # {seed}: in sweeps over seeds
    tokenizer = _run_of(path) / "text"
    if config.data.init_args.get("tokenizer_dir", "") is None and tokenizer.is_dir():  # "": no such option
        config.data.init_args.tokenizer_dir = tokenizer
    is_resumed = config.resume is True or (config.resume and has_checkpoint(config.run_dir))  # resume: True or "auto"
    return path if is_resumed else find_start(config)  # a resumed run does not read it, so it may be missing


def find_start(config: Mapping[str, Any] | Namespace) -> Path:
    """Return the checkpoint of `--start_from`, a file or a run's best one; a `UserError` for another class of model."""
    path = Path(config["start_from"].replace("{seed}", str(config["seed_everything"])))  # {seed}: in sweeps over seeds
    check_same_model("--start_from", path, config["model"]["class_path"])
    if not (path.is_file() if path.suffix == ".ckpt" else path.is_dir()):
        raise UserError(f"{path}: no such checkpoint; --start_from takes one, or the folder of a run")
    return path if path.suffix == ".ckpt" else best_checkpoint(path)


def end_if_stopped_early(folder: Path, checkpoint: Path) -> None:
    """Exit with status 0 if training was ended early, as by early stopping; `--resume true` skips this check."""
    state = read_checkpoint(checkpoint, verify=False)  # `resumable` has verified that it is intact
    if reason := state.get(ENDED_EARLY):
        command = shlex.join(["precis", "fit", "--run", str(folder), "--resume", "true"])
        rank_zero_info(
            f"{folder}: this run was ended early after step {state['global_step']:,} ({printable_line(reason)}); "
            f"there is nothing to do. To continue training anyway: {command}"
        )
        raise SystemExit(0)


def _run_of(path: Path) -> Path:
    """Return the run folder of a checkpoint, or the run folder itself."""
    return path.parent.parent if path.suffix == ".ckpt" else path


def check_same_model(option: str, path: Path, class_path: str) -> None:
    """Raise a `UserError` if `path`, the checkpoint or run given to `option`, has another model than `class_path`."""
    run = _run_of(path)
    config = read_config(run) if (run / "config.yaml").is_file() else {}  # outside a run folder, nothing is checked
    trained_class = (config.get("model") or {}).get("class_path", "")
    name, trained_name = class_path.rpartition(".")[2], trained_class.rpartition(".")[2]  # without the module
    if trained_name and trained_name != name:
        problem = f"has the weights of {trained_name}, but this run trains {name}"
        raise UserError(f"{option} {path}: {problem}; give a run of {name}")
