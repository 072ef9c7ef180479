"""Durations for tables."""


def format_seconds(seconds: float) -> str:
    """Return a duration in its two largest units, such as `2 h 5 min`."""
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    rest, parts = round(seconds), []
    for unit, size in units:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
