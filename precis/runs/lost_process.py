"""Distributed runs in which one process has ended: the others stop with one message."""

import re
from pathlib import Path

from pytorch_lightning import Trainer

from callbacks import GracefulStop
from precis.runs.checkpoint_files import has_checkpoint

# Messages of gloo, of torch.distributed's store, and of NCCL.
_LOST_CONNECTION = re.compile(
    r"connection (was )?(closed|reset|refused)|broken pipe|remote (worker|process|peer)|socket timeout"
    r"|recvValue failed|sendBytes failed|NCCL error|ncclRemoteError|collective operation timeout",
    re.IGNORECASE,
)


def lost_process(error: BaseException) -> bool:
    """Return whether an error of a collective operation means that another process has ended or cannot be reached."""
    return isinstance(error, RuntimeError | ConnectionError) and bool(_LOST_CONNECTION.search(str(error)))


def lost_process_message(trainer: Trainer, run: Path) -> str:
    """Return the message of a process that lost another one, with the command that continues the run."""
    resume = next(callback.resume for callback in trainer.callbacks if isinstance(callback, GracefulStop))
    remedy = f"continue with: {resume}" if has_checkpoint(run) else "start the run again"
    return (
        f"process {trainer.global_rank} of {trainer.world_size} stopped at step {trainer.global_step:,}: the "
        "connection to another process is lost, which was killed, ran out of memory, or failed with a message of its "
        f"own; {remedy}"
    )
