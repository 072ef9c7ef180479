"""A file of answers that a killed command continues: settings on the first line, then one answer per line."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from datamodules.atomic_write import naming_full_disk
from datamodules.documents import UserError
from datamodules.file_locks import lock_file
from datamodules.text.lines import json_line, load_json, shorten


class Answers:
    """A model's answers, in a dict `by_id` and in an open file, to which new answers are written at once."""

    def __init__(self, path: Path, file: BinaryIO, by_id: dict[str, dict[str, Any]]) -> None:
        self.path = path
        self.file = file
        self.by_id = by_id

    def add(self, answers: Iterable[dict[str, Any]]) -> None:
        """Append answers, each with an `id`."""
        answers = list(answers)  # an iterator may be read once
        with naming_full_disk(self.path):  # if the disk is full, the error names the file
            self.file.write("".join(map(json_line, answers)).encode())
            self.file.flush()  # a killed command loses no answer that was paid for
        self.by_id |= {answer["id"]: answer for answer in answers}


def answers_path(predictions: Path) -> Path:
    """Return `NAME.answers.jsonl` for predictions `NAME.jsonl`; a `UserError` if their name does not end so."""
    if predictions.suffix != ".jsonl":
        raise UserError(f"{predictions}: predictions are JSON Lines; name a file that ends in .jsonl with --out")
    return predictions.with_suffix(".answers.jsonl")


@contextmanager
def open_answers(path: Path, settings: Mapping[str, Any]) -> Iterator[Answers]:
    """Open a file of answers, a new one or one that a killed command left, whose incomplete last line is removed.

    `settings` has everything that answers depend on, and as `system` their kind, such as `chat`. A `UserError` if the
    file has answers under other settings, is damaged, or is in use by another process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = json.loads(json.dumps(settings))  # as they are read from the file: tuples become lists
    with path.open("a+b") as file:
        if lock_file(file, path) is False:  # locked by another process; None: the file system has no locks
            raise UserError(f"{path}: another process writes to it; wait for it, or pass another --out")
        file.seek(0)
        content = file.read()
        end = content.rfind(b"\n") + 1  # of the last complete line
        if end < len(content):  # a killed process leaves an incomplete last line
            file.truncate(end)
        records = list(_parse_lines(path, content[:end]))  # settings, then answers
        if len(records) > 1 or (records and "system" not in records[0]):  # it has answers, or is no file of answers
            check_settings(path, records[0], settings)
        else:  # no answer yet: other settings may replace the first line
            file.truncate(0)
            file.write(json_line(settings).encode())
            file.flush()
        yield Answers(path, file, {answer["id"]: answer for answer in records[1:]})


def read_answers(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the settings and the answers by id in a file of answers; a `UserError` if it is missing or damaged."""
    if not path.is_file():
        raise UserError(f"{path}: no such file of answers; run the command with a model first")
    records = list(_parse_lines(path, path.read_bytes()))
    if not records:
        raise UserError(f"{path}: the file is empty; run the command with a model first")
    return records[0], {answer["id"]: answer for answer in records[1:]}


def check_settings(path: Path, recorded: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise a `UserError` that lists the differences between the settings of a file and of this command, if any."""
    names = [name for name in {**recorded, **settings} if recorded.get(name) != settings.get(name)]
    differences = []
    for name in names:
        was, now = (json.dumps(values.get(name), ensure_ascii=False) for values in (recorded, settings))
        differences.append(f"{name} {shorten(was, 80)}, now {shorten(now, 80)}")  # a prompt may be long
    if differences:
        remedy = "choose another file with --out, or remove this one"
        raise UserError(f"{path}: has answers under other settings ({'; '.join(differences)}); {remedy}")


def _parse_lines(path: Path, content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the settings on the first line, then an answer per line; a `UserError` if one is no JSON object with id."""
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):  # [:-1] drops an incomplete or empty last part
        try:
            record = load_json(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or (number > 1 and "id" not in record):
            remedy = "remove the line, and run the command again"
            raise UserError(f"{path}:{number}: not a JSON record with an id; {remedy}")
        yield record
