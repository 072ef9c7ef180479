"""A Trainer on the CPU that logs, stores and prints nothing."""

from pytorch_lightning import Callback, Trainer


def quiet_trainer(*callbacks: Callback, **options) -> Trainer:
    """Return a Trainer with these callbacks; options replace those that keep it quiet."""
    parts = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary", "use_distributed_sampler")
    return Trainer(**{"accelerator": "cpu", "callbacks": list(callbacks)} | dict.fromkeys(parts, False) | options)
