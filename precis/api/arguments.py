"""Types of the arguments of the Python API."""

from typing import Any

from datamodules.documents import UserError


def checked(name: str, value: Any, kinds: Any, remedy: str) -> Any:
    """Return an argument of one of these types.

    Raises:
        UserError: if it is of another type.
    """
    if not isinstance(value, kinds):
        raise UserError(f"{name} is of type {type(value).__name__}; give {remedy}")
    return value


def metric_names(metrics: Any) -> str | None:
    """Return names of metrics, separated by commas; None if none are given.

    Raises:
        UserError: if they are neither a string nor a list of strings.
    """
    if isinstance(metrics, str | None):
        return metrics
    remedy = "names of metrics, as a list or separated by commas"
    return ",".join(checked("metrics", name, str, remedy) for name in checked("metrics", metrics, list | tuple, remedy))
