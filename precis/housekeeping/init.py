"""`precis init`: a project folder with a config for the user's own data."""

import shlex
from pathlib import Path
from typing import Any, Literal

import yaml
from jsonargparse import ArgumentParser

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from datamodules.text.lines import counted
from precis.files.field_names import first_row, guess_fields, guess_file

TEMPLATES = Path(__file__).parent / "templates"
MODELS = ("pointer_generator", "bertsum")
FEW_RECORDS = 1_000  # with fewer, a model that writes new sentences learns little


def init(arguments: list[str]) -> None:
    """`precis init FOLDER --train FILE`: make a project folder with a config that trains on your data."""
    parser = ArgumentParser(prog="precis init", description=init.__doc__, exit_on_error=False)
    parser.add_argument("folder", type=Path, help="folder to create")
    parser.add_argument("--train", type=Path, required=True, help="file of your training records")
    parser.add_argument("--val", type=Path | None, default=None, help="validation records; by default 0.1 of `train`")
    parser.add_argument("--test", type=Path | None, default=None, help="test records; by default there are none")
    parser.add_argument("--model", type=Literal[MODELS], default="pointer_generator", help="model to train")
    options = parser.parse_args(arguments)
    folder = options.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: already exists; choose a new folder")
    files = {split: options[split] for split in ("train", "val", "test") if options[split] is not None}
    config = yaml.safe_load((TEMPLATES / f"{options.model}.yaml").read_text(encoding="utf-8"))
    corpus, count = _corpus(files)
    config["data"]["init_args"]["corpus"] = {"class_path": "datamodules.corpora.Files", "init_args": corpus}
    folder.mkdir(parents=True, exist_ok=True)
    comment = "every key: precis fit --config config.yaml --print_config"
    header = f"# {options.model} on the documents of this project; {comment}\n"
    atomic_write(folder / "config.yaml", header + yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    score = "test" if "test" in files else "validate"  # the command that scores the model
    example = (options.test or options.val or options.train).absolute()  # a file to summarize
    document = corpus.get("document", "document")  # field of texts; `corpus` omits the default
    readme = (TEMPLATES / "README.md").read_text(encoding="utf-8")
    readme = readme.format(score=score, example=shlex.quote(str(example)), document=shlex.quote(document))
    atomic_write(folder / "README.md", readme)
    atomic_write(folder / ".gitignore", "runs/\n")
    print(f"{folder}: a project that trains {options.model} on {counted(count, 'record')} of {options.train}")
    if count < FEW_RECORDS and options.model == "pointer_generator":
        print("few records for a model that writes: begin with --model bertsum (docs/own_data.md, Few records)")
    print(f"next: cd {shlex.quote(str(folder))} && precis fit --config config.yaml --run_dir runs/first")


def _corpus(files: dict[str, Path]) -> tuple[dict[str, Any], int]:
    """Check and print the fields of data files; return arguments of the corpus `Files`, and the training set's size."""
    record = first_row(files["train"])
    fields = guess_fields(record, str(files["train"]))
    for split, path in files.items():
        fields_of_split = guess_fields(first_row(path), str(path))
        if split != "test" and fields_of_split.summary is None:
            raise UserError(f"{path}: no field is named as summaries are; training needs one, such as `summary`")
        if split != "test" and fields_of_split != fields:  # test records need no summary, so may differ
            raise UserError(f"{path}: its fields are not those of {files['train']}; name them alike")
    fields, count = guess_file(files["train"])
    if fields.id is None and "id" in record:  # without another id field, the corpus class `Files` reads ids from `id`
        raise UserError(f"{files['train']}: two records have the same `id`; make it unique, or rename the field")
    corpus: dict[str, Any] = {split: str(path.absolute()) for split, path in files.items()}
    corpus |= fields.arguments()
    identified_by = "the file and line" if fields.id is None else repr(fields.id)
    print(f"fields: document {fields.document!r}, summary {fields.summary!r}, id {identified_by}")
    return corpus if "val" in files else corpus | {"split": 0.1}, count  # a tenth of the records, for validation
