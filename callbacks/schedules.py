"""Weights over time: pure functions of the optimizer step, so that a resumed run goes on exactly where it was."""


def ramp(step: int, start: int, steps: int, last: float) -> float:
    """0 before the start, then linear up to `last`, which is reached after so many steps; 0 steps switch at once."""
    if step < start:
        return 0.0
    return last if steps == 0 else last * min(1.0, (step - start + 1) / steps)
