"""Run a command of `precis`, without torch or Lightning: errors are reported in one line, signals are handled."""

import errno
import logging
import os
import re
import signal
import sys
import threading
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from jsonargparse import ArgumentError

from datamodules.cache_folder import default_cache
from datamodules.text.lines import printable, printable_line
from precis.config.command_table import COMMANDS, load_command
from precis.config.parse_errors import explain
from precis.config.trust import FLAG, SUITE, VARIABLE, import_policy, with_absolute_files


def _quiet() -> None:
    """Hide libraries' advice that users cannot follow, shorten other warnings, slow down progress bars in log files."""
    advice = "does not have many workers|The `srun` command|LeafSpec|overridden by `PrecisCLI|exists and is not empty"
    warnings.filterwarnings("ignore", f".*({advice})")  # such as to use more workers, or `srun`
    warnings.formatwarning = lambda message, *_: f"precis: warning: {printable(str(message))}\n"  # without source line
    logging.getLogger("pytorch_lightning.utilities.rank_zero").addFilter(
        lambda record: not record.getMessage().startswith(("💡", "TPU available"))  # tips, and absent devices
    )
    os.environ.setdefault("WANDB_SILENT", "true")
    if not sys.stderr.isatty():  # a log file: one line of progress per minute; tqdm reads these variables when imported
        times = dict.fromkeys(("DELAY", "MININTERVAL", "MAXINTERVAL"), "60")  # seconds
        for name, value in {**times, "BAR_FORMAT": "{desc}: {n_fmt} of {total_fmt}\n"}.items():
            os.environ.setdefault(f"TQDM_{name}", value)


def run(arguments: list[str]) -> None:
    """Run the command that the first argument names, with an example above its help; errors are raised."""
    for package in SUITE:  # first, because the working folder, appended below, may have folders of these names
        import_module(package)
    with suppress(OSError):  # the working folder may have been deleted
        sys.path.append(os.getcwd())  # for `--trainer.callbacks+=my_code.Hello`; installed code comes first
    command, *options = arguments
    if "--help" in options or "-h" in options:
        print(f"example: {COMMANDS[command].example}\n", flush=True)
    load_command(command)(options)


def run_command(arguments: list[str]) -> int:
    """Run a command: apply `--trust`, exit at SIGTERM, report errors in a line; return 0, 1, or 2 for bad arguments."""
    _quiet()
    trust_before, unraisable_before = os.environ.get(VARIABLE), sys.unraisablehook
    if FLAG in arguments:  # --trust
        arguments = [argument for argument in arguments if argument != FLAG]
        os.environ[VARIABLE] = "1"  # for the processes that this one starts, too
    is_main_thread = threading.current_thread() is threading.main_thread()
    is_default_handler = is_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_default_handler:  # raise SystemExit, so that half-written files are removed; training replaces this handler
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        sys.unraisablehook = _send_again  # for signals that arrive in a destructor, where Python ignores exceptions
    try:
        arguments = with_absolute_files(arguments)
        with import_policy(arguments):
            run(arguments)
    except BrokenPipeError:  # an OSError that `cli.main` handles
        raise
    except (ArgumentError, ValueError, OSError, *_errors_of_lightning()) as error:
        if os.environ.get("PRECIS_DEBUG"):
            raise
        is_usage_error = isinstance(error, ArgumentError)
        message = explain(str(error), arguments[0]) if is_usage_error else " ".join(str(error).split())
        message = re.sub(r"(\S{200})\S{300,}", r"\1...", message + _remedy(error))  # cut values longer than any path
        print(f"precis: error: {printable_line(message)}", file=sys.stderr)
        return 2 if is_usage_error else 1
    finally:
        if trust_before is None:  # for a caller in this process, `--trust` ends with the command
            os.environ.pop(VARIABLE, None)
        if is_default_handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # after an interruption, destructors of objects in its traceback run later than this, and need the hook
            if not isinstance(sys.exception(), KeyboardInterrupt | SystemExit):
                sys.unraisablehook = unraisable_before
    return 0


def _remedy(error: Exception) -> str:
    """Return how to avoid an error that the output encoding or cache folder causes; "" for other errors."""
    if isinstance(error, UnicodeEncodeError) and "PYTHONIOENCODING" not in str(error):  # else rich's message has it
        return "; set PYTHONIOENCODING=utf-8"
    refused = isinstance(error, OSError) and error.errno in (errno.EACCES, errno.ENOTDIR, errno.EPERM, errno.EROFS)
    if refused and error.filename and Path(error.filename).absolute().is_relative_to(default_cache().absolute()):
        return "; set PRECIS_CACHE to a folder that you can write to"
    return ""


def _errors_of_lightning() -> tuple[type[Exception], ...]:
    """Return Lightning's error for wrong settings in a tuple; empty if the command has not imported Lightning."""
    exceptions = sys.modules.get("pytorch_lightning.utilities.exceptions")
    return (exceptions.MisconfigurationException,) if exceptions else ()


def _send_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Send a signal again if its handler raised an exception in a destructor, which Python only passes to this hook."""
    if number := {KeyboardInterrupt: signal.SIGINT, SystemExit: signal.SIGTERM}.get(unraisable.exc_type):
        threading.Timer(0.05, os.kill, (os.getpid(), number)).start()  # after 0.05 s, when the destructor has ended
    elif unraisable.exc_type is not AttributeError:  # in a destructor after an interrupted constructor
        sys.__unraisablehook__(unraisable)
