"""Files of summaries, the suite's or foreign ones: read with every record checked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from datamodules.corpora.readers import read_rows
from datamodules.documents import BadRecord, UserError
from datamodules.text.hashing import file_digest
from datamodules.text.language import Language
from datamodules.text.lines import counted
from precis.evaluation import prediction_fields
from precis.evaluation.prediction_fields import FieldNames, Row, SentenceCutter, bad_record
from precis.files.data_files import read_json
from precis.files.texts import is_records


@dataclass(frozen=True)
class Prediction:
    """The output of a system for a document, with references and source."""

    id: str  # id of the document, unique among the outputs of a system
    where: str  # place for error messages, such as file and line
    summary: list[str]  # sentences of the output, possibly none
    references: list[list[str]]  # references, each a list of sentences, possibly none
    document: list[str] | None = None  # sentences of the source, or None
    system: str | None = None  # name of the system; None if the file has only one
    split: str = "given"  # name of the sentence splitter of output and references; "given" if they were lists


def read_predictions(
    path: Path,
    references: Sequence[Path] = (),
    documents: Path | None = None,
    names: FieldNames | None = None,
    splitter: SentenceCutter | None = None,
) -> list[Prediction]:
    """Read the outputs of a file with references and sources.

    Files with suffixes of records (`.jsonl`, `.csv`, ..., see `readers.read_rows`) have records; all others are plain
    text with one output per line, whose ids are line numbers. Texts in the files `references` and `documents` replace
    the references and sources in the records; they are matched by id, or by line number in plain text.

    Raises:
        UserError: with file and line, for an unreadable record, a missing or duplicate id, an empty reference or
            document, or files of different lengths.
    """
    names = names or FieldNames()
    splitter = splitter or SentenceCutter()
    if not path.is_file():
        raise UserError(f"{path}: no file of this name; give a file with summaries, such as RUN/predictions.jsonl")
    if is_records(path):
        predictions = [_read_record(row, where, names, splitter) for where, row in _records(path, names)]
    elif not references:
        missing = "references; add --references FILE, one per line"
        raise UserError(f"{path}: plain text has no {missing} (records are in files named .jsonl, .csv or .parquet)")
    else:
        predictions = []
        for number, line in enumerate(_read_lines(path), start=1):
            predictions.append(Prediction(str(number), f"{path}:{number}", splitter(line), [], split=splitter.name))
    if not predictions:
        raise UserError(f"{path}: no summary in it; give a file with one record or one line per summary")
    check_all_or_none(predictions, "system")
    check_ids(predictions)
    # The first file of references replaces the references of the records, and each further file adds to them.
    for number, file in enumerate(references):
        by_output = _values_of_other_file(file, path, predictions, names, "references", splitter.language)
        for index, texts in enumerate(by_output):  # texts: the references of an output in this file
            before = predictions[index].references if number else []
            # `split`, for signatures, is the name of what divides strings into sentences; lists already have sentences.
            split = splitter.name if any(isinstance(text, str) for text in texts) else predictions[index].split
            predictions[index] = replace(predictions[index], references=[*before, *map(splitter, texts)], split=split)
    if documents is not None:
        texts = _values_of_other_file(documents, path, predictions, names, "document", splitter.language)
        predictions = [replace(prediction, document=text) for prediction, text in zip(predictions, texts)]
    for prediction in predictions:
        if not all(prediction.references):
            raise bad_record(prediction.where, "a reference is empty", "give it text, or leave the record out")
    check_all_or_none(predictions, "document")
    return predictions


def with_run_documents(predictions: list[Prediction], run: str, split: str) -> list[Prediction]:
    """Return outputs with their source documents, from a split of a run's corpus; a `UserError` if one is missing."""
    from datamodules.corpora.corpus import as_document  # these import torch and Lightning
    from precis.runs.run_folder import run_documents

    sources = {document.id: document.sentences for document in map(as_document, run_documents(Path(run), split))}
    documents = _by_id(predictions, sources, f"the {split} split of {run}")
    return [replace(prediction, document=document) for prediction, document in zip(predictions, documents)]


def _by_id(predictions: list[Prediction], values: Mapping[str, Any], where: str) -> list[Any]:
    """Return for each output the value by its id; a `UserError` if `values`, the content of `where`, lacks an id."""
    for prediction in predictions:
        if prediction.id not in values:
            problem = f"{where} has no document with this id"
            raise bad_record(prediction.where, problem, "give the one that was summarized")
    return [values[prediction.id] for prediction in predictions]


def scores_path(path: Path) -> Path:
    """Return the file of scores of outputs: `p.scores.jsonl` for `p.jsonl`, `p.csv.scores.jsonl` for `p.csv`."""
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.scores.jsonl")


