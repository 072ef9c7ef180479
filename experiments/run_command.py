"""Run a command of `precis`: imports, configs, errors in one line, signals."""

import logging
import os
import re
import signal
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType

import datasets
from jsonargparse import ArgumentError
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from datamodules.documents import CorpusError
from datamodules.text.printable import printable, printable_line
from experiments.command_table import COMMANDS, TRAINING, load_command
from experiments.linked_arguments import NOTE
from experiments.parse_errors import check_configs, explain
from experiments.run_folder import best_checkpoint, read_config
from experiments.shipped import resolve_configs
from experiments.training import PrecisCLI, command_line, load_classes
from experiments.trust import FLAG, VARIABLE, import_policy
from lightning_modules.checkpoints import EXPORTED


def with_run(arguments: list[str]) -> list[str]:
    """`--run FOLDER` as the config, checkpoint and text of that folder; for `fit`, as the run to resume, or
    to start anew if it has no checkpoint yet.

    Raises:
        CorpusError: if the folder is no run.
    """
    at = next((i for i, argument in enumerate(arguments) if argument.partition("=")[0] == "--run"), None)
    if at is None:
        return arguments
    given = arguments[at].partition("=")[2]
    rest = arguments[:at] + arguments[at + (1 if given else 2) :]
    folder = given or "".join(arguments[at + 1 : at + 2])
    if not folder:
        raise CorpusError("--run needs the folder of a run")
    read_config(Path(folder))
    command, *options = rest
    if (Path(folder) / EXPORTED).is_file():
        remedy = "use precis summarize --checkpoint or precis.load, or name the run that it was exported from"
        raise CorpusError(f"{folder}: an exported model, which precis {command} does not read; {remedy}")
    found = [f"--config={folder}/config.yaml", f"--run_dir={folder}"]
    if command == "fit":
        return [command, *found, "--resume=auto", *options]
    found.append("--resume=false")
    if (Path(folder) / "text").is_dir():
        found.append(f"--data.text={folder}/text")
    if not any(option.startswith("--ckpt_path") for option in options):
        found.append(f"--ckpt_path={best_checkpoint(Path(folder))}")
    return [command, *found, *options]


def _quiet() -> None:
    """Leaves out what says nothing of the run: advice, deprecations inside libraries, bars that nobody watches."""
    for text in (
        "does not have many workers",
        "The `srun` command",
        "LeafSpec",
        "overridden by `PrecisCLI",
        "exists and is not empty",
    ):
        warnings.filterwarnings("ignore", f".*{text}")
    warnings.formatwarning = lambda message, *_: f"precis: warning: {printable(str(message))}\n"
    logging.getLogger("pytorch_lightning.utilities.rank_zero").addFilter(_says_something)
    os.environ.setdefault("WANDB_SILENT", "true")
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()


def _says_something(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(("💡", "TPU available"))


def run(arguments: list[str]) -> None:
    """Run a command of the command table; errors are raised."""
    with suppress(OSError):  # a folder that was deleted meanwhile
        sys.path.append(os.getcwd())  # finds `--trainer.callbacks+=my_code.Hello`; installed code comes first
    command, *rest = arguments
    if command in (*TRAINING, "truncation"):
        rest = resolve_configs(rest)
    if command in COMMANDS:
        load_command(command)(rest)
        return
    load_classes()
    arguments = with_run([command, *rest])
    check_configs(arguments)
    if any(argument.partition("=")[0] == "--data.help" for argument in arguments):
        print(NOTE)
    sys.argv = [sys.argv[0], *arguments]  # where LightningCLI looks, and those that it starts for other devices
    command_line(PrecisCLI)


def run_command(arguments: list[str]) -> int:
    """Run a command and report errors that a user can correct in one line.

    Args:
        arguments: the command and its options.

    Returns:
        0, 1 for an error, 2 for wrong arguments. With PRECIS_DEBUG=1 errors are raised.
    """
    _quiet()
    trust_before = os.environ.get(VARIABLE)
    if FLAG in arguments:
        arguments = [argument for argument in arguments if argument != FLAG]
        os.environ[VARIABLE] = "1"  # for the processes that this one starts, too
    alone = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if alone:  # an exception, so that nothing half-written is left; training has an answer of its own
        signal.signal(signal.SIGTERM, _terminated)
    try:
        with import_policy(arguments):
            run(arguments)
    except (ArgumentError, ValueError, OSError, MisconfigurationException) as error:
        if os.environ.get("PRECIS_DEBUG"):
            raise
        wrong = isinstance(error, ArgumentError)
        message = explain(str(error), arguments[0]) if wrong else " ".join(str(error).split())
        message = re.sub(r"(\S{200})\S{300,}", r"\1...", message)  # a value that is longer than any path
        print(f"precis: error: {printable_line(message)}", file=sys.stderr)
        return 2 if wrong else 1
    finally:
        if trust_before is None:
            os.environ.pop(VARIABLE, None)
        if alone:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return 0


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
