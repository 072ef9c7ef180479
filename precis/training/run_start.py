"""The start of `precis fit`, `validate`, `test` and `predict`: the run folder, its lock, and what training resumes."""

import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jsonargparse import Namespace
from pytorch_lightning.utilities import rank_zero_only

from datamodules.documents import UserError
from datamodules.file_locks import release_lock
from precis.config.trust import FLAG, check_permitted_names, needs_trust
from precis.config.written_paths import check_links, check_written_paths, outside_paths
from precis.runs import checkpoint_files
from precis.runs.run_state import lock_run
from precis.training.cluster_tasks import check_run_dir, check_tasks
from precis.training.dry_run import DryRunReport, prepare_dry_run


@dataclass
class RunStart:
    """Decisions of a command before model, data and trainer are built; later hooks of `PrecisCLI` read them."""

    command: str  # `fit`, `validate`, `test` or `predict`
    config: Namespace  # config of the command, with values for this start only, such as `ckpt_path`
    folder: Path  # the run folder
    is_new: bool  # whether the folder did not exist before
    record: str  # config as YAML, without the values for this start only
    locks: ExitStack  # releases the lock of the folder when the command ends
    source: Path | None = None  # checkpoint of `--start_from`, which has the initial weights
    dry_run: DryRunReport | None = None  # callback of `--dry-run`

    @property
    def trust(self) -> list[str]:
        """`--trust`, if commands that read the config of the run folder need it, in a list."""
        return [FLAG] if needs_trust(self.config) or any(outside_paths(self.config, self.folder)) else []

    def lock(self) -> None:
        """Lock the run folder until the command ends."""
        self.locks.callback(release_lock, lock_run(self.folder))


def start_run(command: str, config: Namespace, dump: Callable[[Namespace], str], locks: ExitStack) -> RunStart:
    """Choose the run folder, check that the command may write to it, and decide whether training is resumed.

    `dump` returns a config as YAML, for `record`, before values for this start only, such as `ckpt_path`, are set.
    `locks` releases the folder's lock. A `UserError` if the folder has a run that is not resumed, or no run to resume,
    or if the config has an output path outside the folder, or names a class that configs must not name.
    """
    check_permitted_names(config)
    check_tasks(config.trainer.as_dict())  # that SLURM or torchrun started a process for each device
    folder = config.run_dir = config.run_dir or _new_folder(config)
    check_written_paths(config, folder, sys.argv[1:])  # outputs stay in the folder, unless on the command line
    check_links(folder)  # no link leads out of the folder
    fitting = command == "fit"
    source = checkpoint_files.source_checkpoint(config) if fitting and config.start_from else None  # initial weights
    if config.checkpoint.monitor == "val/rouge1" and config.model.init_args.get("val_summaries") == 0:
        config.checkpoint.monitor, config.checkpoint.mode = "val/loss", "min"  # there is no ROUGE without summaries
    record = config.clone()
    record.resume = record.dry_run = False  # so that a later start from config.yaml trains a new run
    start = RunStart(command, config, folder, not folder.exists(), record=dump(record), locks=locks, source=source)
    _check_command(start)
    if config.checkpoint.dirpath is None:
        config.checkpoint.dirpath = str(folder / "checkpoints")
    if config.dry_run:
        start.dry_run = prepare_dry_run(config)
    elif fitting:
        _lock_and_resume(start)
    else:
        warnings.filterwarnings("ignore", ".*The dirpath has changed")  # a warning of Lightning after a run is moved
    return start


def _new_folder(config: Namespace) -> Path:
    """Return runs/MODEL/TIME, and add it to `sys.argv` as `--run_dir`."""
    if not config.dry_run:  # a dry run writes no folder, so the processes need not agree on one
        check_run_dir()  # refuses several processes, whose times may differ
    name = config.model.class_path.rsplit(".", 1)[-1].lower()
    folder = Path("runs") / name / datetime.now().strftime("%Y%m%d-%H%M%S")
    sys.argv.append(f"--run_dir={folder}")  # for the processes that Lightning starts on other devices
    return folder


def _check_command(start: RunStart) -> None:
    """Raise a `UserError` for `--dry-run` outside `fit`, `--out` with `fit` or not .jsonl, or missing weights."""
    config, command = start.config, start.command
    if config.dry_run and command != "fit":
        raise UserError(f"--dry-run: precis {command} does not have this option; leave it out")
    if command != "fit" and not config.ckpt_path:
        raise UserError(f"precis {command} needs a trained model; pass --run with the folder of a run")
    if config.out is not None and (command == "fit" or config.out.suffix != ".jsonl"):
        problem = "precis fit writes no predictions" if command == "fit" else "predictions are JSON Lines"
        remedy = "give a name that ends in .jsonl to validate, test or predict"
        raise UserError(f"--out {config.out}: {problem}; {remedy}")


def _lock_and_resume(start: RunStart) -> None:
    """Lock an existing run folder; set `resume` and `ckpt_path`; delete files of a start that saved no checkpoint."""
    config, folder = start.config, start.folder
    is_first = rank_zero_only.rank == 0
    if is_first:  # the checks would fail on other ranks, which may already see files that rank 0 has written
        checkpoint_files.check_writable(folder)
        if not config.resume:
            checkpoint_files.check_unused(folder)
        if not start.is_new:  # `PrecisCLI.fit` creates and locks a new one
            start.lock()
    # With `auto`, a run without a checkpoint starts anew, and one that was ended early is not continued.
    is_auto = config.resume == "auto"
    if is_auto:
        config.resume = checkpoint_files.has_checkpoint(folder)
        if is_first and not config.resume:
            # A start that was killed before its first checkpoint leaves these files. config.yaml is kept, so that the
            # folder is still a run if this start is killed, too.
            for name in ("metrics.csv", "checkpoints/best.ckpt"):
                (folder / name).unlink(missing_ok=True)
    if not config.resume:
        return
    config.ckpt_path = str(checkpoint_files.resumable(folder, write=is_first))  # rank 0 renames a damaged last.ckpt
    if is_auto:
        checkpoint_files.end_if_stopped_early(folder, Path(config.ckpt_path))  # exits with status 0
    if (folder / "text").is_dir() and "tokenizer_dir" in config.data.init_args:
        config.data.init_args.tokenizer_dir = folder / "text"  # the run's copy; the original may be gone