def signatures_of(scores: Path, predictions: Path) -> dict[str, str] | None:
    """Return the signatures of a file of scores by measure; None if they are not about these predictions."""
    path = scores.with_suffix(".signatures.json")
    signatures = read_json(path) if path.is_file() else {}  # with the digest of the scored predictions as `sha256`
    return signatures if signatures.pop("sha256", None) == file_digest(predictions) else None


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 text file, with or without byte order mark; only LF and CRLF end a line."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; check the path")
    content = path.read_bytes()
    try:
        lines = content.decode("utf-8-sig").split("\n")  # `splitlines` would also split at U+2028, inside a text
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8 (byte 0x{content[error.start]:02x})"
        raise bad_record(f"{path}:{line}", problem, "convert the file (iconv -f latin1 -t utf-8)") from None
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]  # no line after the last LF


def _read_record(row: Row, where: str, names: FieldNames, splitter: SentenceCutter) -> Prediction:
    """Return the output in a record at `where` (FILE:LINE), after checks."""
    name = prediction_fields.read_id(row, where, names)
    where = f"{where} (id {name!r})"
    summary = prediction_fields.read_summary(row, where, names)
    # References may come from another file, and some measures need none.
    references = prediction_fields.read_references(row, where, names) if row.get(names.references) is not None else []
    has_strings = any(isinstance(text, str) for text in (summary, *references))  # else lists of sentences: no splitter
    return Prediction(
        id=name, where=where, summary=splitter(summary), references=[splitter(text) for text in references],
        document=prediction_fields.read_document(row, where, names, splitter.language),
        system=prediction_fields.read_system(row, where, names), split=splitter.name if has_strings else "given",
    )  # fmt: skip


def _records(path: Path, names: FieldNames) -> Iterator[tuple[str, Row]]:
    """Yield ("file:line", record) for the records of a file; a `UserError` for one that cannot be read."""
    fields = [names.id, names.summary, names.references, names.document, "documents", names.system]
    for number, row in read_rows(path, fields):  # only these columns of a Parquet file are read
        if isinstance(row, BadRecord):
            raise bad_record(row.where, row.problem, "fix the file: it must be UTF-8 with one record per line")
        yield f"{path}:{number}", row


def _values_of_other_file(
    path: Path,
    predicted: Path,  # file of the outputs, for messages
    predictions: list[Prediction],
    names: FieldNames,
    kind: Literal["references", "document"],  # which of the two the file has
    language: Language,  # which divides documents into sentences
) -> list[Any]:
    """Return from another file the references (texts) or document (sentences) of each output, by its id or line."""
    if is_records(path):
        values: dict[str, Any] = {}  # by id
        for where, row in _records(path, names):
            name = prediction_fields.read_id(row, where, names)
            if name in values:
                raise bad_record(where, f"id {name!r} occurs twice", "give each record a unique id")
            where = f"{where} (id {name!r})"
            if kind == "references":
                values[name] = prediction_fields.read_references(row, where, names)
            else:
                values[name] = prediction_fields.read_document(row, where, names, language)
            if values[name] is None:  # only `read_document` returns None
                problem = f"it has no value in field {names.document!r}"
                raise bad_record(where, problem, "name the right one with --fields.document")
        return _by_id(predictions, values, str(path))
    lines = _read_lines(path)
    if len(lines) != len(predictions):
        counts = f"{counted(len(lines), 'line')}, but {predicted} has {counted(len(predictions), 'summary')}"
        remedy = "they belong together line by line, so leave a line empty where a system wrote nothing"
        raise UserError(f"{path}: {counts}; {remedy}")
    for number, line in enumerate(lines, start=1):
        if not line.strip():  # an output may be empty, but its reference and document not
            problem = f"the {kind.removesuffix('s')} is empty"
            raise bad_record(f"{path}:{number}", problem, "give it text, or leave the line out of all files")
    if kind == "references":
        return [[line] for line in lines]  # one reference for each output
    return [prediction_fields.source_sentences(line, language) for line in lines]


def check_all_or_none(predictions: list[Prediction], name: Literal["system", "document"]) -> None:
    """Raise a `UserError` if one record has a system (or document) and another has none."""
    present = [prediction for prediction in predictions if getattr(prediction, name) is not None]
    if present and len(present) < len(predictions):
        absent = next(prediction for prediction in predictions if getattr(prediction, name) is None)
        problem = f"it has no {name}, but {present[0].where} has"
        raise bad_record(absent.where, problem, f"give a {name} to all records or to none")


def check_ids(predictions: list[Prediction]) -> None:
    """Raise a `UserError` that names both lines if two outputs of a system have the same id."""
    places: dict[tuple[str | None, str], str] = {}  # file and line by system and id
    for prediction in predictions:
        system_and_id = (prediction.system, prediction.id)
        if system_and_id in places:
            remedy = "give each its own; where several systems summarize a document, name them in the field `system`"
            raise bad_record(prediction.where, f"the id is that of {places[system_and_id]} too", remedy)
        places[system_and_id] = prediction.where.partition(" (id ")[0]  # FILE:LINE of "FILE:LINE (id ID)"
