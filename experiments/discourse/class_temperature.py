"""Fit the class temperature of a discourse parser by cross-validation on its training documents:

    python -m experiments.discourse.class_temperature experiments/configs/discourse_parser/minilm.yaml \\
        gum/train.jsonl.gz --out runs/class_temperature

The training documents are split into folds. For each fold, a parser is trained on the other folds with the config, and
the Brier score of its labelled discourse distribution (LDD) against that of the gold trees is measured over all ordered
pairs of EDUs of the documents of the fold, at each temperature of a grid. Validation and test documents are not used.
The result is the temperature with the lowest score, with the score on each fold at the temperature that the other folds
choose. Set it as `class_temperature` in the config.json of trained weights, or `--model.class_temperature` in training.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from pytorch_lightning import Trainer, seed_everything
from torch import Tensor

from datamodules.discourse.distributions import inside, tree_ldd
from datamodules.discourse.features import ParserBatch, parser_features
from datamodules.discourse.parses import nodes_of
from datamodules.discourse.records import TreebankDocument
from datamodules.documents import CorpusError
from datamodules.treebank import TreebankData
from experiments.discourse.parser_scores import intervals
from experiments.discourse.score_parser import to_json_values
from lightning_modules.discourse_parser.discourse_charts import document_ldd
from lightning_modules.discourse_parser.parser import SMALL, DiscourseParser

Recipe = dict[str, dict[str, Any]]  # arguments of `model`, `data` and `trainer`


class FoldData(TreebankData):
    """The training documents of a treebank, without one fold of them.

    Every `folds`-th document, from document number `fold` on, is held out: treebanks list the documents of a genre
    together, so that each fold has a similar share of every genre.
    """

    def __init__(self, fold: int, folds: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.fold, self.folds = fold, folds

    def documents(self, split: str) -> list[TreebankDocument]:
        """Return the documents of `train` without the fold, or those of the fold with `held_out`."""
        numbered = enumerate(super().documents("train"))
        return [document for i, document in numbered if (i % self.folds == self.fold) == (split == "held_out")]

    def setup(self, stage: str) -> None:
        """Make features of the training documents alone."""
        self._features.setdefault("val", [])
        super().setup(stage)


# Folds -----------------------------------------------------------------------------------------------------------


def trained(options: argparse.Namespace, recipe: Recipe, data: FoldData, folder: Path) -> DiscourseParser:
    """Return the parser of a fold in eval mode, trained now unless the folder has its weights."""
    if not (folder / "model.safetensors").is_file():
        seed_everything(options.seed, verbose=False)
        model = DiscourseParser(**recipe["model"])
        trainer = Trainer(
            max_epochs=recipe["trainer"]["max_epochs"],
            gradient_clip_val=recipe["trainer"].get("gradient_clip_val"),
            limit_val_batches=0,
            use_distributed_sampler=False,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, data)
        if trainer.interrupted:
            raise SystemExit(130)
        model.cpu().save(folder)
    return DiscourseParser.load(folder)


@torch.no_grad()
def squared_errors(
    model: DiscourseParser, document: TreebankDocument, temperatures: Sequence[float], max_half_width: int
) -> Tensor:
    """Return the squared errors of the LDD of a document at some temperatures, and its number of ordered pairs.

    Args:
        model: a parser that was not trained on the document.
        document: with a binary tree.
        temperatures: T of them.
        max_half_width: EDUs to each side over which the LDD is compared with that of the gold tree.

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
    sums = []  # of each fold, [documents, T + 1]
    for fold in range(options.folds):
        data = FoldData(fold, options.folds, **recipe["data"])
        model = trained(options, recipe, data, options.out / f"fold-{fold}")
        model.min_prob = options.min_prob
        documents = [replace(d, tree=d.tree.binary()) for d in data.documents("held_out") if len(d.edus) > 1]
        note(f"fold {fold + 1} of {options.folds}: the LDD of {len(documents)} documents")
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


def note(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def read_recipe(path: Path, train: Path) -> dict[str, dict[str, Any]]:
    """Return the arguments of a config of `precis fit` for a parser: `model`, `data` and `trainer`.

    Args:
        path: path of the config.
        train: treebank that replaces the training treebank of the config.

    Raises:
        CorpusError: if it is not a config for training a discourse parser.
    """
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        model, data = config["model"], config["data"]
        classes = model["class_path"].rsplit(".", 1)[-1], data["class_path"].rsplit(".", 1)[-1]
        recipe = {"model": dict(model["init_args"]), "data": dict(data["init_args"]), "trainer": config["trainer"]}
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"{path}: no config that trains a discourse parser ({error})") from error
    if classes != ("DiscourseParser", "TreebankData"):
        raise CorpusError(f"{path}: trains {classes[0]} on {classes[1]}; name a config of DiscourseParser")
    recipe["data"] |= {"train": train, "val": train, "test": None, "encoder": recipe["model"].get("encoder", SMALL)}
    recipe["data"]["inventory"] = recipe["model"].get("inventory", "gum")
    return recipe


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command: print the result as JSON, and write it to `temperature.json` in the folder."""
    parser = argparse.ArgumentParser(prog="python -m experiments.discourse.class_temperature", allow_abbrev=False)
    parser.add_argument("recipe", type=Path, help="config of `precis fit` for a parser")
    parser.add_argument("train", type=Path, help="treebank whose documents are split into folds")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the weights of the folds; existing ones are used"
    )
    parser.add_argument("--folds", type=int, default=3, help="number of folds")
    parser.add_argument(
        "--epochs", type=int, default=None, help="number of epochs of each training; by default that of the config"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of each training")
    parser.add_argument(
        "--min_prob", "--least", type=float, default=1e-4, help="min_prob of the LDD, see DiscourseParser"
    )
    parser.add_argument("--band", type=int, default=512, help="half-width of the band for comparing LDDs, in EDUs")
    parser.add_argument(
        "--grid", type=float, nargs="+", default=[0.5, 0.6, 0.7, 0.8, 0.9], help="temperatures to try besides 1"
    )
    options = parser.parse_args(arguments)
    if options.folds < 2:
        raise SystemExit(f"--folds {options.folds}: at least 2, as each is held out from the others")
    try:
        recipe = read_recipe(options.recipe, options.train)
        recipe["trainer"] |= {"max_epochs": options.epochs or recipe["trainer"].get("max_epochs")}
        result = measure(options, recipe)
    except CorpusError as error:
        raise SystemExit(f"error: {error}") from None
    text = json.dumps(to_json_values(result), indent=1)
    (options.out / "temperature.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
