"""The run folder: its contents, and how a run is loaded from it.

config.yaml          every argument, defaults included
environment.json     versions, git commit, command, device, corpus digests
metrics.csv          every logged value
checkpoints/         best.ckpt, last.ckpt, and previous.ckpt (the one before last.ckpt); with `kl`, reference.ckpt
text/                the vocabulary or tokenizer
truncation.csv       what each limit truncates, by split; for a corpus not the run's own, in a file with its name
predictions.jsonl    predictions of `precis test`; predictions.val.jsonl for `validate`, predictions.predict.jsonl
                     for `predict`; predictions.signatures.json records how they were scored,
                     predictions.checkpoint.json the weights: step, and state of all schedules
results.json         mean scores of `precis test`, with split, corpus and command; results.val.json for `validate`
previews/            heat maps; samples with their rewards
state.json           whether training runs, has finished, was stopped, failed or diverged, and its last step
wandb/               the offline (or online) W&B run
.fit.lock            lock of the process that trains the run
.truncation.lock     lock of the command that writes truncation.csv
"""

import json
import math
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from jsonargparse import ArgumentParser
from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer
from pytorch_lightning.utilities import rank_zero_warn

from datamodules.atomic_write import atomic_write, naming_full_disk
from datamodules.corpora.corpus import Corpus, read_manifest
from datamodules.documents import UserError
from datamodules.file_locks import release_lock, take_lock
from datamodules.summarization import SummarizationData
from datamodules.truncation import from_csv, to_csv
from lightning_modules.checkpoints import best_checkpoint, read_checkpoint
from lightning_modules.exported import EXPORTED
from lightning_modules.summarizer import Summarizer
from precis.config.parsers import provide_parsers
from precis.config.run_arguments import link_arguments
from precis.config.run_config import read_config
from precis.config.trust import check_permitted_names, import_policy
from precis.config.value_checks import REFUSALS, explain_refusal
from precis.files.nested_values import set_value
from precis.runs.checkpoint_files import adapt_best_models

PACKAGES = ("torch", "pytorch-lightning", "transformers", "datasets", "torchmetrics", "jsonargparse", "precis-suite")


class Run(NamedTuple):
    """A trained model and the data it was trained on."""

    model: Summarizer
    data: SummarizationData
    config: dict[str, Any]


def build(config: dict[str, Any]) -> tuple[LightningModule, LightningDataModule]:
    """Build model and data of a config as `precis fit` does; a `UserError` if a class is of a package not permitted."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(LightningModule, "model")
    parser.add_subclass_arguments(LightningDataModule, "data")
    link_arguments(parser)  # the data takes some arguments from the model
    with import_policy():  # a config may name only classes of permitted packages
        parsed = parser.parse_object({key: config[key] for key in ("model", "data")})
        check_permitted_names(parsed)
        try:
            instances = parser.instantiate_classes(parsed)
        except UserError:
            raise  # unchanged, although `REFUSALS` includes its base class
        except REFUSALS as error:  # types of errors that constructors raise for bad values
            raise UserError(explain_refusal(error, parsed)) from error
    provide_parsers(instances.data)  # sets the function with which the data loads its discourse parser
    return instances.model, instances.data


def load_run(
    run: Path,
    checkpoint: Path | None = None,
    corpus: Corpus | None = None,
    model_changes: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Run:
    """Load the model with its weights, and the data with the tokenizer; a `UserError` if a file is missing or unfit.

    Args:
        run: the run folder.
        checkpoint: a checkpoint of that run; the best one by default.
        corpus: documents to read instead of the run's corpus, with the same tokenizer and limits.
        model_changes: arguments of the model to change; dotted names for arguments in a group, as `decoding.beam_size`.
        changes: arguments of the DataModule to change, except those taken from the model (`LINKED`).
    """
    config = _read_run_config(run)
    for name, value in (model_changes or {}).items():
        set_value(config["model"]["init_args"], name, value)
    config["data"]["init_args"] |= changes
    model, data = build(config)
    if corpus is not None:
        data.corpus = corpus
    text = Path(run) / "text"  # folder of the tokenizer
    if text.is_dir() or not model.frozen_weights():  # loading raises an error if it should exist, but does not
        data.tokenizer = data.load_tokenizer(text)
    else:  # exported without the frozen encoder and its tokenizer, which are loaded from the hub again
        data.tokenizer = data.tokenizer_type.of_checkpoint(data.checkpoint)
    model.set_language(data.language.code)
    model.set_tokenizer(data.tokenizer)
    state = read_checkpoint(checkpoint or best_checkpoint(run))
    model.on_load_checkpoint(state)  # checks that vocabulary and weights fit
    model.load_state_dict(state["state_dict"])
    return Run(model.eval(), data, config)


def run_documents(run: Path, split: str, language: str | None = None) -> Dataset:
    """Return all documents of a split of a run's corpus, split into sentences by `language`, by default the run's."""
    config = _read_run_config(run)
    if language is not None:
        config["data"]["init_args"]["language"] = language
    config["data"]["init_args"]["max_eval"] = None  # no limit of documents
    _, data = build(config)  # the model gives arguments to the data, but its weights are not read
    return data.documents(split)


def _read_run_config(run: Path) -> dict[str, Any]:
    """Return the config of a summarizer's run, with `init_args` of model and data, and the tokenizer's present path."""
    config = read_config(run)
    for part in ("model", "data"):
        if not isinstance(config.get(part), dict) or "class_path" not in config[part]:
            raise UserError(f"{Path(run) / 'config.yaml'}: it has no {part}; give the folder of a run")
        config[part].setdefault("init_args", {})
    if (Path(run) / "text").is_dir():
        config["data"]["init_args"]["tokenizer_dir"] = str(Path(run) / "text")  # the run may have been moved
    elif not (Path(run) / EXPORTED).is_file():  # an export may lack a tokenizer, which the hub has
        raise UserError(f"{run}: not the run of a summarizer, because it has no folder text; give another run")
    return config


def _git(*arguments: str) -> str | None:
    """Return the output of a git command in this package's repository; None without git, or without a repository."""
    root = Path(__file__).parents[2]  # the repository, unless the package is installed
    if not (root / ".git").exists():  # git would look for a repository in the parent folders of an installed package
        return None
    try:
        process = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip()


