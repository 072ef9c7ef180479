"""`precis init`: a project folder with a config for the user's own data."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import yaml
from jsonargparse import ArgumentParser

from datamodules.atomic_write import atomic_write
from datamodules.corpora.readers import read_rows
from datamodules.documents import BadRecord, UserError
from datamodules.text.lines import counted
from precis.files.field_names import ID_NAMES, first_row, guess_fields

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
    fields = guess_fields(first_row(files["train"]), str(files["train"]))
    for split, path in files.items():
        fields_of_split = guess_fields(first_row(path), str(path))
        if split != "test" and fields_of_split.summary is None:
            raise UserError(f"{path}: no field is named as summaries are; training needs one, such as `summary`")
        if split != "test" and fields_of_split != fields:  # test records need no summary, so may differ
            raise UserError(f"{path}: its fields are not those of {files['train']}; name them alike")
    id_field, count = _unique_id(files["train"])
    fields = replace(fields, id=id_field)
    corpus: dict[str, Any] = {split: str(path.absolute()) for split, path in files.items()}
    corpus |= fields.arguments()
    identified_by = "the file and line" if id_field is None else repr(id_field)
    print(f"fields: document {fields.document!r}, summary {fields.summary!r}, id {identified_by}")
    return corpus if "val" in files else corpus | {"split": 0.1}, count  # a tenth of the records, for validation


def _unique_id(path: Path) -> tuple[str | None, int]:
    """Return the first field of `ID_NAMES` with unique values (None if there is none), and the number of records."""
    # `read_rows` could select some fields of a Parquet file; with [] it reads all.
    records = [record for _, record in read_rows(path, []) if not isinstance(record, BadRecord)]
    by_lower_case = {name.lower(): name for name in records[0]}  # name as in the file
    candidates = [by_lower_case[name] for name in ID_NAMES if name in by_lower_case]
    for name in candidates:
        if len({str(record.get(name)) for record in records}) == len(records):
            return name, len(records)
    if "id" in candidates:  # without another id field, the corpus class `Files` reads ids from `id`
        raise UserError(f"{path}: two records have the same `id`; make it unique, or rename the field")
    return None, len(records)
