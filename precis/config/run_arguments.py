"""Options of `precis fit`, `validate`, `test` and `predict` for the run as a whole; arguments of model and data."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import NonNegativeInt

from datamodules.documents import UserError
from precis.config.shipped import named_configs
from precis.files.data_files import read_yaml

if TYPE_CHECKING:
    from pytorch_lightning.cli import LightningArgumentParser

LINKED = {  # argument of the data -> argument of the model
    "vocab_size": "vocab_size",
    "inventory": "inventory",
    "ablation": "injection.ablation",
    "checkpoint": "encoder.checkpoint",
    "agents": "agents",
}
_SOURCES = ", ".join(LINKED.values())
NOTE = f"Where the model has them too, these are given for the model alone (--model.NAME): {_SOURCES}\n"


def add_options_of_run(parser: ArgumentParser) -> None:
    """Add the options of the run: folder, resuming, starting point, tracking, previews (logged summaries)."""
    add = parser.add_argument
    # Start and output of a run
    add("--run_dir", type=Path | None, default=None, help="run folder; runs/MODEL/TIME by default")
    resume_help = "continue from the last checkpoint; auto: if there is one, and EarlyStopping has not ended the run"
    add("--resume", type=bool | Literal["auto"], default=False, help=resume_help)
    start_help = "run folder or checkpoint of the same model, from whose weights (and tokenizer) training starts; "
    start_help += "{seed} is replaced by the seed of this run"
    add("--start_from", type=str | None, default=None, help=start_help)
    add("--dry-run", action="store_true", help="for fit: first batch, memory and time of a few steps; no run folder")
    out_help = "for validate, test and predict: .jsonl file for the predictions; by default in the run folder"
    add("--out", type=Path | None, default=None, help=out_help)
    add("--save_every", type=NonNegativeInt, default=0, help="steps between checkpoints besides those after validation")
    # Tracking
    wandb_help = "Weights & Biases; auto is online if you are logged in, offline otherwise"
    add("--wandb", type=Literal["auto", "online", "offline", "off"], default="auto", help=wandb_help)
    add("--wandb_project", type=str, default="precis", help="project at Weights & Biases")
    add("--wandb_models", type=bool, default=True, help="upload the best model as an artifact")
    add("--previews", type=NonNegativeInt, default=5, help="documents shown at each validation")


def add_run_arguments(parser: "LightningArgumentParser") -> None:
    """Add the options of the run and of the checkpoints it keeps; let data take arguments from the model (`LINKED`)."""
    from callbacks import BestCheckpoint

    add_options_of_run(parser)
    # The best checkpoint has the highest ROUGE-1, or the lowest loss if no summaries are written (see `start_run`).
    parser.add_lightning_class_args(BestCheckpoint, "checkpoint")
    parser.set_defaults(
        {
            "checkpoint.monitor": "val/rouge1",
            "checkpoint.mode": "max",
            "checkpoint.filename": "best",
            "checkpoint.save_on_train_epoch_end": False,  # but after each validation
            "checkpoint.auto_insert_metric_name": False,
            "checkpoint.enable_version_counter": False,  # a new best.ckpt replaces the file
        }
    )
    link_arguments(parser)


def link_arguments(parser: ArgumentParser) -> None:
    """Let the data take arguments (`LINKED`) from the model, so that config.yaml has them once, for the model."""
    for name, source in LINKED.items():
        parser.link_arguments(f"model.init_args.{source}", f"data.init_args.{name}")


def check_linked(arguments: Sequence[str], config: Namespace) -> None:
    """Raise a `UserError` if an argument of the data is given that is always copied from the model (`LINKED`)."""
    model_arguments = config.get("model", {}).get("init_args", {})  # a class without arguments may have no such key
    data_arguments = config.get("data", {}).get("init_args", {})
    for name, where, remedy in _linked_names_of_data(arguments):
        if LINKED[name] in model_arguments and name in data_arguments:
            raise UserError(f"{where}: the data takes it from the model; {remedy}")


def _linked_names_of_data(arguments: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, place, remedy) for each argument in `LINKED` that the command line or a config sets for the data."""
    for flag in (argument.partition("=")[0] for argument in arguments):
        name = flag.removeprefix("--data.").removeprefix("init_args.")
        if flag.startswith("--data.") and name in LINKED:
            yield name, flag, f"give --model.{LINKED[name]}"
    for _, path in named_configs(arguments):
        data = read_yaml(Path(path)).get("data")
        data_arguments = data.get("init_args") if isinstance(data, dict) else None  # None: only the name of a class
        for name in data_arguments or ():
            if name in LINKED:
                yield name, f"{path}: data.{name}", f"give model.{LINKED[name]} alone"
