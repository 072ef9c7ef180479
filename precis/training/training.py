"""`precis fit`, `validate`, `test` and `predict`: LightningCLI with a run folder."""

import re
import shutil
import signal
import sys
import traceback
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import wandb
from jsonargparse import Namespace
from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer
from pytorch_lightning.callbacks import RichProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, ReduceLROnPlateau
from pytorch_lightning.utilities import rank_zero_info

from callbacks import GracefulStop, MonitorCheck
from callbacks.divergence import Diverged
from callbacks.graceful_stop import early_stopping_reason
from callbacks.monitor_check import LATER, PlateauSchedule
from callbacks.start_from import AverageStart
from datamodules.documents import UserError
from lightning_modules.checkpoints import read_checkpoint
from lightning_modules.lightning_internals import check_at_validations
from lightning_modules.summarizer import Summarizer
from precis.config import value_checks
from precis.config.command_table import TRAINING
from precis.config.load_classes import load_classes
from precis.config.parsers import provide_parsers
from precis.config.run_arguments import add_run_arguments, check_linked
from precis.config.trust import check_checkpoint
from precis.runs.checkpoint_files import check_same_model, check_unused, has_checkpoint
from precis.runs.metrics_file import RunCSVLogger
from precis.training.cluster_tasks import trainer_plugins
from precis.training.run_progress import ProgressLines, StateRecord, conclude_scoring, conclude_training
from precis.training.run_records import run_records
from precis.training.run_start import start_run

# Messages of gloo, of torch.distributed's store, and of NCCL, after another process has ended or cannot be reached.
_LOST_CONNECTION = re.compile(
    r"connection (was )?(closed|reset|refused)|broken pipe|remote (worker|process|peer)|socket timeout"
    r"|recvValue failed|sendBytes failed|NCCL error|ncclRemoteError|collective operation timeout",
    re.IGNORECASE,
)


