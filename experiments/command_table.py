"""The commands of `precis`: group, purpose, example and import path, so that a command loads only what it needs.

Each is a function that takes the remaining arguments; `fit`, `validate`, `test` and `predict` hand them to
LightningCLI.
"""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple


class Command(NamedTuple):
    """A command of `precis`.

    Attributes:
        group: the heading under which `precis --help` lists it.
        purpose: what it does, in a few words.
        example: a complete call.
        function: its import path.
    """

    group: str
    purpose: str
    example: str
    function: str


TRAINING = ("fit", "validate", "test", "predict")

COMMANDS = {
    "fit": Command(
        "train",
        "train a model",
        "precis fit --config experiments/configs/pointer_generator/docstrings.yaml --run_dir runs/NAME",
        "experiments.training_commands:fit",
    ),
    "validate": Command(
        "train", "score validation data", "precis validate --run runs/NAME", "experiments.training_commands:validate"
    ),
    "test": Command("train", "score test data", "precis test --run runs/NAME", "experiments.training_commands:test"),
    "predict": Command(
        "train",
        "write summaries of the test split without scoring them",
        "precis predict --run runs/NAME",
        "experiments.training_commands:predict",
    ),
    "init": Command(
        "train",
        "make a project folder for your own data",
        "precis init PROJECT --train train.jsonl",
        "experiments.housekeeping.init:init",
    ),
    "corpus": Command(
        "train", "describe a corpus", "precis corpus --corpus Docstrings", "experiments.commands:corpus"
    ),
    "truncation": Command(
        "train",
        "count what a config cuts off",
        "precis truncation --config experiments/configs/graphsum/docstrings.yaml",
        "experiments.truncation:truncation",
    ),
    "summarize": Command(
        "use",
        "summarize text",
        "precis summarize --checkpoint runs/NAME article.txt",
        "experiments.commands:summarize",
    ),
    "report": Command(
        "use", "show scores and examples of a run", "precis report runs/NAME", "experiments.commands:report"
    ),
    "attention": Command(
        "use",
        "draw RSTformer's attention",
        "precis attention runs/NAME article.txt --out pictures",
        "experiments.pictures.commands:attention",
    ),
    "graph": Command(
        "use",
        "draw the graph of paragraphs",
        "precis graph --run runs/NAME --html graphs.html",
        "experiments.pictures.commands:graph",
    ),
    "export": Command(
        "use", "export a model to give away", "precis export runs/NAME --out FOLDER", "experiments.commands:export"
    ),
    "import": Command(
        "use",
        "make a run folder from a released checkpoint",
        "precis import bertext_cnndm.pt --out runs/bertext_cnndm",
        "experiments.importing.command:import_run",
    ),
    "push": Command(
        "use", "upload an exported model to the hub", "precis push FOLDER USER/MODEL", "experiments.hub:push"
    ),
    "demo": Command(
        "use", "summarize in a browser", "precis demo runs/ONE runs/OTHER", "experiments.demo.command:demo"
    ),
    "evaluate": Command(
        "evaluate",
        "score any file of outputs",
        "precis evaluate runs/NAME/predictions.jsonl",
        "experiments.evaluation.evaluate:evaluate",
    ),
    "baseline": Command(
        "evaluate",
        "write summaries of lead, LexRank, pretrained or chat models",
        "precis baseline lead --run runs/NAME --out lead.jsonl",
        "experiments.baselines.command:baseline",
    ),
    "compare": Command(
        "evaluate",
        "compare runs",
        "precis compare runs/ONE runs/OTHER --html page.html",
        "experiments.evaluation.compare:compare",
    ),
    "judge": Command(
        "evaluate",
        "let a chat model compare two systems",
        "precis judge runs/first/predictions.jsonl lead.jsonl --run runs/first"
        " --model NAME --base_url http://localhost:8000/v1 --out judged.jsonl",
        "experiments.evaluation.judge:judge",
    ),
    "sweep": Command(
        "launch",
        "run a grid, a random search or a hyperparameter search",
        "precis sweep experiments/sweeps/pointer_generator_rows.yaml --jobs 2",
        "experiments.sweeping.sweep:sweep",
    ),
    "sync": Command("launch", "upload offline runs to W&B", "precis sync runs/NAME", "experiments.sync:sync"),
    "dashboard": Command(
        "launch",
        "show run folders in the browser, live, without an account",
        "precis dashboard runs/pointer_generator_rows",
        "experiments.dashboards.local:dashboard",
    ),
    "workspaces": Command(
        "launch",
        "make workspaces at W&B",
        "precis workspaces --entity NAME",
        "experiments.dashboards.command:workspaces",
    ),
    "parse": Command(
        "discourse",
        "parse the discourse structure of texts",
        "precis parse --show article.txt",
        "experiments.discourse.commands:parse",
    ),
    "score-parser": Command(
        "discourse",
        "score a parser on gold trees",
        "precis score-parser TREEBANK --parser runs/NAME",
        "experiments.discourse.commands:score_parser",
    ),
    "doctor": Command(
        "installation",
        "show versions, devices, caches and what is missing",
        "precis doctor",
        "experiments.housekeeping.doctor:doctor",
    ),
    "runs": Command(
        "installation",
        "list run folders with score, step and state",
        "precis runs runs",
        "experiments.housekeeping.runs:runs",
    ),
    "clean": Command(
        "installation",
        "remove old entries of the cache",
        "precis clean --older_than 60",
        "experiments.housekeeping.clean:clean",
    ),
    "completion": Command(
        "shell",
        "print the completion script of a shell",
        "precis completion bash > ~/.local/share/bash-completion/completions/precis",
        "experiments.completion:completion",
    ),
}


OTHER_NAMES = {"train": "fit", "score": "evaluate", "generate": "predict"}  # in other tools, for suggestions


def load_command(name: str) -> Callable[[list[str]], None]:
    """Import the function that runs a command.

    Raises:
        KeyError: if there is no such command.
    """
    module, _, function = COMMANDS[name].function.partition(":")
    return getattr(import_module(module), function)


def list_commands() -> str:
    """Return the commands by group, each with its purpose and an example."""
    width = max(len(name) for name in COMMANDS)
    lines = []
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines.append(f"\n{group}")
        for name, command in COMMANDS.items():
            if command.group == group:
                lines += [f"  {name:{width}}  {command.purpose}", f"  {'':{width}}  {command.example}"]
    return "\n".join(lines)
