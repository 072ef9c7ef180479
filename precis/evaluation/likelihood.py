"""Negative log-likelihood of reference summaries by document, and paired differences between systems.

    python -m precis.evaluation.likelihood runs/led runs/rst runs/rst --change - - model.injection.ablation=other
    python -m precis.evaluation.likelihood 'runs/sweep/other_seed-*' 'runs/sweep/own_seed-*'

A system is a run folder, or a pattern of run folders that differ in their seed. Each document is scored alone, with the
weights of a run's best checkpoint in single precision, so that the result does not depend on padding. The value is the
loss term `nll`: -log P(y_t), mean over the tokens of the first reference. `--change` changes arguments of systems.
Differences are to the first system, with intervals and tests over documents, and over seeds where there are several;
`*` marks those that are significant after Holm's correction, which takes at least two seeds.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from glob import glob
from pathlib import Path

import numpy as np
import torch
import yaml
from jsonargparse import ArgumentError
from rich.console import Console
from rich.progress import track

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from datamodules.text.lines import counted
from precis.config.run_arguments import LINKED
from precis.config.run_config import read_config
from precis.runs.run_folder import Run, load_run
from precis.statistics.significance import format_p, paired_difference, significant


@torch.inference_mode()
def document_nll(run: Run, split: str) -> tuple[dict[str, float], int]:
    """Return the negative log-likelihood of first references, nats per token by document id, and their total tokens.

    Batches must have one document (see `load`), as a loss is a mean. Documents without a reference are left out. A
    `UserError` if the model has no loss term `nll`, or no document has a reference.
    """
    loader = run.data.val_dataloader() if split == "val" else run.data.test_dataloader()
    values, num_tokens = {}, 0
    for batch in track(loader, f"likelihood of {split}", console=Console(stderr=True), transient=True):
        terms = run.model.loss_terms(batch)
        if "nll" not in terms:
            raise UserError(f"{type(run.model).__name__} has no likelihood of summaries (loss term nll)")
        if any(batch.references[0]):  # else the target is the end symbol alone
            values[batch.ids[0]] = terms["nll"].item()  # the mean over the tokens of the reference
            num_tokens += batch.target.numel()  # without padding, as the batch has one document
    if not values:
        raise UserError(f"no document of {split} has a reference to compute the likelihood of; name another --split")
    if missing := len(loader) - len(values):
        print(f"likelihood: left out {counted(missing, 'document')} of {split} without a reference", file=sys.stderr)
    return values, num_tokens


def load(folder: Path, change: str) -> Run:
    """Load a run with batches of one document, and apply `change`: data.NAME=VALUE, model.NAME=VALUE, or - for none."""
    if change == "-":
        return load_run(folder, eval_batch_size=1)
    key, separator, value = change.partition("=")
    group, _, name = key.partition(".")
    if not (separator and name and group in ("data", "model")):
        raise UserError(f"--change {change}: expected data.NAME=VALUE, model.NAME=VALUE, or - for no change")
    if group == "data" and name in LINKED:  # copied from an argument of the model
        raise UserError(f"--change {change}: the data takes {name} from the model; give model.{LINKED[name]}")
    if key == "data.eval_batch_size":
        raise UserError(f"--change {change}: documents are scored one by one; leave it out")
    changes = {name: yaml.safe_load(value)}  # as in a config: a number, true, null, a list ...
    if group == "model":
        return load_run(folder, model_changes=changes, eval_batch_size=1)
    return load_run(folder, eval_batch_size=1, **changes)


def runs_of(system: str) -> dict[int, Path]:
    """Return by seed the run folders that the pattern `system` matches; a `UserError` if none, or two of one seed."""
    folders = [Path(name) for name in sorted(glob(system)) if (Path(name) / "config.yaml").is_file()]
    if not folders:
        raise UserError(f"{system}: no run folder of this name; give the folder of a run that `precis fit` made")
    runs: dict[int, Path] = {}
    for folder in folders:
        seed = read_config(folder)["seed_everything"]
        if seed in runs:
            raise UserError(f"{system}: {runs[seed].name} and {folder.name} have the same seed; name one of them")
        runs[seed] = folder
    return dict(sorted(runs.items()))  # by seed, the order in which `compare` pairs the runs of two systems


def compare(systems: Sequence[Sequence[dict[str, float]]], names: Sequence[str]) -> list[str]:
    """Return a line for each system: mean, and difference to the first system.

    A difference has a 95 % interval, a p-value, and the smallest difference detectable with power 0.8. A star marks
    significance after Holm's correction; with a single seed there is none, since p says nothing about other seeds.

    Args:
        systems: for each system, and each of its R runs in order of seeds, the negative log-likelihood by document id.
            The only run of a system, such as the model that the others fine-tune, is compared with each of their runs.
        names: names of the systems.
    """
    ids = sorted(systems[0][0])
    for name, runs in zip(names, systems):
        if any(sorted(values) != ids for values in runs):
            raise UserError(f"{name}: scored on other documents than {names[0]}; give both the same corpus")
    seeds = max(map(len, systems))  # R
    repeated = (runs if len(runs) > 1 else list(runs) * seeds for runs in systems)  # a single run R times
    scores = np.array([[[run[id] for id in ids] for run in runs] for runs in repeated])  # [systems, R, N documents]
    counts = counted(len(ids), "document") + (f", {seeds} seeds" if seeds > 1 else "")
    lines = [f"{name}: {values.mean():.4f} nats per token, {counts}" for name, values in zip(names, scores)]
    scores = np.moveaxis(scores, 0, -1)  # [R, N, systems], since the tests treat the last axis as measures
    differences = paired_difference(scores[..., 1:], scores[..., :1])  # five numbers for each system but the first
    stars = significant(differences.p) & (seeds > 1)
    for number, (mean, low, high, p, detectable, star) in enumerate(zip(*differences, stars), start=1):
        lines[number] += f"; difference {mean:+.4f} [{low:+.4f}, {high:+.4f}], p {format_p(p)}{' *' if star else ''}"
        lines[number] += f", detectable {detectable:.4f}"
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the likelihoods of systems and their differences to the first one; return the exit status."""
    layout = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(prog="python -m precis.evaluation.likelihood", description=__doc__, **layout)
    add = parser.add_argument
    add("systems", nargs="+", help="of each system, the run folder, or a quoted pattern of its runs with several seeds")
    add("--change", nargs="+", default=[], help="one for each system: data.NAME=VALUE or model.NAME=VALUE; - for none")
    add("--split", choices=["val", "test"], default="val")
    add("--out", type=Path, help="JSON file for the values, by system, run and document")
    options = parser.parse_args(arguments)
    try:
        changes = options.change or ["-"] * len(options.systems)
        if len(changes) != len(options.systems):
            entries = counted(len(changes), "entry")
            raise UserError(f"--change has {entries} for {counted(len(options.systems), 'system')}; give one for each")
        names = [system if change == "-" else f"{system} {change}" for system, change in zip(options.systems, changes)]
        runs = [runs_of(system) for system in options.systems]
        with_seeds = [(name, list(by_seed)) for name, by_seed in zip(names, runs) if len(by_seed) > 1]  # (name, seeds)
        for name, seeds in with_seeds:
            first_name, first_seeds = with_seeds[0]
            if seeds != first_seeds:
                listed = f"{', '.join(map(str, seeds))} and {', '.join(map(str, first_seeds))}"
                raise UserError(f"{name} and {first_name} have the seeds {listed}; runs are paired by seed")
        values: list[dict[str, dict[str, float]]] = [{} for _ in names]  # of each system, by run folder and document
        tokens: dict[int, str] = {}  # number of tokens of all references -> the last run that has it
        for by_seed, change, system_values in zip(runs, changes, values):
            for folder in by_seed.values():
                run = load(folder, change)
                run.data.prepare_splits([options.split])
                system_values[str(folder)], num_tokens = document_nll(run, options.split)
                tokens[num_tokens] = f"{num_tokens:,} in {folder} {change}".removesuffix(" -")
        lines = compare([list(system_values.values()) for system_values in values], names)
    except (UserError, ArgumentError, yaml.YAMLError) as error:  # YAMLError: a VALUE in --change
        print(f"likelihood: {error}", file=sys.stderr)
        return 1
    if len(tokens) > 1:
        remedy = "values per token can only be compared with the same tokenizer and data.max_target"
        print(f"likelihood: the references differ in tokens ({'; '.join(tokens.values())}); {remedy}", file=sys.stderr)
    if options.out is not None:
        atomic_write(options.out, json.dumps(dict(zip(names, values)), indent=1) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
