"""The command `precis`: training by LightningCLI, and hands on what is not training (`commands.py`)."""

import hashlib
import netrc
import os
import sys
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from jsonargparse import Namespace
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint, RichProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities.exceptions import MisconfigurationException

import callbacks
import datamodules.corpora
import lightning_modules
from callbacks import GracefulStop, PredictionWriter, Previews
from datamodules.documents import CorpusError
from datamodules.summarization import SummarizationData
from experiments import commands
from experiments.run_folder import RunCSVLogger, RunRecord, best_checkpoint, link_arguments, read_config
from lightning_modules.summarizer import Summarizer

TRAINING = ("fit", "validate", "test", "predict")
HELP = """usage: precis COMMAND ...   (precis COMMAND --help tells more)

  fit         train a model:            precis fit --config experiments/configs/pointer_generator/docstrings.yaml
  validate    score validation data:    precis validate --run runs/NAME
  test        score test data:          precis test --run runs/NAME
  predict     summarize the test split: precis predict --run runs/NAME
  summarize   summarize text:           precis summarize --checkpoint runs/NAME < text
  corpus      look at a corpus:         precis corpus --corpus Docstrings
  report      scores and examples:      precis report runs/NAME
  evaluate    score any file of outputs: precis evaluate runs/NAME/predictions.jsonl
  baseline    lead, oracle, LexRank ...: precis baseline lead --run runs/NAME --out lead.jsonl
  sweep       a grid of runs:           precis sweep experiments/sweeps/pointer_generator_rows.yaml --jobs 2
"""


def logged_in() -> bool:
    """Whether Weights & Biases has a key: in the environment or in ~/.netrc."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False


class PrecisCLI(LightningCLI):
    """LightningCLI with a run folder."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Adds what is said of the run as a whole."""
        parser.add_argument(
            "--run_dir", type=Path | None, default=None, help="the run folder; runs/MODEL/TIME if not given"
        )
        parser.add_argument(
            "--resume", type=bool, default=False, help="go on from the run folder's last checkpoint"
        )
        parser.add_argument(
            "--wandb",
            type=Literal["auto", "online", "offline", "off"],
            default="auto",
            help="Weights & Biases; auto is online where there is a key, offline elsewhere",
        )
        parser.add_argument("--wandb_project", type=str, default="precis", help="its project")
        parser.add_argument("--previews", type=int, default=5, help="documents shown after each validation; 0 for none")
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.set_defaults(
            {
                "checkpoint.monitor": "val/rouge1",
                "checkpoint.mode": "max",
                "checkpoint.filename": "best",
                "checkpoint.save_last": True,
                "checkpoint.auto_insert_metric_name": False,
                "checkpoint.enable_version_counter": False,
            }
        )
        link_arguments(parser)

    @staticmethod
    def configure_optimizers(lightning_module: Any, optimizer: Any, lr_scheduler: Any = None) -> Any:
        """An optimizer of the command line; its schedule moves with every step."""
        if lr_scheduler is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": lr_scheduler, "interval": "step"}}

    def before_instantiate_classes(self) -> None:
        """Chooses the run folder and checks that it is the right one to write to.

        Raises:
            CorpusError: if a run is there already and is not to be resumed, or is to be resumed and is not there.
        """
        config = self.config[self.subcommand] if self.subcommand else self.config
        self.values = config
        if config.run_dir is None:
            name = config.model.class_path.rsplit(".", 1)[-1].lower()
            config.run_dir = Path("runs") / name / datetime.now().strftime("%Y%m%d-%H%M%S")
        folder = Path(str(config.run_dir))
        last = folder / "checkpoints" / "last.ckpt"
        if config.checkpoint.dirpath is None:
            config.checkpoint.dirpath = str(folder / "checkpoints")
        if self.subcommand != "fit":
            return
        if config.resume:
            if not last.is_file():
                raise CorpusError(f"{last}: no checkpoint to resume from; start the run without --resume")
            config.ckpt_path = str(last)
        elif (folder / "config.yaml").exists() and not config.ckpt_path:
            raise CorpusError(f"{folder}: a run is there already; pass --resume true, or another --run_dir")

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """The trainer, with the run folder's loggers and callbacks."""
        config, fitting = self.values, self.subcommand == "fit"
        folder = Path(str(config.run_dir))
        extra: list[Callback] = [PredictionWriter(folder / "predictions.jsonl")]
        if config.trainer.enable_progress_bar is not False:
            extra.append(RichProgressBar(leave=False))
        loggers: list[Any] = []
        if not fitting:
            self.save_config_callback = None  # it writes where a logger does: there is none, so into the working folder
        if fitting:
            resume = f"precis fit --config {folder}/config.yaml --resume true"
            extra += [RunRecord(folder), GracefulStop(folder / "checkpoints" / "last.ckpt", resume)]
            if config.previews:
                extra.append(Previews(folder / "previews", documents=config.previews))
            loggers.append(RunCSVLogger(folder))
            if config.wandb != "off":
                loggers.append(self._wandb(folder, config))
                extra.append(LearningRateMonitor("step"))
        self.parser_extra = extra
        trainer = config.trainer
        if trainer.logger is None or trainer.logger is True:
            kwargs["logger"] = loggers or False
        return super().instantiate_trainer(**kwargs)

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list) -> Trainer:
        return super()._instantiate_trainer(config, [*callbacks, *self.parser_extra])

    def _wandb(self, folder: Path, config: Any) -> WandbLogger:
        online = config.wandb == "online" or (config.wandb == "auto" and logged_in())
        folder.mkdir(parents=True, exist_ok=True)
        return WandbLogger(
            project=config.wandb_project,
            name=folder.name,
            id=hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12],  # a resumed run is the same W&B run
            save_dir=str(folder),
            offline=not online,
            resume="allow" if online else None,
        )

    def before_fit(self) -> None:
        """Drops what metrics.csv holds of steps after the checkpoint that is resumed."""
        if self.values.resume and self.trainer.is_global_zero:
            import torch

            step = torch.load(self.values.ckpt_path, map_location="cpu", weights_only=True)["global_step"]
            for logger in self.trainer.loggers:
                if isinstance(logger, RunCSVLogger):
                    logger.forget_after(step)


