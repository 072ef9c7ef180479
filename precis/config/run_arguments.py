"""Options of `precis fit`, `validate`, `test` and `predict` that concern the run as a whole."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jsonargparse import ArgumentParser
from jsonargparse.typing import NonNegativeInt

from precis.config.linked_arguments import link_arguments

if TYPE_CHECKING:  # help imports neither torch nor Lightning
    from pytorch_lightning.cli import LightningArgumentParser


def add_options_of_run(parser: ArgumentParser) -> None:
    """Add the options of the run: folder, resuming, starting point, tracking, previews."""
    # Start and output of a run
    parser.add_argument("--run_dir", type=Path | None, default=None, help="run folder; runs/MODEL/TIME by default")
    parser.add_argument(
        "--resume",
        type=bool | Literal["auto"],
        default=False,
        help="continue from the last checkpoint of the run folder; auto: if there is one and EarlyStopping has not "
        "ended the run",
    )
    parser.add_argument(
        "--start_from",
        type=str | None,
        default=None,
        help="run folder or checkpoint of the same model, from whose weights (and tokenizer) training starts; "
        "{seed} is replaced by the seed of this run",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="for fit: show the first batch, and memory and time of a few steps, without a run folder",
    )
    parser.add_argument(
        "--out",
        type=Path | None,
        default=None,
        help="for validate, test and predict: .jsonl file for the predictions; by default in the run folder",
    )
    parser.add_argument(
        "--save_every", type=NonNegativeInt, default=0, help="steps between checkpoints, as well as after validations"
    )
    # Tracking
    parser.add_argument(
        "--wandb",
        type=Literal["auto", "online", "offline", "off"],
        default="auto",
        help="Weights & Biases; auto is online if you are logged in, offline otherwise",
    )
    parser.add_argument("--wandb_project", type=str, default="precis", help="project at Weights & Biases")
    parser.add_argument("--wandb_models", type=bool, default=True, help="upload the best model as an artifact")
    parser.add_argument("--previews", type=NonNegativeInt, default=5, help="documents shown after each validation")


def add_run_arguments(parser: "LightningArgumentParser") -> None:
    """Add the options of the run, and those of the selection of checkpoints."""
    from callbacks import BestCheckpoint

    add_options_of_run(parser)
    # The best checkpoint has the highest ROUGE-1; `start_run` takes the loss if no summaries are written.
    parser.add_lightning_class_args(BestCheckpoint, "checkpoint")
    parser.set_defaults(
        {
            "checkpoint.monitor": "val/rouge1",
            "checkpoint.mode": "max",
            "checkpoint.filename": "best",
            "checkpoint.save_on_train_epoch_end": False,
            "checkpoint.auto_insert_metric_name": False,
            "checkpoint.enable_version_counter": False,
        }
    )
    link_arguments(parser)
