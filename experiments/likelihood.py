"""Negative log-likelihood of reference summaries by document, and paired differences between runs.

    python -m experiments.likelihood runs/led runs/discourse runs/discourse --change - - model.ablation=other

Each document is scored alone, with the weights of a run's best checkpoint in single precision, so that the result does
not depend on padding. The value is the loss term `nll`: -log P(y_t), mean over the tokens of the first reference.
`--change` changes an argument of each run, for example to read the discourse of another document.
Differences are to the first run; intervals are paired bootstrap intervals over documents.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from jsonargparse import ArgumentError
from rich.console import Console
from rich.progress import track

from datamodules.atomic_write import atomic_write
from datamodules.documents import CorpusError
from experiments.evaluation.statistics import bootstrap_interval
from experiments.linked_arguments import LINKED
from experiments.run_folder import Run, load_run


@torch.inference_mode()
def document_nll(run: Run, split: str) -> dict[str, float]:
    """Return the negative log-likelihood of the first reference of each document, nats per token, by id.

    Args:
        run: run whose data has batches of one document (`eval_batch_size` 1).
        split: `val` or `test`.

    Raises:
        CorpusError: if the model has no loss term `nll`, as extractive models have none.
    """
    loader = run.data.val_dataloader() if split == "val" else run.data.test_dataloader()
    values = {}
    for batch in track(loader, f"likelihood of {split}", console=Console(stderr=True), transient=True):
        terms = run.model.loss_terms(batch)
        if "nll" not in terms:
            raise CorpusError(f"{type(run.model).__name__} has no likelihood of summaries (loss term nll)")
        values[batch.ids[0]] = terms["nll"].item()
    return values


def load(folder: Path, change: str) -> Run:
    """Load a run with batches of one document.

    Args:
        folder: folder of the run.
        change: `data.NAME=VALUE`, `model.NAME=VALUE`, or `-` for no change.

    Raises:
        CorpusError: if the change has another form, would be replaced by one of the model, or sets the batch size.
    """
    key, separator, value = change.partition("=")
    part, _, name = key.partition(".")
    if change != "-" and not (separator and name and part in ("data", "model")):
        raise CorpusError(f"--change {change}: expected data.NAME=VALUE, model.NAME=VALUE, or - for no change")
    if part == "data" and name in LINKED:
        raise CorpusError(f"--change {change}: the data takes {name} from the model; give model.{name}")
    if key == "data.eval_batch_size":
        raise CorpusError(f"--change {change}: documents are scored one by one; leave it out")
    changes: dict[str, dict[str, Any]] = {"data": {"eval_batch_size": 1}, "model": {}}
    if change != "-":
        changes[part][name] = yaml.safe_load(value)
    return load_run(folder, model_changes=changes["model"], **changes["data"])


def compare(values: Sequence[dict[str, float]], names: Sequence[str]) -> list[str]:
    """Return a line for each run: mean, and difference to the first run with a 95 % interval over documents.

    Raises:
        CorpusError: if the runs were scored on different documents.
    """
    ids = sorted(values[0])
    for name, scores in zip(names, values):
        if sorted(scores) != ids:
            raise CorpusError(f"{name}: scored on other documents than {names[0]}; give both the same corpus")
    first = np.array([values[0][id] for id in ids])
    lines = []
    for number, (name, scores) in enumerate(zip(names, values)):
        nll = np.array([scores[id] for id in ids])
        line = f"{name}: {nll.mean():.4f} nats per token, {len(ids)} documents"
        if number:
            mean, low, high = bootstrap_interval(nll - first)
            line += f"; difference {mean:+.4f} [{low:+.4f}, {high:+.4f}]"
        lines.append(line)
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the likelihoods of runs; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.likelihood", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("runs", type=Path, nargs="+", help="run folders; a run may be named several times")
    parser.add_argument("--change", nargs="+", default=[], help="an argument of each run, as data.NAME=VALUE or "
                        "model.NAME=VALUE, or - for no change")  # fmt: skip
    parser.add_argument("--split", choices=["val", "test"], default="val")
    parser.add_argument("--out", type=Path, help="file for the values by document, JSON")
    options = parser.parse_args(arguments)
    try:
        changes = options.change or ["-"] * len(options.runs)
        if len(changes) != len(options.runs):
            raise CorpusError(f"--change has {len(changes)} entries for {len(options.runs)} runs: give one for each")
        names, values = [], []
        for folder, change in zip(options.runs, changes):
            run = load(folder, change)
            run.data.prepare_splits([options.split])
            names.append(str(folder) if change == "-" else f"{folder} {change}")
            values.append(document_nll(run, options.split))
        lines = compare(values, names)
    except (CorpusError, ArgumentError, yaml.YAMLError) as error:
        print(f"likelihood: {error}", file=sys.stderr)
        return 1
    if options.out is not None:
        atomic_write(options.out, json.dumps(dict(zip(names, values)), indent=1) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
