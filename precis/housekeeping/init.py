"""`precis init`: a project folder with a config for the user's own data."""

from pathlib import Path
from typing import Any, Literal

import yaml
from jsonargparse import ArgumentParser

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from precis.files.field_names import FieldMap, first_row, guess_fields

TEMPLATES = Path(__file__).parent / "templates"
MODELS = ("pointer_generator", "bertsum")


def init(arguments: list[str]) -> None:
    """`precis init FOLDER --train FILE`: make a project folder with a config that trains on your data."""
    parser = ArgumentParser(prog="precis init", description=init.__doc__, exit_on_error=False)
    parser.add_argument("folder", type=Path, help="folder to create")
    parser.add_argument("--train", type=Path, required=True, help="file of your training records")
    val_help = "validation records; by default a tenth of `train`"
    parser.add_argument("--val", type=Path | None, default=None, help=val_help)
    parser.add_argument("--test", type=Path | None, default=None, help="test records; by default there are none")
    parser.add_argument("--model", type=Literal[MODELS], default="pointer_generator", help="model to train")
    options = parser.parse_args(arguments)
    folder = options.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: already exists; choose a new folder")
    files = {split: options[split] for split in ("train", "val", "test") if options[split] is not None}
    config = yaml.safe_load((TEMPLATES / f"{options.model}.yaml").read_text(encoding="utf-8"))
    config["data"]["init_args"]["corpus"] = {"class_path": "datamodules.corpora.Files", "init_args": _corpus(files)}
    folder.mkdir(parents=True, exist_ok=True)
    comment = "every key: precis fit --config config.yaml --print_config"
    header = f"# {options.model} on the documents of this project; {comment}\n"
    atomic_write(folder / "config.yaml", header + yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    atomic_write(folder / "README.md", (TEMPLATES / "README.md").read_text(encoding="utf-8"))
    atomic_write(folder / ".gitignore", "runs/\n")
    print(f"{folder}: a project that trains {options.model} on {options.train}")
    print(f"next: cd {folder} && precis fit --config config.yaml --run_dir runs/first")


def _corpus(files: dict[str, Path]) -> dict[str, Any]:
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
