"""Description of the scored checkpoint: its step, and whether all scheduled mechanisms were on."""

from pathlib import Path
from typing import Any

from pytorch_lightning.utilities import rank_zero_info, rank_zero_warn

from callbacks.schedules import Switch
from datamodules.text.lines import counted
from lightning_modules.checkpoints import read_checkpoint


def describe_checkpoint(path: Path) -> dict[str, Any]:
    """Print which weights are scored, warn of mechanisms that are not fully on, and return what the scores record.

    Returns:
        `checkpoint` (its path), `step`, `loss_weights`, and `switches`: value and final value of each scheduled
        mechanism by name.
    """
    content = read_checkpoint(path)
    switches = {name: Switch(*values) for name, values in content.get("switches", {}).items()}
    states = [f"{name} {switch}" for name, switch in switches.items()]
    rank_zero_info("; ".join([f"{path}: trained for {counted(content['global_step'], 'step')}", *states]))
    if pending := [name for name, switch in switches.items() if not switch.fully_on]:
        rank_zero_warn(
            f"{path} was saved before {', '.join(pending)} was fully on: its scores are not those of the model that "
            "config.yaml describes"
        )
    return {
        "checkpoint": str(path),
        "step": content["global_step"],
        "loss_weights": content.get("loss_weights", {}),
        "switches": {name: list(switch) for name, switch in switches.items()},
    }
