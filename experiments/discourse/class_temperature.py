"""Fits the class temperature of a discourse parser's recipe on held-out folds of its training documents:

    python -m experiments.discourse.class_temperature experiments/configs/discourse_parser/minilm.yaml \\
        gum/train.jsonl.gz --out runs/class_temperature

The training documents are split into folds. For each fold, a parser is trained on the others by the recipe. The
temperature is the one that maximises the likelihood of the gold classes (nuclearity and relation) of the held-out gold
nodes (Guo et al. 2017), a mean over the nodes of a document, then over documents, as in the loss. No validation or
test document takes part. The parser that is trained on all documents takes it: `class_temperature` in the config.json
of its weights, or `--model.class_temperature` in training.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from pytorch_lightning import Trainer, seed_everything
from scipy.optimize import minimize_scalar
from torch import Tensor

from datamodules.discourse.features import ParserBatch
from datamodules.discourse.parses import DiscourseParse
from datamodules.discourse.records import TreebankDocument
from datamodules.documents import CorpusError
from datamodules.treebank import TreebankData
from experiments.discourse.parser_scores import Forecasts, calibration
from experiments.discourse.score_parser import parsed, plain, request_of
from lightning_modules.discourse_parser.parser import SMALL, DiscourseParser
from lightning_modules.metrics.calibration import BINS

Recipe = dict[str, dict[str, Any]]  # arguments of `model`, `data` and `trainer`
BOUNDS = (0.1, 10.0)  # of the temperature


class HeldOut(NamedTuple):
    """What a parser says of a document that it was not trained on.

    Attributes:
        logits: class logits of each scorer at the gold nodes, [members, N, C].
        gold: their classes, [N].
    """

    logits: Tensor
    gold: Tensor


class FoldData(TreebankData):
    """The training documents of a treebank, without one fold of them.

    Every `folds`-th document, from document number `fold` on, is held out: treebanks list the documents of a genre
    together, so that each fold has a like share of every genre.
    """

    def __init__(self, fold: int, folds: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.fold, self.folds = fold, folds

    def documents(self, split: str) -> list[TreebankDocument]:
        """The documents of `train` without the fold, or those of the fold with `held_out`."""
        documents = super().documents("train")
        held_out = [document for i, document in enumerate(documents) if i % self.folds == self.fold]
        if split == "held_out":
            return held_out
        return [document for i, document in enumerate(documents) if i % self.folds != self.fold]

    def setup(self, stage: str) -> None:
        """Makes features of the training documents alone."""
        self._features.setdefault("val", [])
        super().setup(stage)


# Fitting ---------------------------------------------------------------------------------------------------------


def negative_log_likelihood(documents: Sequence[HeldOut], temperature: float) -> float:
    """Return the mean over documents of the mean over nodes of -log P(gold class), with a mixture's mean probability.

    Args:
        documents: with at least one node each.
        temperature: the logits are divided by it.
    """
    total = 0.0
    for logits, gold in documents:
        probs = (logits.double() / temperature).softmax(-1).mean(0)  # [N, C]
        total -= probs.gather(1, gold.unsqueeze(1)).log().mean().item()
    return total / len(documents)


def fit_temperature(documents: Sequence[HeldOut]) -> float:
    """Return the temperature with the highest likelihood, within `BOUNDS`."""
    low, high = torch.tensor(BOUNDS).log().tolist()
    found = minimize_scalar(
        lambda log_t: negative_log_likelihood(documents, torch.tensor(log_t).exp().item()),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return float(torch.tensor(found.x).exp())


# Folds -----------------------------------------------------------------------------------------------------------


def trained(options: argparse.Namespace, recipe: Recipe, fold: int, folder: Path) -> DiscourseParser:
    """Return the parser of a fold in eval mode, trained now unless the folder has its weights."""
    if not (folder / "model.safetensors").is_file():
        seed_everything(options.seed, verbose=False)
        model, data = DiscourseParser(**recipe["model"]), FoldData(fold, options.folds, **recipe["data"])
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
def held_out(model: DiscourseParser, data: FoldData) -> list[HeldOut]:
    """Return what a parser says of the documents of its fold that have a node."""
    found = []
    for document in data.documents("held_out"):
        features = data.encode(document, model.subwords)
        if len(features.nodes):
            batch = ParserBatch.of([features])
            found.append(HeldOut(model.gold_class_logits(batch), batch.nodes[:, -1]))
    return found


def measure(options: argparse.Namespace, recipe: Recipe) -> dict[str, Any]:
    """Train a parser for each fold, fit the temperature, and score it on documents that did not take part.

    The likelihood with a temperature is that of each fold with the temperature of the other folds.
    """
    folders = [options.out / f"fold-{fold}" for fold in range(options.folds)]
    data = [FoldData(fold, options.folds, **recipe["data"]) for fold in range(options.folds)]
    documents: list[list[HeldOut]] = []
    for fold, folder in enumerate(folders):
        documents.append(held_out(trained(options, recipe, fold, folder), data[fold]))
        note(f"fold {fold + 1} of {options.folds}: temperature {fit_temperature(documents[-1]):.3f}")
    everything = list(chain(*documents))
    others = [list(chain(*documents[:fold], *documents[fold + 1 :])) for fold in range(options.folds)]
    temperatures = [fit_temperature(rest) for rest in others]
    counts = [len(fold) for fold in documents]
    crossed = [negative_log_likelihood(fold, t) for fold, t in zip(documents, temperatures)]
    result = {
        "folds": options.folds,
        "documents": len(everything),
        "nodes": sum(len(document.gold) for document in everything),
        "epochs": recipe["trainer"]["max_epochs"],
        "temperature": fit_temperature(everything),
        "temperatures_of_other_folds": temperatures,
        "nll": {
            "1": negative_log_likelihood(everything, 1.0),
            "of_other_folds": sum(count * value for count, value in zip(counts, crossed)) / sum(counts),
        },
    }
    if not options.no_ldd:
        result["ldd"] = ldd_calibration(options, folders, data, temperatures)
    return result


def ldd_calibration(
    options: argparse.Namespace, folders: Sequence[Path], data: Sequence[FoldData], temperatures: Sequence[float]
) -> dict[str, Any]:
    """Return the calibration of the LDD of held-out documents, at 1 and at the temperature of the other folds."""
    parses: dict[str, list[DiscourseParse]] = {"1": [], "of_other_folds": []}
    gold: list[TreebankDocument] = []
    for folder, fold, temperature in zip(folders, data, temperatures):
        documents = fold.documents("held_out")
        requests = [request_of(document) for document in documents]
        for name, value in (("1", 1.0), ("of_other_folds", temperature)):
            model = DiscourseParser.load(folder, least=options.least, band=options.band, class_temperature=value)
            parses[name] += parsed(model, requests, f"parsing, temperature {value:.2f}")
        gold += documents
    forecasts = Forecasts(parses["1"], gold)
    systems = {name: lambda i, own=own: own[i].band(own[i].half_width) for name, own in parses.items()}
    table, _ = calibration(systems, forecasts, BINS)
    names = ("labelled/brier", "labelled/brier_above", "labelled/ece_probable", "summed/brier", "summed/ece")
    return {system: {name: scores[name] for name in names} for system, scores in table.items()}


# The command -----------------------------------------------------------------------------------------------------


def note(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def read_recipe(path: Path, train: Path) -> dict[str, dict[str, Any]]:
    """Return the arguments of a config of `precis fit` for a parser: `model`, `data` and `trainer`.

    Args:
        path: of the config.
        train: treebank that takes the place of the config's.

    Raises:
        CorpusError: if it is no config that trains a discourse parser.
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
    """Entry point: prints the result as JSON, and writes it to `temperature.json` in the folder."""
    parser = argparse.ArgumentParser(prog="python -m experiments.discourse.class_temperature", allow_abbrev=False)
    parser.add_argument("recipe", type=Path, help="config of `precis fit` that trains a parser")
    parser.add_argument("train", type=Path, help="treebank whose documents are split into folds")
    parser.add_argument("--out", type=Path, required=True, help="folder of the folds' weights; those there are used")
    parser.add_argument("--folds", type=int, default=3, help="into which the training documents are split")
    parser.add_argument("--epochs", type=int, default=None, help="of each training; the recipe's if not given")
    parser.add_argument("--seed", type=int, default=1, help="of each training")
    parser.add_argument("--least", type=float, default=1e-4, help="see DiscourseParser; for the LDD's calibration")
    parser.add_argument("--band", type=int, default=512, help="EDUs to each side over which the LDD is compared")
    parser.add_argument("--no_ldd", action="store_true", help="leave the LDD's calibration out: it takes longest")
    options = parser.parse_args(arguments)
    if options.folds < 2:
        raise SystemExit(f"--folds {options.folds}: at least 2, as each is held out from the others")
    try:
        recipe = read_recipe(options.recipe, options.train)
        recipe["trainer"] |= {"max_epochs": options.epochs or recipe["trainer"].get("max_epochs")}
        result = measure(options, recipe)
    except CorpusError as error:
        raise SystemExit(f"error: {error}") from None
    text = json.dumps(plain(result), indent=1)
    (options.out / "temperature.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
