"""Former names of classes in the configs of run folders."""

from typing import Any

from precis.files.nested_values import map_strings

# Former class path -> present class path.
MOVED = {"experiments.run_scorer.RunScorer": "precis.training.run_scorer.RunScorer"}


def upgrade(config: Any) -> Any:
    """Return the content of a YAML file with the present names of classes."""
    return map_strings(config, lambda text: MOVED.get(text, text)) if isinstance(config, dict) else config
