"""Description of the scored checkpoint: its step, and whether all scheduled mechanisms were on."""

from pathlib import Path
from typing import Any

from pytorch_lightning.utilities import rank_zero_info, rank_zero_warn

from callbacks.schedules import Switch
from precis.runs.run_folder import read_checkpoint


def describe_checkpoint(path: Path) -> dict[str, Any]:
    """Return the description of a checkpoint that is recorded with its scores.

    Returns:
        `checkpoint` (its path), `step`, `loss_weights`, and `switches`: value and final value of each scheduled
        mechanism by name, None for a checkpoint that an earlier version of the suite has saved.

    Raises:
        UserError: if the file is not a checkpoint.
    """
    content = read_checkpoint(path)
    return {
        "checkpoint": str(path),
        "step": content["global_step"],
        "loss_weights": content.get("loss_weights", {}),
        "switches": content.get("switches"),
    }


def print_checkpoint(described: dict[str, Any]) -> None:
    """Print what `describe_checkpoint` returns, and warn of mechanisms that are not fully on."""
    states = {name: Switch(*values) for name, values in (described["switches"] or {}).items()}
    parts = [f"{name} {switch}" for name, switch in states.items()]
    if not parts:
        parts = [f"weight of {name} {weight:g}" for name, weight in described["loss_weights"].items()]
    rank_zero_info("; ".join([f"{described['checkpoint']}: step {described['step']:,}", *parts]))
    pending = [name for name, switch in states.items() if not switch.fully_on]
    if pending:
        rank_zero_warn(
            f"{described['checkpoint']} was saved before {', '.join(pending)} was fully on: its scores are not those "
            "of the model that config.yaml describes"
        )
