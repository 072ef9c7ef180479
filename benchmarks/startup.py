"""Processor time and imported libraries of commands before they do their work.

    python -m benchmarks.startup [--repetitions 3]

Each command runs in a separate process; the minimum of the repetitions is printed, which other work on the machine
disturbs least.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measuring import options, print_table

COMMANDS = (
    "--help",
    "--version",
    "evaluat",
    "evaluate --metrcs rouge",
    "evaluate FILE --metrics rouge",
    "evaluate FILE",
    "compare --htlm page.html",
    "compare FILE",
    "sweep --lancher slurm",
    "sweep status FOLDER",
    "corpus --corpsu Files",
    "corpus --help",
    "baseline lead --otu lead.jsonl",
    "parse --shwo article.txt",
    "score-parser TREEBANK --parsre small",
    "summarize --chekpoint FOLDER",
    "report FOLDER --exmaples 2",
    "graph article.txt --grpah similarity",
    "attention FOLDER --otu pictures",
    "export FOLDER --otu model",
    "demo FOLDER --prot 7860",
    "fit --help",
)
LIBRARIES = ("torch", "pytorch_lightning", "transformers", "datasets", "matplotlib", "scipy", "pandas", "nltk")
PROBE = f"""
import io, resource, sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from experiments.cli import main
with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
    main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, *(name for name in {LIBRARIES} if name in sys.modules))
"""


def measure(arguments: list[str]) -> tuple[float, list[str]]:
    """Return the processor seconds of a command, interpreter included, and the libraries that it imported."""
    process = [sys.executable, "-c", PROBE, *arguments]
    seconds, *libraries = subprocess.run(process, capture_output=True, text=True, check=True).stdout.split()
    return float(seconds), libraries


def rows(folder: Path, repetitions: int) -> Iterator[list[str]]:
    """Yield command, processor time and libraries of each command."""
    # with words that ROUGE stems, which it does not do to those of up to three letters
    record = {
        "id": "a", "summary": ["the cats were sleeping"], "references": [["several cats slept"]],
        "document": ["The cats were sleeping on the veranda ."],
    }  # fmt: skip
    points = {"sweep": "one", "base": "one.yaml", "after": [], "points": []}
    (folder / "predictions.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    (folder / "points.json").write_text(json.dumps(points), encoding="utf-8")
    paths = {"FILE": str(folder / "predictions.jsonl"), "FOLDER": str(folder)}
    for command in COMMANDS:
        arguments = [paths.get(word, word) for word in command.split()]
        runs = [measure(arguments) for _ in range(repetitions)]
        yield [f"`{command}`", f"{min(seconds for seconds, _ in runs):.2f}", ", ".join(runs[0][1])]


if __name__ == "__main__":
    arguments = options(__doc__, repetitions=3).parse_args()
    with TemporaryDirectory() as name:
        print_table(["command", "processor time, s", "libraries"], rows(Path(name), arguments.repetitions))
