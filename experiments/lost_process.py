"""Distributed runs in which one process has ended: the others stop with one message."""

import re

# of gloo, of torch.distributed's store, and of NCCL
_LOST_CONNECTION = re.compile(
    r"connection (was )?(closed|reset|refused)|broken pipe|remote (worker|process|peer)|socket timeout"
    r"|recvValue failed|sendBytes failed|NCCL error|ncclRemoteError|collective operation timeout",
    re.IGNORECASE,
)


def lost_process(error: BaseException) -> bool:
    """Return whether an error of a collective operation means that another process has ended or cannot be reached."""
    return isinstance(error, RuntimeError | ConnectionError) and bool(_LOST_CONNECTION.search(str(error)))
