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
        "precis.training.training_commands:fit",
    ),
    "validate": Command(
        "train",
        "score validation data",
        "precis validate --run runs/NAME",
        "precis.training.training_commands:validate",
    ),
    "test": Command(
        "train", "score test data", "precis test --run runs/NAME", "precis.training.training_commands:test"
    ),
    "predict": Command(
        "train",
        "write summaries of the test split without scoring them",
        "precis predict --run runs/NAME",
        "precis.training.training_commands:predict",
    ),
    "init": Command(
        "train",
        "make a project folder for your own data",
        "precis init PROJECT --train train.jsonl",
        "precis.housekeeping.init:init",
    ),
    "corpus": Command(
        "train", "describe a corpus", "precis corpus --corpus Docstrings", "precis.command_line.commands:corpus"
    ),
    "truncation": Command(
        "train",
        "count what a config cuts off",
        "precis truncation --config experiments/configs/graphsum/docstrings.yaml",
        "precis.training.truncation:truncation",
    ),
    "summarize": Command(
        "use",
        "summarize text",
        "precis summarize --checkpoint runs/NAME article.txt",
        "precis.command_line.commands:summarize",
    ),
    "report": Command(
        "use", "show scores and examples of a run", "precis report runs/NAME", "precis.command_line.commands:report"
    ),
    "attention": Command(
        "use",
        "draw RSTformer's attention",
        "precis attention runs/NAME article.txt --out pictures",
        "precis.summarizing.picture_commands:attention",
    ),
    "graph": Command(
        "use",
        "draw the graph of paragraphs",
        "precis graph --run runs/NAME --html graphs.html",
        "precis.summarizing.picture_commands:graph",
    ),
    "export": Command(
        "use",
        "export a model to give away",
        "precis export runs/NAME --out FOLDER",
        "precis.command_line.commands:export",
    ),
    "import": Command(
        "use",
        "make a run folder from a released checkpoint",
        "precis import bertext_cnndm.pt --out runs/bertext_cnndm",
        "precis.sharing.import_command:import_run",
    ),
    "push": Command(
        "use", "upload an exported model to the hub", "precis push FOLDER USER/MODEL", "precis.sharing.hub:push"
    ),
    "demo": Command(
        "use", "summarize in a browser", "precis demo runs/ONE runs/OTHER", "precis.playground.demo_command:demo"
    ),
    "evaluate": Command(
        "evaluate",
        "score any file of outputs",
        "precis evaluate runs/NAME/predictions.jsonl",
        "precis.evaluation.evaluate:evaluate",
    ),
    "baseline": Command(
        "evaluate",
        "write summaries of lead, LexRank, pretrained or chat models",
        "precis baseline lead --run runs/NAME --out lead.jsonl",
        "precis.baselines.baseline_command:baseline",
    ),
    "compare": Command(
        "evaluate",
        "compare runs",
        "precis compare runs/ONE runs/OTHER --html page.html",
        "precis.evaluation.compare:compare",
    ),
    "judge": Command(
        "evaluate",
        "let a chat model compare two systems",
        "precis judge runs/first/predictions.jsonl lead.jsonl --run runs/first"
        " --model NAME --base_url http://localhost:8000/v1 --out judged.jsonl",
        "precis.baselines.judge:judge",
    ),
    "sweep": Command(
        "launch",
        "run a grid or a hyperparameter search",
        "precis sweep experiments/sweeps/pointer_generator_rows.yaml --jobs 2",
        "precis.sweeping.sweep:sweep",
    ),
    "workspaces": Command(
        "launch",
        "make workspaces at W&B",
        "precis workspaces --entity NAME",
        "precis.dashboards.workspaces_command:workspaces",
    ),
    "parse": Command(
        "discourse",
        "parse the discourse structure of texts",
        "precis parse --show article.txt",
        "precis.discourse.discourse_commands:parse",
    ),
    "score-parser": Command(
        "discourse",
        "score a parser on gold trees",
        "precis score-parser TREEBANK --parser runs/NAME",
        "precis.discourse.discourse_commands:score_parser",
    ),
    "doctor": Command(
        "installation",
        "show versions, devices, caches and what is missing",
        "precis doctor",
        "precis.housekeeping.doctor:doctor",
    ),
    "runs": Command(
        "installation",
        "list run folders with score, step and state",
        "precis runs runs",
        "precis.runs.runs:runs",
    ),
    "clean": Command(
        "installation",
        "remove old entries of the cache",
        "precis clean --older_than 60",
        "precis.housekeeping.clean:clean",
    ),
    "completion": Command(
        "shell",
        "print the completion script of a shell",
        "precis completion bash > ~/.local/share/bash-completion/completions/precis",
        "precis.command_line.completion:completion",
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
