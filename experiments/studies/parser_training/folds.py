"""Parsers trained on all folds of a treebank but one."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser
from pytorch_lightning import Trainer, seed_everything

from datamodules.discourse.records import TreebankDocument
from datamodules.documents import UserError
from datamodules.treebank import TreebankData
from lightning_modules.discourse_parser.parser import DiscourseParser
from precis.files.data_files import read_yaml

Recipe = dict[str, dict[str, Any]]  # arguments of `model`, `data` and `trainer`

_TRAINER_OPTIONS = ("max_epochs", "check_val_every_n_epoch", "gradient_clip_val", "precision")


class FoldData(TreebankData):
    """The documents of treebanks, without one fold of them.

    Every `folds`-th document, from document number `fold` on, is held out: treebanks list the documents of a genre
    together, so that each fold has a similar share of every genre.

    Args:
        fold: number of the fold that is held out, from 0.
        folds: number of folds.
        treebanks: the treebanks, one after the other.
        arguments: those of `TreebankData`, without its splits.
    """

    def __init__(self, fold: int, folds: int, treebanks: Sequence[Path], **arguments: Any) -> None:
        super().__init__(train=treebanks[0], val=treebanks[0], **arguments)
        self.fold, self.folds, self.treebanks = fold, folds, treebanks

    def documents(self, split: str) -> list[TreebankDocument]:
        """Return the documents without the fold, or those of the fold with `held_out`.

        Raises:
            UserError: if two documents have the same id.
        """
        documents = []
        for path in self.treebanks:
            self.paths["train"] = path
            self._documents.pop("train", None)
            documents += super().documents("train")
        ids = Counter(document.id for document in documents)
        if repeated := [name for name, count in ids.items() if count > 1]:
            raise UserError(f"{path}: the document {repeated[0]!r} is not the first with this id; rename it")
        numbered = enumerate(documents)
        return [document for i, document in numbered if (i % self.folds == self.fold) == (split == "held_out")]

    def setup(self, stage: str) -> None:
        """Make features of the training documents alone."""
        self._features.setdefault("val", [])
        super().setup(stage)


def read_recipe(path: Path) -> Recipe:
    """Return the arguments of a config of `precis fit` for a parser: `model`, `data` (without splits) and `trainer`.

    Raises:
        UserError: if it is not a config for training a discourse parser, or has trainer options that are not
            applied to folds.
    """
    try:
        config = read_yaml(path)
        model, data = config["model"], config["data"]
        classes = model["class_path"].rsplit(".", 1)[-1], data["class_path"].rsplit(".", 1)[-1]
        recipe = {"model": _parsed(model["init_args"]), "data": dict(data["init_args"]), "trainer": config["trainer"]}
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: no config that trains a discourse parser ({error})") from error
    if classes != ("DiscourseParser", "TreebankData"):
        raise UserError(f"{path}: trains {classes[0]} on {classes[1]}; name a config of DiscourseParser")
    if unknown := recipe["trainer"].keys() - {*_TRAINER_OPTIONS}:
        raise UserError(f"{path}: trainer.{sorted(unknown)[0]} is not applied when folds are trained; remove it")
    recipe["data"] |= {"checkpoint": recipe["model"]["encoder"].checkpoint, "inventory": recipe["model"]["inventory"]}
    for split in ("train", "val", "test"):
        recipe["data"].pop(split, None)
    return recipe


def _parsed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a parser with their types, groups as dataclasses; those that are left out too."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(DiscourseParser)
    return dict(vars(parser.instantiate_classes(parser.parse_object(arguments))))


def train_fold(recipe: Recipe, data: FoldData, folder: Path, seed: int) -> DiscourseParser:
    """Return the parser of a fold in eval mode, trained now unless the folder has its weights."""
    if not (folder / "model.safetensors").is_file():
        seed_everything(seed, verbose=False)
        model = DiscourseParser(**recipe["model"])
        trainer = Trainer(
            **recipe["trainer"],
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
        unfinished = folder.with_name(f".{folder.name}.part")
        model.cpu().save(unfinished)
        unfinished.rename(folder)
    # some arguments of parsing are not stored with the weights
    options = {name: value for name, value in recipe["model"].items() if name not in ("encoder", "optimizer")}
    return DiscourseParser.load(folder, **options)


def add_fold_options(parser: argparse.ArgumentParser, folds: int) -> None:
    """Add the recipe, the folder of the folds, their number (with this default) and the seed to a command."""
    parser.add_argument("recipe", type=Path, help="config of `precis fit` for a parser")
    parser.add_argument("--out", type=Path, required=True, help="folder for weights and scores; existing ones are used")
    parser.add_argument("--folds", type=_at_least_two, default=folds, help="number of folds")
    parser.add_argument("--seed", type=int, default=1, help="seed of each training")


def _at_least_two(text: str) -> int:
    if int(text) < 2:
        raise SystemExit(f"--folds {text}: at least 2, as each is held out from the others")
    return int(text)


def note(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)
