"""`precis fit`, `validate`, `test` and `predict`: LightningCLI with a run folder."""

import os
import shlex
import shutil
import signal
import sys
import traceback
import warnings
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import wandb
import yaml
from jsonargparse import Namespace
from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer
from pytorch_lightning.callbacks import LearningRateMonitor
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.utilities import rank_zero_info, rank_zero_only

from callbacks import (
    DivergenceCheck,
    GracefulStop,
    GradientNorm,
    MonitorCheck,
    PredictionWriter,
    Previews,
    StartFrom,
    Throughput,
)
from callbacks.divergence import Diverged
from callbacks.graceful_stop import early_stopping_reason
from callbacks.monitor_check import check_at_validations
from datamodules.documents import UserError
from datamodules.file_locks import release_lock
from lightning_modules.summarizer import Summarizer
from precis.config.command_table import TRAINING
from precis.config.linked_arguments import check_linked
from precis.config.load_classes import load_classes
from precis.config.parsers import provide_parsers
from precis.config.run_arguments import add_run_arguments
from precis.config.run_config import read_config
from precis.config.trust import FLAG, check_checkpoint, check_permitted_names, needs_trust
from precis.config.value_checks import (
    REFUSALS,
    check_no_keys,
    check_ranges,
    convert_batch_counts,
    explain_refusal,
    explain_trainer_refusal,
)
from precis.config.written_paths import check_links, check_written_paths, outside_paths
from precis.runs.checkpoint_files import check_unused, check_writable, clear_start, has_checkpoint, resumable
from precis.runs.lost_process import lost_process, lost_process_message
from precis.runs.metrics_file import MetricsRecord, RunCSVLogger
from precis.runs.prediction_files import SPLITS, predictions_path, source_name
from precis.runs.run_folder import RunRecord, TruncationTable, read_checkpoint
from precis.runs.run_lock import lock_run
from precis.runs.starting_point import check_same_model, end_if_stopped_early, source_checkpoint
from precis.runs.tested_checkpoint import describe_checkpoint, print_checkpoint
from precis.runs.tracking import WandbRecord, wandb_logger
from precis.training.cluster_tasks import check_run_dir, check_tasks, trainer_plugins
from precis.training.dry_run import prepare_dry_run
from precis.training.progress_bar import TrainingProgressBar
from precis.training.requeue import requeue
from precis.training.run_progress import ProgressLines, StateRecord
from precis.trials.trial_report import TrialReport, trial_number


