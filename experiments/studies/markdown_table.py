"""Tables of the studies, in Markdown."""

import math
from collections.abc import Sequence

from precis.statistics.statistics import Interval


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(value: Interval | float, digits: int = 1) -> str:
    """Format a number, with its interval if it has one; `none` for NaN."""
    mean = value.mean if isinstance(value, Interval) else value
    if math.isnan(mean):
        return "none"
    if not isinstance(value, Interval):
        return f"{mean:.{digits}f}"
    return f"{value.mean:.{digits}f} ({value.low:.{digits}f} to {value.high:.{digits}f})"