class _Parsers(PrecisCLI):
    """The command line's parsers alone: nothing is parsed, made or run."""

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        self.config = Namespace(subcommand=None, seed_everything=False)

    def before_instantiate_classes(self) -> None: ...

    def instantiate_classes(self) -> None: ...


def _command_line(kind: type[PrecisCLI]) -> PrecisCLI:
    return kind(
        Summarizer,
        SummarizationData,
        subclass_mode_model=True,
        subclass_mode_data=True,
        seed_everything_default=1,
        save_config_callback=SaveConfigCallback,
        save_config_kwargs={"overwrite": True},
        parser_kwargs={"allow_abbrev": False, **{name: {"allow_abbrev": False} for name in TRAINING}},
        trainer_defaults={"use_distributed_sampler": False, "gradient_clip_val": 2.0},
    )


def fit_parser() -> LightningArgumentParser:
    """The parser of `precis fit`, to check a config without a start; it raises where the command line exits."""
    _load_classes()
    parser = _command_line(_Parsers)._parser("fit")
    parser.exit_on_error = False
    return parser


def with_run(arguments: list[str]) -> list[str]:
    """`--run FOLDER` of validate, test and predict as the config, checkpoint and text of that folder.

    Raises:
        CorpusError: if the folder is no run.
    """
    if "--run" not in arguments:
        return arguments
    at = arguments.index("--run")
    if at + 1 == len(arguments):
        raise CorpusError("--run needs the folder of a run")
    folder, rest = Path(arguments[at + 1]), arguments[:at] + arguments[at + 2 :]
    read_config(folder)
    command, *options = rest
    found = [f"--config={folder}/config.yaml", f"--run_dir={folder}", f"--data.text={folder}/text", "--resume=false"]
    if not any(option.startswith("--ckpt_path") for option in options):
        found.append(f"--ckpt_path={best_checkpoint(folder)}")
    return [command, *found, *options]


def _load_classes() -> None:
    """Loads what the packages offer: a class is found by its short name only once it is there."""
    for package in (callbacks, datamodules, datamodules.corpora, lightning_modules):
        for name in package.__all__:
            getattr(package, name)


def _quiet() -> None:
    """Leaves out warnings that say nothing of the run: advice on loader processes, deprecations inside libraries."""
    for pattern in (".*does not have many workers.*", ".*LeafSpec.*", ".*will be overridden by `PrecisCLI.*"):
        warnings.filterwarnings("ignore", pattern)
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")


def run(arguments: list[str]) -> None:
    """Carries a command out; errors are raised."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP)
        return
    command, *rest = arguments
    if command in commands.COMMANDS:
        commands.COMMANDS[command](rest)
        return
    if command not in TRAINING:
        raise CorpusError(f"precis has no command {command!r}; it has {', '.join([*TRAINING, *commands.COMMANDS])}")
    _load_classes()
    sys.argv = ["precis", *with_run([command, *rest])]  # where LightningCLI looks, and what environment.json records
    _command_line(PrecisCLI)


def main(arguments: list[str] | None = None) -> int:
    """Entry point: one line for what the user can mend, status 1; PRECIS_DEBUG=1 shows the traceback."""
    _quiet()
    try:
        run(sys.argv[1:] if arguments is None else arguments)
    except (ValueError, OSError, MisconfigurationException) as error:
        if os.environ.get("PRECIS_DEBUG"):
            raise
        print(f"precis: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