class PrecisCLI(LightningCLI):
    """LightningCLI with a run folder, which is locked during training."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.lock: int | None = None
        try:
            super().__init__(*arguments, **options)
        finally:
            if self.lock is not None:
                release_lock(self.lock)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the options of the run."""
        add_run_arguments(parser)

    @staticmethod
    def configure_optimizers(lightning_module: Any, optimizer: Any, lr_scheduler: Any = None) -> Any:
        """Return an optimizer of the command line; its schedule advances after every step."""
        if lr_scheduler is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": lr_scheduler, "interval": "step"}}

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the arguments, and check values and checkpoint before LightningCLI uses them.

        Raises:
            UserError: if the checkpoint is damaged, a value is out of range, or an argument of the data is set that
                is linked to the model.
        """
        super().parse_arguments(parser, args)
        config = self.config[self.config.subcommand]
        convert_batch_counts(config.trainer)
        check_ranges(config)
        check_no_keys(config)
        check_checkpoint(config)
        check_linked(sys.argv[1:] if args is None else args, config)
        path = config.ckpt_path
        if path and Path(path).is_file():
            check_same_model("--ckpt_path", Path(path), config.model.class_path)
            read_checkpoint(Path(path))

    def before_instantiate_classes(self) -> None:
        """Choose the run folder, and check that this command may write to it.

        Raises:
            UserError: if the folder has a run that is not resumed, or no run to resume; or if the config names a
                class that configs may not name.
        """
        config = self.config[self.subcommand] if self.subcommand else self.config
        check_permitted_names(config)
        self.values = config
        check_tasks(config.trainer.as_dict())
        if config.run_dir is None:
            if not config.dry_run:  # which writes no run folder
                check_run_dir(os.environ)
            name = config.model.class_path.rsplit(".", 1)[-1].lower()
            config.run_dir = Path("runs") / name / datetime.now().strftime("%Y%m%d-%H%M%S")
            sys.argv.append(f"--run_dir={config.run_dir}")  # for the processes that Lightning starts on other devices
        folder = self.folder = config.run_dir
        check_written_paths(config, folder, sys.argv[1:])
        check_links(folder)
        fitting = self.subcommand == "fit"
        self.fresh = not folder.exists()
        if not fitting:
            warnings.filterwarnings("ignore", ".*The dirpath has changed")  # the run may have been moved
        if fitting and config.start_from:
            self.source = source_checkpoint(config)
        self.record = self._record() if fitting else ""  # before values that only hold for this start are filled in
        if config.checkpoint.dirpath is None:
            config.checkpoint.dirpath = str(folder / "checkpoints")
        if config.checkpoint.monitor == "val/rouge1" and config.model.init_args.get("val_summaries") == 0:
            config.checkpoint.monitor, config.checkpoint.mode = "val/loss", "min"  # there is no ROUGE without summaries
        if not fitting and not config.ckpt_path:
            raise UserError(f"precis {self.subcommand} needs a trained model; pass --run with the folder of a run")
        if config.out is not None and (fitting or config.out.suffix != ".jsonl"):
            problem = "precis fit writes no predictions" if fitting else "predictions are JSON Lines"
            remedy = "give a name that ends in .jsonl to validate, test or predict"
            raise UserError(f"--out {config.out}: {problem}; {remedy}")
        if config.dry_run:
            self.dry_run = prepare_dry_run(self.subcommand, config)
        elif fitting:
            self._check_folder(config, folder)

    def _check_folder(self, config: Namespace, folder: Path) -> None:
        """Lock the run folder, and decide whether the run is resumed or started."""
        first = rank_zero_only.rank == 0  # other ranks may already see files that rank 0 has written
        if first:
            check_writable(folder)
            if not config.resume:
                check_unused(folder)
            if folder.is_dir():
                self.lock = lock_run(folder)
        unless_ended = config.resume == "auto"
        if unless_ended:
            config.resume = has_checkpoint(folder)
            if first and not config.resume:
                clear_start(folder)
        if config.resume:
            config.ckpt_path = str(resumable(folder, write=first))
            if unless_ended:
                end_if_stopped_early(folder, Path(config.ckpt_path))
            if (folder / "text").is_dir() and "tokenizer_dir" in config.data.init_args:
                config.data.init_args.tokenizer_dir = folder / "text"  # its original folder may no longer exist

    def _record(self) -> str:
        """Return config.yaml of the run, with which the run can be started again in any folder."""
        config = self.values.clone()
        config.resume = config.dry_run = False
        return self._parser(self.subcommand).dump(config, skip_none=False)

    def instantiate_classes(self) -> None:
        """Build model, data and trainer, and load the parser that the data names.

        Raises:
            UserError: if a value is refused; the message has the key and the cause.
        """
        try:
            super().instantiate_classes()
        except UserError:
            raise
        except REFUSALS as error:
            raise UserError(explain_refusal(error, self.values)) from error
        if isinstance(self.model, Summarizer):
            self.model.check_data(self.datamodule)
        provide_parsers(self.datamodule)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Return the trainer with the loggers and callbacks of the run folder."""
        config, folder, fitting = self.values, self.folder, self.subcommand == "fit"
        summarizing = isinstance(self.model, Summarizer)  # parsers are trained here too
        extra: list[Callback] = []
        if summarizing:
            extra += [TruncationTable(folder)] if fitting else self._test_records()
        if config.trainer.enable_progress_bar is not False and sys.stdout.isatty():
            extra.append(TrainingProgressBar(leave=False))
        else:
            kwargs["enable_progress_bar"] = False
            extra.append(ProgressLines())
        loggers: list[Any] = []
        if config.dry_run:
            extra = [self.dry_run]
        elif fitting:
            extra += [RunRecord(folder, self.record), DivergenceCheck(folder), GradientNorm(), Throughput()]
            self.state = StateRecord(folder)
            extra += [self.state, self._graceful_stop(folder, config)]
            if config.previews and summarizing:
                extra.append(Previews(folder / "previews", documents=config.previews))
            loggers.append(RunCSVLogger(folder))
            extra.append(MetricsRecord(loggers[0]))
            if config.start_from:
                extra.append(StartFrom(self.source))
            if trial_number(folder) is not None:
                extra.append(TrialReport(folder))
        tracked = fitting or (self.subcommand == "test" and (folder / "wandb" / "run_id").is_file())
        if config.wandb != "off" and tracked:
            record = yaml.safe_load(self.record) if fitting else read_config(folder)
            loggers.append(wandb_logger(folder, config.wandb, config.wandb_project, record))
            extra.append(WandbRecord(folder, record, config.wandb_models))
            if fitting:
                extra.append(LearningRateMonitor("step"))
        self.parser_extra = extra
        logger = self._get(self.config_init, "trainer").logger
        if logger is not False:  # loggers of the command line come after those of the run folder
            added = [] if logger in (None, True) else logger if isinstance(logger, list) else [logger]
            kwargs["logger"] = [*loggers, *added] or False
        kwargs["plugins"] = trainer_plugins(self._get(self.config_init, "trainer").plugins)
        return super().instantiate_trainer(**kwargs)

    def _test_records(self) -> list[Callback]:
        """Return the callbacks that write predictions and truncation, with a file for each split and corpus."""
        command, folder = self.subcommand, self.folder
        corpus = yaml.safe_load(self._parser(command).dump(self.values, skip_none=False))["data"]["init_args"]["corpus"]
        is_run = (folder / "config.yaml").is_file()
        run_corpus = read_config(folder)["data"]["init_args"].get("corpus") if is_run else corpus
        source = source_name(run_corpus, corpus)
        path = self.values.out if self.values.out else predictions_path(folder, command, source)
        rank_zero_info(f"predictions: {path}")
        arguments = shlex.join(["precis", *sys.argv[1:]])
        described = {"command": arguments, "split": SPLITS[command], "corpus": corpus}
        return [PredictionWriter(path, self._tested_checkpoint(), described), TruncationTable(folder, source)]

    def _tested_checkpoint(self) -> dict[str, Any] | None:
        """Print which weights are scored, and return it for the record."""
        path = Path(self.values.ckpt_path)
        if not path.is_file():  # a name that Lightning resolves, such as "last"
            return None
        described = describe_checkpoint(path)
        print_checkpoint(described)
        return described

    @staticmethod
    def _graceful_stop(folder: Path, config: Namespace) -> GracefulStop:
        """Return the callback that saves and stops on signals.

        It also requeues a SLURM job, unless the task of a sweep does so.
        """
        trust = [FLAG] if needs_trust(config) or any(outside_paths(config, folder)) else []
        resume = shlex.join(["precis", "fit", "--run", str(folder), *trust])
        in_job = "SLURM_JOB_ID" in os.environ
        on_stop = partial(requeue, folder) if in_job and os.environ.get("PRECIS_REQUEUE") != "off" else None
        last = folder / "checkpoints" / "last.ckpt"
        return GracefulStop(last, resume, save_every=config.save_every, patient=in_job, on_stop=on_stop)

    def _run_subcommand(self, subcommand: str) -> None:
        """Run the command.

        Raises:
            UserError: if the checkpoint has another structure than Lightning restores.
        """
        try:
            super()._run_subcommand(subcommand)
        except UserError:
            raise
        except Exception as error:
            files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
            if not any(file.endswith("checkpoint_connector.py") for file in files):
                raise
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise UserError(
                f"{self.values.ckpt_path}: cannot be restored ({reason}); give another checkpoint of the run"
            ) from error

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list) -> Trainer:
        try:
            trainer = super()._instantiate_trainer(config, [*callbacks, *self.parser_extra])
        except REFUSALS as error:
            raise UserError(explain_trainer_refusal(error, self.values.trainer)) from error
        if self.subcommand == "fit":
            trainer.callbacks.insert(0, MonitorCheck())  # before the callbacks of the config, which it checks
        check_at_validations(trainer)
        return trainer

    def fit(self, model: LightningModule, **arguments: Any) -> None:
        """Train in the run folder, which is removed again if the run ends before its first step."""
        if self.values.dry_run:
            self.trainer.fit(model, **arguments)
            return
        first = self.trainer.is_global_zero
        self.folder.mkdir(parents=True, exist_ok=True)
        if first and self.lock is None and self.fresh:
            self.lock = lock_run(self.folder)
            check_unused(self.folder)  # another process may have started to use it meanwhile
        for logger in self.trainer.loggers:
            if isinstance(logger, RunCSVLogger) and self.values.resume and first:
                logger.keep_rows_of(read_checkpoint(Path(self.values.ckpt_path), verify=False))
        rank_zero_info(f"run folder: {self.folder}")
        try:
            self.trainer.fit(model, **arguments)
            self.state.write(self.trainer, "finished")
            if reason := early_stopping_reason(self.trainer):
                rank_zero_info(f"training ended early after step {self.trainer.global_step:,}: {reason}")
        except BaseException as end:
            if self.state.training:
                stopped = "stopped" if isinstance(end, SystemExit | KeyboardInterrupt) else "failed"
                self.state.write(self.trainer, "diverged" if isinstance(end, Diverged) else stopped)
            if isinstance(end, SystemExit) and isinstance(end.__context__, KeyboardInterrupt):
                end.code = 128 + signal.SIGINT  # Lightning would exit with status 1
            lost = isinstance(end, RuntimeError | ConnectionError) and self.trainer.world_size > 1 and lost_process(end)
            if lost:
                raise UserError(lost_process_message(self.trainer, self.folder)) from end
            raise
        finally:
            if self.values.wandb != "off":
                wandb.finish()
            if self.fresh and first and self.trainer.global_step == 0:
                shutil.rmtree(self.folder, ignore_errors=True)

    def after_test(self) -> None:
        """Finish the W&B run that the scores were logged to."""
        wandb.finish()


class _Parsers(PrecisCLI):
    """Parsers of the command line only: nothing is parsed, built or run."""

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        self.config = Namespace(subcommand=None, seed_everything=False)

    def before_instantiate_classes(self) -> None: ...

    def instantiate_classes(self) -> None: ...


def command_line(cli_class: type[PrecisCLI]) -> PrecisCLI:
    """Run LightningCLI with the settings of the suite; it parses `sys.argv` and runs the command."""
    options = {"allow_abbrev": False, "exit_on_error": False}
    return cli_class(
        LightningModule,
        LightningDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        seed_everything_default=1,
        save_config_callback=None,  # `RunRecord` saves the config when training starts, after all checks
        parser_kwargs=options | {name: dict(options) for name in TRAINING},
        trainer_defaults={"use_distributed_sampler": False, "gradient_clip_val": 2.0},
    )


def fit_parser(command: str = "fit") -> LightningArgumentParser:
    """Return the parser of `precis fit` (or another command of Lightning), to check a config without starting a run.

    It raises `ArgumentError`.
    """
    load_classes()
    return command_line(_Parsers)._parser(command)
