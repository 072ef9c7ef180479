"""Entry point of the command `precis`.

It imports nothing but the standard library: help, the version and an unknown command are answered at once, and every
other command imports what it needs (see `command_table`).
"""

import difflib
import os
import signal
import sys
from importlib.metadata import version

from experiments.command_table import COMMANDS, TRAINING

HELP = """usage: precis COMMAND ...   (precis COMMAND --help tells more)

  fit         train a model:            precis fit --config experiments/configs/pointer_generator/docstrings.yaml
  validate    score validation data:    precis validate --run runs/NAME
  test        score test data:          precis test --run runs/NAME
  predict     summarize the test split: precis predict --run runs/NAME
  summarize   summarize text:           precis summarize --checkpoint runs/NAME < text
  corpus      look at a corpus:         precis corpus --corpus Docstrings
  truncation  what a config cuts off:   precis truncation --config experiments/configs/graphsum/docstrings.yaml
  parse       discourse structure:      precis parse --corpus Docstrings --out parses
  score-parser  a parser on gold trees: precis score-parser TREEBANK --parser runs/NAME
  graph       paragraphs' graph:        precis graph --run runs/NAME --html graphs.html
  report      scores and examples:      precis report runs/NAME
  evaluate    score any file of outputs: precis evaluate runs/NAME/predictions.jsonl
  baseline    lead, oracle, LexRank ...: precis baseline lead --run runs/NAME --out lead.jsonl
  attention   RSTformer's, drawn:       precis attention runs/NAME article.txt --out pictures
  export      a model to give away:     precis export runs/NAME --out FOLDER
  push        it, to the hub:           precis push FOLDER USER/MODEL
  sweep       a grid of runs:           precis sweep experiments/sweeps/pointer_generator_rows.yaml --jobs 2
  compare     runs side by side:        precis compare runs/ONE runs/OTHER --html page.html
  sync        offline runs to W&B:      precis sync runs/NAME
  dashboards  workspaces at W&B:        precis dashboards --entity NAME

A config may name classes of the suite, optimizers and schedules of torch, and parts of Lightning's Trainer. With
--trust, which every command takes, it may name and run anything (see SECURITY.md).
"""


def main(arguments: list[str] | None = None) -> int:
    """Run `precis` and return its exit status.

    Args:
        arguments: those of the process if not given.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP)
        return 0
    if arguments[0] == "--version":
        print(f"precis {version('precis-suite')}")
        return 0
    names = [*TRAINING, *COMMANDS]
    command = next((argument for argument in arguments if argument != "--trust"), "")
    if command not in names:
        similar = difflib.get_close_matches(command, names, n=1)
        hint = f"did you mean {similar[0]}? " if similar else ""
        print(f"precis: error: precis has no command {command!r}; {hint}it has {', '.join(names)}", file=sys.stderr)
        return 1

    try:
        from experiments.run_command import run_command  # imports torch and Lightning

        return run_command(arguments)
    except KeyboardInterrupt:
        if os.environ.get("PRECIS_DEBUG"):
            raise
        print("precis: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT  # as a shell reports it


if __name__ == "__main__":
    sys.exit(main())
