"""The commands of `precis` by name: import paths, so that a command loads only what it needs.

`fit`, `validate`, `test` and `predict` are parsed by LightningCLI (`experiments/training.py`); every other command is a
function that takes the remaining arguments.
"""

from collections.abc import Callable
from importlib import import_module

TRAINING = ("fit", "validate", "test", "predict")

COMMANDS = {
    "summarize": "experiments.commands:summarize",
    "corpus": "experiments.commands:corpus",
    "truncation": "experiments.truncation:truncation",
    "parse": "experiments.discourse.parse:parse",
    "graph": "experiments.pictures.graph:graph",
    "score-parser": "experiments.discourse.score_parser:score_parser",
    "report": "experiments.commands:report",
    "evaluate": "experiments.evaluation.evaluate:evaluate",
    "baseline": "experiments.evaluation.baseline:baseline",
    "export": "experiments.export:export",
    "push": "experiments.hub:push",
    "attention": "experiments.pictures.draw_attention:attention",
    "sweep": "experiments.sweeping.sweep:sweep",
    "compare": "experiments.evaluation.compare:compare",
    "sync": "experiments.sync:sync",
    "dashboards": "experiments.dashboards.command:dashboards",
}


def load_command(name: str) -> Callable[[list[str]], None]:
    """Import the function that runs a command.

    Raises:
        KeyError: if there is no such command.
    """
    module, _, function = COMMANDS[name].partition(":")
    return getattr(import_module(module), function)
