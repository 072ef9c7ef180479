"""`precis init`: a project folder with a config for the user's own data."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import yaml
from jsonargparse import ArgumentParser

from datamodules.atomic_write import atomic_write
from datamodules.corpora.field_names import FieldMap, first_row, guess_fields
from datamodules.documents import UserError
from precis.housekeeping.templates import README, TEMPLATES

SIZES = {"train": 200, "val": 20, "test": 20}


def init(arguments: list[str]) -> None:
    """`precis init FOLDER [--train FILE ...]`: make a project folder with a config that trains on your data."""
    parser = ArgumentParser(prog="precis init", description=init.__doc__, exit_on_error=False)
    parser.add_argument("folder", type=Path, help="folder to create")
    parser.add_argument(
        "--train", type=Path | None, default=None, help="file of your training records; by default made-up ones"
    )
    parser.add_argument(
        "--val", type=Path | None, default=None, help="validation records; by default a tenth of `train`"
    )
    parser.add_argument(
        "--test", type=Path | None, default=None, help="test records; by default there is no test split"
    )
    parser.add_argument("--model", type=Literal[*TEMPLATES], default="pointer_generator", help="model to train")
    options = parser.parse_args(arguments)
    folder = options.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: already exists; choose a new folder")
    files = {split: options[split] for split in SIZES if options[split] is not None}
    if files and "train" not in files:
        raise UserError(f"--{next(iter(files))} without --train; give the records to train on, too")
    corpus = _own_corpus(files) if files else {split: f"data/{split}.jsonl" for split in SIZES}
    config = yaml.safe_load(TEMPLATES[options.model])
    config["data"]["init_args"]["corpus"] = {"class_path": "datamodules.corpora.Files", "init_args": corpus}
    _write_project(folder, config, options.model, made_up=not files)
    source = f"{options.train}" if files else "made-up documents, until you put your own in data/"
    print(f"{folder}: a project that trains {options.model} on {source}")
    print(f"next: cd {folder} && precis fit --config config.yaml --run_dir runs/first")


def _own_corpus(files: dict[str, Path]) -> dict[str, Any]:
    """Return the arguments of `Files` for the user's files, with the names of their fields.

    Raises:
        UserError: if a file cannot be read, has no field with a common name, or no reference to train on.
    """
    names: FieldMap | None = None
    for split, path in files.items():
        of_split = guess_fields(first_row(path), str(path))
        names = names or of_split
        if split != "test" and of_split.summary is None:
            raise UserError(f"{path}: no field is named as summaries are; training needs one, such as `summary`")
        if split != "test" and of_split != names:
            raise UserError(f"{path}: its fields are not those of {files['train']}; name them alike")
    corpus: dict[str, Any] = {split: str(path.absolute()) for split, path in files.items()}
    corpus |= names.arguments()
    print(f"fields: document {names.document!r}, summary {names.summary!r}, id {names.id!r}")
    return corpus if "val" in files else corpus | {"split": 0.1}


def _write_project(folder: Path, config: dict[str, Any], model: str, made_up: bool) -> None:
    """Write the files of a project."""
    (folder / "data").mkdir(parents=True)
    header = f"# {model} on the documents of this project; every key: precis fit --config config.yaml --print_config\n"
    atomic_write(folder / "config.yaml", header + yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    atomic_write(folder / "README.md", README)
    atomic_write(folder / ".gitignore", "runs/\n")
    if made_up:
        rng = random.Random(0)
        for split, size in SIZES.items():
            lines = "".join(json.dumps(row) + "\n" for row in _made_up_records(split, size, rng))
            atomic_write(folder / "data" / f"{split}.jsonl", lines)


def _made_up_records(split: str, size: int, rng: random.Random) -> Iterator[dict[str, str]]:
    """Yield records whose summary is the sentence on what happened, without its details."""
    choices = {
        "place": ("harbour", "station", "library", "bridge"),
        "day": ("Monday", "Friday", "Sunday"),
        "event": ("closed", "reopened"),
        "cause": ("a storm", "repairs", "a strike", "an inspection"),
    }
    for number in range(size):
        place, day, event, cause = map(rng.choice, choices.values())
        sentences = [
            f"The {place} was {event} on {day} because of {cause}.",
            f"{rng.randrange(20, 900)} people were affected, the town said.",
            f"A spokesperson expects news of the {place} within {rng.randrange(2, 9)} days.",
        ]
        summary = f"The {place} was {event} because of {cause}."
        yield {"id": f"{split}-{number}", "document": " ".join(sentences), "summary": summary}
