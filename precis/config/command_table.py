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
        function: its import path.
        example: a complete call.
    """

    group: str
    purpose: str
    function: str
    example: str


TRAINING = ("fit", "validate", "test", "predict")

# fmt: off
COMMANDS = {
    "fit": Command("train", "train a model", "precis.training.training_commands:fit",
        "precis fit --config experiments/configs/pointer_generator/docstrings.yaml --run_dir runs/NAME"),
    "validate": Command("train", "score validation data", "precis.training.training_commands:validate",
        "precis validate --run runs/NAME"),
    "test": Command("train", "score test data", "precis.training.training_commands:test",
        "precis test --run runs/NAME"),
    "predict": Command("train", "write summaries of the test split without scoring them",
        "precis.training.training_commands:predict",
        "precis predict --run runs/NAME"),
    "init": Command("train", "make a project folder for your own data", "precis.housekeeping.init:init",
        "precis init PROJECT --train train.jsonl"),
    "corpus": Command("train", "describe a corpus", "precis.command_line.commands:corpus",
        "precis corpus --corpus Docstrings"),
    "truncation": Command("train", "count what a config cuts off", "precis.training.truncation:truncation",
        "precis truncation --config experiments/configs/graphsum/docstrings.yaml"),
    "summarize": Command("use", "summarize text", "precis.command_line.commands:summarize",
        "precis summarize --checkpoint runs/NAME article.txt"),
    "report": Command("use", "show scores and examples of a run", "precis.command_line.commands:report",
        "precis report runs/NAME"),
    "attention": Command("use", "draw RSTformer's attention", "precis.summarizing.picture_commands:attention",
        "precis attention runs/NAME article.txt --out pictures"),
    "graph": Command("use", "draw the graph of paragraphs", "precis.summarizing.picture_commands:graph",
        "precis graph --run runs/NAME --html graphs.html"),
    "export": Command("use", "export a model to give away", "precis.command_line.commands:export",
        "precis export runs/NAME --out FOLDER"),
    "import": Command("use", "make a run folder from a released checkpoint", "precis.sharing.import_command:import_run",
        "precis import bertext_cnndm.pt --out runs/bertext_cnndm"),
    "push": Command("use", "upload an exported model to the hub", "precis.sharing.hub:push",
        "precis push FOLDER USER/MODEL"),
    "demo": Command("use", "summarize in a browser", "precis.playground.demo_command:demo",
        "precis demo runs/ONE runs/OTHER"),
    "evaluate": Command("evaluate", "score any file of outputs", "precis.evaluation.evaluate:evaluate",
        "precis evaluate runs/NAME/predictions.jsonl"),
    "baseline": Command("evaluate", "write summaries of lead, LexRank, pretrained or chat models",
        "precis.baselines.baseline_command:baseline",
        "precis baseline lead --run runs/NAME --out lead.jsonl"),
    "compare": Command("evaluate", "compare runs", "precis.evaluation.compare:compare",
        "precis compare runs/ONE runs/OTHER --html page.html"),
    "judge": Command("evaluate", "let a chat model compare two systems", "precis.baselines.judge:judge",
        "precis judge runs/first/predictions.jsonl lead.jsonl --run runs/first"
        " --model NAME --base_url http://localhost:8000/v1 --out judged.jsonl"),
    "sweep": Command("launch", "run a grid or a hyperparameter search", "precis.sweeping.sweep:sweep",
        "precis sweep experiments/sweeps/pointer_generator_rows.yaml --jobs 2"),
    "workspaces": Command("launch", "make workspaces at W&B", "precis.dashboards.workspaces_command:workspaces",
        "precis workspaces --entity NAME"),
    "parse": Command("discourse", "parse the discourse structure of texts", "precis.discourse.discourse_commands:parse",
        "precis parse --show article.txt"),
    "score-parser": Command("discourse", "score a parser on gold trees",
        "precis.discourse.discourse_commands:score_parser",
        "precis score-parser TREEBANK --parser runs/NAME"),
    "doctor": Command("installation", "show versions, devices, caches and what is missing",
        "precis.housekeeping.doctor:doctor",
        "precis doctor"),
    "runs": Command("installation", "list run folders with score, step and state", "precis.runs.runs:runs",
        "precis runs runs"),
    "clean": Command("installation", "remove old entries of the cache", "precis.housekeeping.clean:clean",
        "precis clean --older_than 60"),
    "completion": Command("shell", "print the completion script of a shell",
        "precis.command_line.completion:completion",
        "precis completion bash > ~/.local/share/bash-completion/completions/precis"),
}
# fmt: on
OTHER_NAMES = {"train": "fit", "score": "evaluate", "generate": "predict"}  # in other tools, for suggestions


def load_command(name: str) -> Callable[[list[str]], None]:
    """Import the function that runs a command."""
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
