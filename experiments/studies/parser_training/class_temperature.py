"""Fit the class temperature of a discourse parser by cross-validation on its training documents:

    python -m experiments.studies.parser_training.class_temperature experiments/configs/discourse_parser/minilm.yaml \\
        gum/train.jsonl.gz --out runs/class_temperature

The training documents are split into folds. For each fold, a parser is trained on the other folds with the config, and
the Brier score of its labelled discourse distribution (LDD) against that of the gold trees is measured over all ordered
pairs of EDUs of the documents of the fold, at each temperature of a grid. Validation and test documents are not used.
The result is the temperature with the lowest score, with the score on each fold at the temperature that the other folds
choose. Set it as `class_temperature` in the config.json of trained weights, or `--model.class_temperature` in training.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from datamodules.discourse.distributions import inside, tree_ldd
from datamodules.discourse.features import ParserBatch, parser_features
from datamodules.discourse.parses import nodes_of
from datamodules.discourse.records import TreebankDocument
from datamodules.documents import UserError
from datamodules.text.lines import counted
from experiments.studies.parser_training.folds import FoldData, Recipe, add_fold_options, note, read_recipe, train_fold
from lightning_modules.discourse_parser.discourse_charts import document_ldd
from lightning_modules.discourse_parser.parser import DiscourseParser
from precis.discourse.score_parser import intervals, to_json_values


@torch.no_grad()
def squared_errors(
    model: DiscourseParser, document: TreebankDocument, temperatures: Sequence[float], max_half_width: int
) -> Tensor:
    """Return the squared errors of the LDD of a document at some temperatures, and its number of ordered pairs.

    Args:
        model: a parser that was not trained on the document.
        document: document with a binary tree.
        temperatures: T temperatures.
        max_half_width: number of EDUs to each side up to which the LDD is compared with that of the gold tree.

    Returns:
        Sum over pairs and relations of (p - y)^2 at each temperature, then the number of pairs, [T + 1].
    """
    features = parser_features(document, document.edus, model.subwords, name=document.id)
    half_width = min(max_half_width, features.size - 1)
    nodes = nodes_of(document.tree, model.relations)
    target = tree_ldd(nodes, features.size, len(model.relations), model.rows, half_width)
    batch, original = ParserBatch.of([features]), model.reader.temperature
    vectors = model.vectors(batch)
    errors = []
    for temperature in temperatures:
        model.reader.temperature = temperature
        (charts,) = model.charts(batch, vectors)
        band = document_ldd(charts, model.reader.classes, half_width, model.rows).band
        errors.append((band - target).square().sum())
    model.reader.temperature = original
    return torch.stack([*errors, inside(features.size, half_width).sum()]).double()


def measure(options: argparse.Namespace, recipe: Recipe) -> dict[str, Any]:
    """Train a parser for each fold; return the temperature with the lowest Brier score over all held-out pairs of EDUs,
    and the score at 1 and at the temperature that the other folds choose, with bootstrap intervals over documents."""
    grid = sorted({1.0, *options.grid})
    sums = []  # squared errors of each fold, [documents, T + 1]
    for fold in range(options.folds):
        data = FoldData(fold, options.folds, [options.train], **recipe["data"])
        model = train_fold(recipe, data, options.out / f"fold-{fold}", options.seed)
        model.min_prob = options.min_prob
        documents = [replace(d, tree=d.tree.binary()) for d in data.documents("held_out") if len(d.edus) > 1]
        note(f"fold {fold + 1} of {options.folds}: the LDD of {counted(len(documents), 'document')}")
        sums.append(torch.stack([squared_errors(model, document, grid, options.band) for document in documents]))
    all_sums, at_one = torch.cat(sums), grid.index(1.0)
    chosen = [_lowest_brier(torch.cat([*sums[:n], *sums[n + 1 :]])) for n in range(len(sums))]
    crossed = torch.cat([fold[:, [best, at_one, -1]] for fold, best in zip(sums, chosen)])
    names = ("of_other_folds", "at_1", "difference")
    return {
        "folds": options.folds,
        "documents": len(all_sums),
        "epochs": recipe["trainer"]["max_epochs"],
        "temperature": grid[_lowest_brier(all_sums)],
        "of_other_folds": [grid[best] for best in chosen],
        "scores": dict(zip(map(str, grid), _brier(all_sums).tolist())),
        **dict(zip((f"brier_{name}" for name in names), intervals(crossed, _compared))),
    }


def _brier(sums: Tensor) -> Tensor:
    """Return the Brier score at each temperature: [D, T + 1] -> [T]."""
    total = sums.sum(0)
    return total[:-1] / total[-1]


def _lowest_brier(sums: Tensor) -> int:
    """Return the index of the temperature with the lowest Brier score."""
    return int(_brier(sums).argmin())


def _compared(sums: Tensor) -> Tensor:
    """Return two Brier scores and their difference, from two sums of squared errors and the number of pairs.

    [..., 3] -> [..., 3].
    """
    first, second = sums[..., 0] / sums[..., 2], sums[..., 1] / sums[..., 2]
    return torch.stack([first, second, first - second], -1)


# The command -----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command: print the result as JSON, and write it to `temperature.json` in the folder."""
    program = "python -m experiments.studies.parser_training.class_temperature"
    parser = argparse.ArgumentParser(prog=program, allow_abbrev=False)
    add_fold_options(parser, folds=3)
    parser.add_argument("train", type=Path, help="treebank whose documents are split into folds")
    parser.add_argument(
        "--epochs", type=int, default=None, help="number of epochs of each training; by default that of the config"
    )
    parser.add_argument(
        "--min_prob", "--least", type=float, default=1e-4, help="min_prob of the LDD, see DiscourseParser"
    )
    parser.add_argument("--band", type=int, default=512, help="half-width of the band for comparing LDDs, in EDUs")
    parser.add_argument(
        "--grid", type=float, nargs="+", default=[0.5, 0.6, 0.7, 0.8, 0.9], help="temperatures to try besides 1"
    )
    options = parser.parse_args(arguments)
    try:
        recipe = read_recipe(options.recipe)
        recipe["trainer"] |= {"max_epochs": options.epochs or recipe["trainer"].get("max_epochs")}
        result = measure(options, recipe)
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    text = json.dumps(to_json_values(result), indent=1)
    (options.out / "temperature.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
