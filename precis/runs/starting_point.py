"""Where training starts: the weights of `--start_from`, and runs that `EarlyStopping` has ended."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from pytorch_lightning.utilities import rank_zero_info

from callbacks.graceful_stop import ENDED_EARLY
from datamodules.documents import UserError
from datamodules.text.lines import printable_line
from lightning_modules.checkpoints import best_checkpoint, read_checkpoint
from precis.config.run_config import read_config
from precis.runs.checkpoint_files import has_checkpoint


def source_checkpoint(config: Namespace) -> Path:
    """Return the checkpoint of `--start_from`, and let the data use the tokenizer of that run unless another is set.

    A run that is resumed from its own checkpoint does not read it.
    """
    path = Path(config.start_from.replace("{seed}", str(config.seed_everything)))
    text = _run_of(path) / "text"
    if config.data.init_args.get("tokenizer_dir", "") is None and text.is_dir():
        config.data.init_args.tokenizer_dir = text
    is_resumed = config.resume is True or (config.resume and has_checkpoint(config.run_dir))
    return path if is_resumed else find_start(config)


def find_start(config: Mapping[str, Any] | Namespace) -> Path:
    """Return the checkpoint that `--start_from` names, which must be of the same model."""
    path = Path(config["start_from"].replace("{seed}", str(config["seed_everything"])))
    check_same_model("--start_from", path, config["model"]["class_path"])
    if not (path.is_file() if path.suffix == ".ckpt" else path.is_dir()):
        raise UserError(f"{path}: no such checkpoint; --start_from takes one, or the folder of a run")
    return path if path.suffix == ".ckpt" else best_checkpoint(path)


def end_if_stopped_early(folder: Path, checkpoint: Path) -> None:
    """End the command with status 0 if the run was ended early, which only `--resume true` continues."""
    state = read_checkpoint(checkpoint, verify=False)
    if reason := state.get(ENDED_EARLY):
        rank_zero_info(
            f"{folder}: this run was ended early after step {state['global_step']:,} ({printable_line(reason)}); "
            f"there is nothing to do. To continue training anyway: precis fit --run {folder} --resume true"
        )
        raise SystemExit(0)


def _run_of(path: Path) -> Path:
    """Return the run folder of a checkpoint, or the run folder itself."""
    return path.parent.parent if path.suffix == ".ckpt" else path


def check_same_model(option: str, path: Path, class_path: str) -> None:
    """Raise a `UserError` if the run of a checkpoint, whose config is there, has a model of another class."""
    run = _run_of(path)
    config = read_config(run) if (run / "config.yaml").is_file() else {}
    trained_class = (config.get("model") or {}).get("class_path", "")
    name, trained_name = (path.rpartition(".")[2] for path in (class_path, trained_class))
    if trained_name and trained_name != name:
        problem = f"has the weights of {trained_name}, but this run trains {name}"
        raise UserError(f"{option} {path}: {problem}; give a run of {name}")