def environment(data: LightningDataModule | None = None) -> dict[str, Any]:
    """Return what environment.json records: versions, git commit, command, machine, digests of the corpus of `data`."""
    corpus = {}
    for split, documents in getattr(data, "_documents", {}).items():  # splits read so far; a user's class may have none
        corpus[split] = {"documents": len(documents)}
        if isinstance(data, SummarizationData):
            manifest = read_manifest(documents)
            corpus[split] |= {"digest": manifest["digest"], "skipped": manifest["skipped"]}  # skipped: bad records
    return {
        "command": shlex.join(["precis", *sys.argv[1:]]),
        "python": platform.python_version(),
        "versions": {package: metadata.version(package) for package in PACKAGES},
        "git_commit": _git("rev-parse", "HEAD"),
        "git_dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "machine": platform.platform(),
        "cpus": os.cpu_count(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "corpus": corpus,
    }


def check_not_removed(run: Path) -> None:
    """Raise a `UserError` if the run folder was removed: one made again would lack config and tokenizer."""
    if not (Path(run) / "config.yaml").is_file():
        raise UserError(f"{run}: the run folder was removed while the run was training; start the run again")


class RunRecord(Callback):
    """Write config.yaml, environment.json and tokenizer (text/) at the start; end a run whose folder is removed."""

    def __init__(self, run: Path, config: str) -> None:
        self.run = Path(run)
        self.config = config  # text of config.yaml
        self._is_written = False

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        adapt_best_models(trainer, checkpoint)  # their paths, if the run folder was moved

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not (self.run / "environment.json").is_file():  # a new run, or one killed before this last file was written
            self.on_train_batch_start(trainer)

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        """Write the files of a resumed run, whose options may be refused until the first batch."""
        if trainer.is_global_zero and not self._is_written:
            with naming_full_disk(self.run):
                self._write(trainer)
            self._is_written = True

    def _write(self, trainer: Trainer) -> None:
        """Write config.yaml, text/ (the tokenizer, which a resumed run already has) and environment.json."""
        atomic_write(self.run / "config.yaml", self.config)
        has_tokenizer = trainer.ckpt_path is not None and (self.run / "text").is_dir()  # a new run replaces it
        if isinstance(trainer.datamodule, SummarizationData) and not has_tokenizer:
            self._save_tokenizer(trainer.datamodule)
        seed = os.environ.get("PL_GLOBAL_SEED")  # set by Lightning's `seed_everything`
        record = environment(trainer.datamodule) | {"seed": int(seed) if seed else None}
        record["data_seed"] = getattr(trainer.datamodule, "seed", None)  # seed of the order of documents
        atomic_write(self.run / "environment.json", json.dumps(record, indent=1) + "\n")

    def _save_tokenizer(self, data: SummarizationData) -> None:
        """Write text/ as a whole, by renaming a folder: a run with an incomplete tokenizer could not be resumed."""
        folder, partial = self.run / "text", self.run / ".text.part"
        shutil.rmtree(partial, ignore_errors=True)
        data.save_tokenizer(partial)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:  # *_: see below
        if trainer.is_global_zero and trainer.state.fn == "fit":
            check_not_removed(self.run)

    # Check before other callbacks write, as `Previews` would create the folder again. *_: a checkpoint to save.
    on_validation_start = on_validation_end = on_save_checkpoint = on_fit_end


class TruncationTable(Callback):
    """Write truncation.csv, or for another corpus (`source`) truncation.SOURCE.csv: what is cut off in each split."""

    def __init__(self, run: Path, source: str | None = None) -> None:
        self.path = Path(run) / (f"truncation.{source}.csv" if source else "truncation.csv")

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write the table from `data.truncation`, lines by split, which the DataModule has filled in its `setup`."""
        data = trainer.datamodule
        if not trainer.is_global_zero or not isinstance(data, SummarizationData) or not data.truncation:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(self.path.parent, os.W_OK):  # somebody else's run, scored with --out
            rank_zero_warn(f"{self.path}: not written, since the folder cannot be written to")
            return
        # `precis validate` and `precis test` may run at the same time, and each adds its split.
        lock = take_lock(self.path.with_name(".truncation.lock"), wait=math.inf)
        try:
            lines = from_csv(self.path.read_text(encoding="utf-8")) if self.path.is_file() else []
            lines = [line for line in lines if line.split not in data.truncation]  # those of other splits stay
            lines += [line for split_lines in data.truncation.values() for line in split_lines]
            atomic_write(self.path, to_csv(lines))
        finally:
            release_lock(lock)