class PrecisCLI(LightningCLI):
    """LightningCLI with a run folder, which is locked during training."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with ExitStack() as self.locks:  # releases the lock of the run folder when the command ends
            super().__init__(*arguments, **options)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the options of the run."""
        add_run_arguments(parser)
        value_checks.parse_batch_counts(parser)

    @staticmethod
    def configure_optimizers(lightning_module: Any, optimizer: Any, lr_scheduler: Any = None) -> Any:
        """Return optimizer and schedule, which advances each step, not each epoch as in Lightning by default."""
        if lr_scheduler is None:
            return optimizer
        options = {"scheduler": lr_scheduler, "interval": "step"}
        if isinstance(lr_scheduler, ReduceLROnPlateau):  # `PlateauSchedule` advances it: never due in Lightning
            options |= {"monitor": lr_scheduler.monitor, "frequency": sys.maxsize}
        return {"optimizer": optimizer, "lr_scheduler": options}

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the arguments, and check values and the checkpoint before LightningCLI uses them."""
        super().parse_arguments(parser, args)
        config = self.config[self.config.subcommand]
        value_checks.check_ranges(config)
        value_checks.check_no_keys(config)  # API keys and passwords, which config.yaml would keep
        check_checkpoint(config)  # refuses one that may run code, unless trusted
        check_linked(sys.argv[1:] if args is None else args, config)  # refuses options that data take from the model
        if self.config.subcommand == "fit":
            value_checks.check_effects(config)  # refuses parts that would have none
        path = config.ckpt_path
        if path and Path(path).is_file():  # not "best" or "last", which Lightning resolves
            check_same_model("--ckpt_path", Path(path), config.model.class_path)
            read_checkpoint(Path(path))  # raises a `UserError` if it is damaged

    def before_instantiate_classes(self) -> None:
        """Choose, check and lock the run folder, and store these decisions in `start` for later hooks."""
        parser = self._parser(self.subcommand)
        config = self.config[self.subcommand] if self.subcommand else self.config
        self.start = start_run(self.subcommand, config, partial(parser.dump, skip_none=False), self.locks)

    def instantiate_classes(self) -> None:
        """Build model, data and trainer; a `UserError` names the config key of a value that a constructor refuses."""
        try:
            super().instantiate_classes()
        except UserError:
            raise  # it explains itself; below, it would be caught as a ValueError, one of `REFUSALS`
        except value_checks.REFUSALS as error:
            raise UserError(value_checks.explain_refusal(error, self.start.config)) from error
        if self.trainer.precision == "64-true":
            self.model.double()  # before a checkpoint is restored: Lightning converts later, and fp32 would round it
        if isinstance(self.model, Summarizer):
            self.model.check_data(self.datamodule)  # refuses data with batches of another type
        provide_parsers(self.datamodule)  # lets the data load a discourse parser, if it needs one

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[Callback]) -> Trainer:
        """Return the trainer with callbacks and loggers of config and run folder; no loggers if `logger` is False."""
        record_callbacks, loggers = run_records(self.start, isinstance(self.model, Summarizer))
        if config["enable_progress_bar"] is not False and sys.stdout.isatty():
            progress: Callback = RichProgressBar(leave=False)
        else:  # in a log file, a bar would be unreadable
            config["enable_progress_bar"] = False
            progress = ProgressLines()
        logger = config["logger"]  # False, a logger, a list of loggers, or None or True for Lightning's default
        if logger is not False:
            added = logger if isinstance(logger, list) else [logger]
            config["logger"] = [*loggers, *(each for each in added if each not in (None, True))] or False
        config["plugins"] = trainer_plugins(config["plugins"])
        if torch.cuda.is_available():
            torch.set_float32_matmul_precision("high")  # TF32: products of fp32 matrices run on tensor cores
        try:
            trainer = super()._instantiate_trainer(config, [*callbacks, progress, *record_callbacks])
        except value_checks.REFUSALS as error:
            raise UserError(value_checks.explain_trainer_refusal(error, self.start.config.trainer)) from error
        if self.start.command == "fit":
            trainer.callbacks[:0] = [MonitorCheck(), PlateauSchedule(), AverageStart()]  # before the config's
        check_at_validations(trainer, LATER)
        return trainer

    def _run_subcommand(self, subcommand: str) -> None:
        """Run the command; errors while Lightning restores a checkpoint become a `UserError` that names the file."""
        try:
            super()._run_subcommand(subcommand)
        except UserError:
            raise  # it has a message for the user
        except SystemExit as end:
            if isinstance(end.__context__, KeyboardInterrupt):
                end.code = 128 + signal.SIGINT  # the status of shells after Ctrl-C; Lightning would exit with 1
            raise
        except Exception as error:
            files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
            if not any(file.endswith("checkpoint_connector.py") for file in files):  # file of Lightning that restores
                raise
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            path = self.start.config.ckpt_path
            raise UserError(f"{path}: cannot be restored ({reason}); give another checkpoint of the run") from error

    def fit(self, model: LightningModule, **arguments: Any) -> None:
        """Train in the run folder, and record how it ended; remove a new one without a step, or of `fast_dev_run`."""
        start, is_first = self.start, self.trainer.is_global_zero
        if start.dry_run:
            self.trainer.fit(model, **arguments)
            return
        start.folder.mkdir(parents=True, exist_ok=True)
        if is_first and start.is_new:  # an existing folder is locked already
            start.lock()
            check_unused(start.folder)  # another process may have used it in the meantime
        for logger in self.trainer.loggers:
            if isinstance(logger, RunCSVLogger) and start.config.resume and is_first:  # drops rows after the checkpoint
                logger.keep_rows_of(read_checkpoint(Path(start.config.ckpt_path), verify=False))  # verified earlier
        rank_zero_info(f"run folder: {start.folder}")
        state_record = next(callback for callback in self.trainer.callbacks if isinstance(callback, StateRecord))
        try:
            self.trainer.fit(model, **arguments)
            state_record.write(self.trainer, "finished")
            if reason := early_stopping_reason(self.trainer):
                rank_zero_info(f"training ended early after step {self.trainer.global_step:,}: {reason}")
        except BaseException as end:
            if state_record.training:  # whether training has started; if not, state.json keeps an earlier start's state
                stopped = "stopped" if isinstance(end, SystemExit | KeyboardInterrupt) else "failed"
                state_record.write(self.trainer, "diverged" if isinstance(end, Diverged) else stopped)
            is_connection_lost = isinstance(end, RuntimeError | ConnectionError) and _LOST_CONNECTION.search(str(end))
            if self.trainer.world_size > 1 and is_connection_lost:  # another process has ended or cannot be reached
                raise UserError(lost_process_message(self.trainer, start.folder)) from end
            raise
        finally:
            if start.config.wandb != "off":
                wandb.finish()  # upload the remaining metrics and files
            if start.is_new and is_first and (self.trainer.global_step == 0 or self.trainer.fast_dev_run):
                shutil.rmtree(start.folder, ignore_errors=True)  # there is nothing to resume or test
        if self.trainer.global_step and not self.trainer.fast_dev_run:
            conclude_training(self.trainer, start)

    def after_test(self) -> None:
        """Print ROUGE-1 beside that of lead-1, and finish the W&B run that the scores of a test were logged to."""
        conclude_scoring(self.trainer, self.start)
        wandb.finish()

    after_validate = after_test


class _Parsers(PrecisCLI):
    """A `PrecisCLI` that only makes its parsers: nothing is parsed, built or run."""

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        self.config = Namespace(subcommand=None, seed_everything=False)

    def before_instantiate_classes(self) -> None: ...

    def instantiate_classes(self) -> None: ...


def command_line(cli_class: type[PrecisCLI]) -> PrecisCLI:
    """Run LightningCLI with the settings of the suite; it parses `sys.argv` and runs the command."""
    options = {"allow_abbrev": False, "exit_on_error": False}  # for the parsers of the command line and of commands
    return cli_class(
        LightningModule,
        LightningDataModule,
        subclass_mode_model=True,  # --model names a class
        subclass_mode_data=True,  # so does --data
        seed_everything_default=1,
        save_config_callback=None,  # `RunRecord` saves the config when training starts, after all checks
        parser_kwargs=options | {name: dict(options) for name in TRAINING},
        # The DataModules divide documents among ranks. Lightning logs every 50 steps, too rarely for curves of short
        # runs. Gradients are clipped to the norm 2, as by See et al. 2017.
        trainer_defaults={"use_distributed_sampler": False, "gradient_clip_val": 2.0, "log_every_n_steps": 10},
    )


@cache
def fit_parser(command: str = "fit") -> LightningArgumentParser:
    """Return the parser of `precis fit` or another command, to check configs; it raises `ArgumentError` for errors."""
    load_classes()
    return command_line(_Parsers)._parser(command)


def lost_process_message(trainer: Trainer, run: Path) -> str:
    """Return the message of a process that lost its connection to another, with the command that continues the run."""
    resume = next(callback.resume for callback in trainer.callbacks if isinstance(callback, GracefulStop))
    remedy = f"continue with: {resume}" if has_checkpoint(run) else "start the run again"
    return (
        f"process {trainer.global_rank} of {trainer.world_size} stopped at step {trainer.global_step:,}: the "
        "connection to another process is lost, which was killed, ran out of memory, or failed with a message of its "
        f"own; {remedy}"
    )
