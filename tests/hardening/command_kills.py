"""Kills commands that do not train at random moments, runs them again, and compares what they write.

    make harden        (or: python tests/hardening/command_kills.py --kills 20)

A command counts as survived if every file that it had written when it was killed is complete, and if the same command,
run again, leaves exactly the files that it leaves if nobody kills it.
"""

import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness  # first, since it finds the others
from conftest import write_corpus
from processes import changed_names, contents, in_a_child, parses_in
from run_folders import make_run, prediction, write_run

SCORES = {"rouge1": 30.0, "rouge2": 10.0, "rougeL": 25.0, "rougeLsum": 25.0}


class KilledCommand:
    """A command that writes into a folder: content that has to be the same; if `atomic`, whole files after a kill."""

    def __init__(
        self, arguments: list[str], out: Path, content: Callable[[Path], dict] = contents, atomic: bool = True
    ) -> None:
        self.arguments, self.out, self.content, self.atomic = arguments, out, content, atomic
        self.output = out.parent / f"{out.name}.txt"
        started = time.monotonic()
        if status := self._run():
            raise RuntimeError(f"{arguments[0]} ended with {status}: {self.output.read_text()}")
        self.seconds, self.whole = time.monotonic() - started, content(out)

    def _run(self, **options: Any) -> int:
        self.out.mkdir(exist_ok=True)
        return in_a_child(self._command, self.output, **options)

    def _command(self) -> None:
        from precis.command_line.cli import main

        raise SystemExit(main(self.arguments))

    def kill(self, share: float) -> str:
        """Kill the command after a share of its usual duration, run it again, and return what is wrong then."""
        shutil.rmtree(self.out)
        status = self._run(signals=[signal.SIGKILL], after=share * self.seconds)
        if status not in (0, -signal.SIGKILL):
            return f"ended with status {status}: {self.output.read_text(errors='replace')[-1000:]}"
        if self.atomic:
            for name, content in contents(self.out).items():
                if not Path(name).name.startswith(".") and content != self.whole.get(name):
                    return f"{name} is not complete"
        if status := self._run():
            return f"cannot be run again ({status}): {self.output.read_text(errors='replace')[-1000:]}"
        changed = changed_names(self.content(self.out), self.whole)
        return f"other content: {changed}" if changed else ""


def commands(folder: Path) -> dict[str, KilledCommand]:
    """Return the commands that are killed, each in a folder of its own."""
    files = write_corpus(folder)
    rng = random.Random(0)
    words = ["the", "otter", "guards", "mill", "harbour", "tower", "every", "morning"]
    rows = [prediction(number, " ".join(rng.choices(words, k=8)), SCORES) for number in range(200)]
    runs = [make_run(folder / f"run{seed}", rows, seed=seed) for seed in (1, 2, 3)]
    predictions = runs[0] / "predictions.jsonl"
    bertsum = write_run(folder / "bertsum", "bertsum", files)
    text = folder / "text.txt"
    text.write_text("The otter guards the mill. It sleeps in the harbour. Nobody else does.", encoding="utf-8")
    outs = {name: folder / f"out-{name}" for name in ("parse", "evaluate", "compare", "summarize")}
    corpus_options = ["--corpus=Files", f"--corpus.train={files['train']}", "--split=train"]
    return {
        "precis parse": KilledCommand(
            ["parse", *corpus_options, f"--out={outs['parse']}", "--parser=right_branching", "--batch_size=2"],
            outs["parse"], content=parses_in, atomic=False,
        ),
        "precis evaluate": KilledCommand(
            ["evaluate", str(predictions), f"--out={outs['evaluate']}/scores.jsonl", "--resamples=100"],
            outs["evaluate"],
        ),
        "precis compare --html": KilledCommand(
            ["compare", *map(str, runs), f"--html={outs['compare']}/page.html"], outs["compare"]
        ),
        "precis summarize --html": KilledCommand(
            ["summarize", f"--checkpoint={bertsum}", f"--html={outs['summarize']}/page.html", str(text)],
            outs["summarize"],
        ),
    }  # fmt: skip


def main() -> int:
    options = harness.read_options(__doc__, kills=(20, "kills of each command"))
    lost = 0
    with harness.prepared_folder() as place:
        print(harness.HEAD)
        for name, command in commands(place).items():
            rng = random.Random(f"{options.seed} {name}")
            lost += harness.report(name, (command.kill(rng.uniform(0, 0.97)) for _ in range(options.kills)))
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
