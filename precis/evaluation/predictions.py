"""Files of summaries, the suite's or foreign ones: read with every record checked."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from datamodules.corpora.readers import read_rows
from datamodules.documents import BadRecord, UserError
from precis.evaluation.layouts import (
    from_summeval,
    is_realsumm,
    is_summeval,
    judgements_in,
    realsumm_rows,
    refuse_pickle,
)
from precis.evaluation.prediction_fields import (
    FieldNames,
    Row,
    SentenceCutter,
    bad_record,
    read_document,
    read_id,
    read_judgement,
    read_references,
    read_summary,
    read_system,
    source_sentences,
)
from precis.files.texts import is_records


@dataclass(frozen=True)
class Prediction:
    """An output with references, source and judgements.

    Attributes:
        id: id of the document, unique among the outputs of a system.
        where: file and line.
        summary: sentences of the output, possibly none.
        references: references, each a list of sentences, possibly none.
        document: sentences of the source, or None.
        system: name of the system; None if the file has only one.
        human: human judgements by name.
        split: sentence splitter of output and references; "given" if they were lists.
    """

    id: str
    where: str
    summary: list[str]
    references: list[list[str]]
    document: list[str] | None = None
    system: str | None = None
    human: dict[str, float] = field(default_factory=dict)
    split: str = "given"


def read_predictions(
    path: Path,
    references: Sequence[Path] = (),
    documents: Path | None = None,
    names: FieldNames | None = None,
    splitter: SentenceCutter | None = None,
    human: Sequence[str] = (),
) -> list[Prediction]:
    """Read the outputs of a file with references, sources and judgements.

    Files with suffixes of records (`.jsonl`, `.csv`, ..., see `readers.read_rows`) have records, those of SummEval and
    RealSumm too (see `layouts`); all others are plain text with one output per line, whose ids are line numbers.

    Args:
        path: the file.
        references: files with references, instead of the field; matched by id, or by line number in plain text.
        documents: file with sources, matched in the same way.
        names: names of fields.
        splitter: splits strings into sentences.
        human: names of fields with judgements.

    Raises:
        UserError: with file and line, for an unreadable record, a missing or duplicate id, an empty reference or
            document, an invalid judgement, or files of different lengths.
    """
    names, splitter = names or FieldNames(), splitter or SentenceCutter()
    refuse_pickle(path)
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "no such file"
        raise UserError(f"{path}: {kind}; give a file with summaries, such as RUN/predictions.jsonl")
    read_file = _read_records if is_records(path) else _read_plain
    if read_file is _read_plain and (human or not references):
        missing = "judgements; put them into records" if human else "references; add --references FILE, one per line"
        raise UserError(f"{path}: plain text has no {missing} (records are in files named .jsonl, .csv or .parquet)")
    predictions = read_file(path, names, splitter, human)
    if not predictions:
        raise UserError(f"{path}: no summary in it; give a file with one record or one line per summary")
    _check_systems(predictions)
    check_ids(predictions)
    # Each file of references adds one to those of the files before; the first one replaces the field of the records.
    for number, file in enumerate(references):
        columns = _values_of_other_file(file, path, predictions, names, _reference_of_line, read_references)
        for index, texts in enumerate(columns):
            before = predictions[index].references if number else []
            split = splitter.name if any(isinstance(text, str) for text in texts) else predictions[index].split
            predictions[index] = replace(predictions[index], references=[*before, *map(splitter, texts)], split=split)
    if documents is not None:
        texts = _values_of_other_file(documents, path, predictions, names, _document_of_line, _document_of_record)
        predictions = with_documents(predictions, texts)
    _check_texts(predictions)
    return predictions


def with_documents(predictions: list[Prediction], documents: Sequence[list[str]]) -> list[Prediction]:
    """Add the sentences of sources to outputs."""
    return [replace(prediction, document=document) for prediction, document in zip(predictions, documents)]


def by_id(predictions: list[Prediction], values: Mapping[str, Any], where: str) -> list[Any]:
    """Look up the document of each output in a mapping.

    Raises:
        UserError: if it lacks an id.
    """
    for prediction in predictions:
        if prediction.id not in values:
            problem = f"{where} has no document with this id"
            raise bad_record(prediction.where, problem, "give the one that was summarized")
    return [values[prediction.id] for prediction in predictions]


def scores_path(path: Path) -> Path:
    """Return where the scores of a file of outputs are written.

    `p.scores.jsonl` for `p.jsonl`, `p.csv.scores.jsonl` for `p.csv`.
    """
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.scores.jsonl")


def read_lines(path: Path) -> list[str]:
    """Return the lines of a plain text file, split only at line feeds (with or without carriage return).

    Raises:
        UserError: if the file is missing or not UTF-8.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; check the path")
    content = path.read_bytes()
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8 (byte 0x{content[error.start]:02x})"
        raise bad_record(f"{path}:{line}", problem, "convert the file (iconv -f latin1 -t utf-8)") from None
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _read_plain(path: Path, names: FieldNames, splitter: SentenceCutter, human: Sequence[str]) -> list[Prediction]:
    return [
        Prediction(str(number), f"{path}:{number}", splitter(line), [], split=splitter.name)
        for number, line in enumerate(read_lines(path), start=1)
    ]


def _read_records(path: Path, names: FieldNames, splitter: SentenceCutter, human: Sequence[str]) -> list[Prediction]:
    predictions = []
    for where, row in _rows(path, names, human):
        name = read_id(row, where, names)
        where = f"{where} (id {name!r})"
        summary = read_summary(row, where, names)
        # References may come from another file, and some measures need none.
        references = read_references(row, where, names) if row.get(names.references) is not None else []
        predictions.append(
            Prediction(
                id=name,
                where=where,
                summary=splitter(summary),
                references=[splitter(text) for text in references],
                document=read_document(row, where, names),
                system=read_system(row, where, names),
                human={judgement: read_judgement(row, where, judgement) for judgement in human},
                split=splitter.name if any(isinstance(text, str) for text in (summary, *references)) else "given",
            )
        )
    return predictions


def _rows(path: Path, names: FieldNames, human: Sequence[str] = ()) -> Iterator[tuple[str, Row]]:
    """Yield the records of a file with file and line; those of published layouts with the suite's names of fields."""
    if is_realsumm(path):
        yield from realsumm_rows(path)
        return
    fields = [names.id, names.summary, names.references, names.document, "documents", names.system]
    for number, row in read_rows(path, [*fields, *human, *(name.split(".")[0] for name in human)]):
        if isinstance(row, BadRecord):
            raise bad_record(row.where, row.problem, "fix the file: it must be UTF-8 with one record per line")
        yield f"{path}:{number}", from_summeval(row) if names.summary == "summary" and is_summeval(row) else row


def default_judgements(path: Path, names: FieldNames) -> list[str]:
    """Return the human judgements that the layout of a file provides, see `layouts`; none for other files."""
    row = next(_rows(path, names), None) if is_records(path) else None
    return judgements_in(row[1]) if row else []


def _values_of_other_file(
    path: Path,
    predicted: Path,
    predictions: list[Prediction],
    names: FieldNames,
    value_of_line: Callable[[str, str], Any],
    value_of_record: Callable[[Row, str, FieldNames], Any],
) -> list[Any]:
    """Return the values of another file for each output, by id for records and by line for plain text."""
    if is_records(path):
        values: dict[str, Any] = {}
        for where, row in _rows(path, names):
            name = read_id(row, where, names)
            if name in values:
                raise bad_record(where, f"id {name!r} occurs twice", "give each record a unique id")
            values[name] = value_of_record(row, f"{where} (id {name!r})", names)
        return by_id(predictions, values, str(path))
    lines = read_lines(path)
    if len(lines) != len(predictions):
        raise UserError(
            f"{path}: {len(lines)} lines, but {predicted} has {len(predictions)} summaries; they belong together line "
            "by line, so leave a line empty where a system wrote nothing"
        )
    return [value_of_line(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]


def _reference_of_line(line: str, where: str) -> list[str]:
    if not line.strip():
        raise bad_record(where, "the reference is empty", "give it text, or leave the line out of all files")
    return [line]


def _document_of_line(line: str, where: str) -> list[str]:
    if not line.strip():
        raise bad_record(where, "the document is empty", "give it text, or leave the line out of all files")
    return source_sentences(line)


def _document_of_record(row: Row, where: str, names: FieldNames) -> list[str]:
    document = read_document(row, where, names)
    if document is None:
        problem = f"it has no value in field {names.document!r}"
        raise bad_record(where, problem, "name the right one with --fields.document")
    return document


def _check_systems(predictions: list[Prediction]) -> None:
    """Raise an error if only some records name a system."""
    with_system = [prediction for prediction in predictions if prediction.system is not None]
    if with_system and len(with_system) < len(predictions):
        without_system = next(prediction for prediction in predictions if prediction.system is None)
        raise bad_record(
            without_system.where, f"it names no system, but {with_system[0].where} does", "name it in all or in none"
        )


def check_ids(predictions: list[Prediction]) -> None:
    """Raise an error for duplicate ids of one system.

    Raises:
        UserError: with the places of both.
    """
    first_seen: dict[tuple[str | None, str], str] = {}
    for prediction in predictions:
        key = (prediction.system, prediction.id)
        if key in first_seen:
            remedy = "give each its own; where several systems summarize a document, name them in the field `system`"
            raise bad_record(prediction.where, f"the id is that of {first_seen[key]} too", remedy)
        first_seen[key] = prediction.where.partition(" (id ")[0]


def _check_texts(predictions: list[Prediction]) -> None:
    """Raise an error if a reference is empty, or if only some records have a document."""
    for prediction in predictions:
        if not all(prediction.references):
            raise bad_record(prediction.where, "a reference is empty", "give it text, or leave the record out")
    with_document = [prediction for prediction in predictions if prediction.document is not None]
    if with_document and len(with_document) < len(predictions):
        without_document = next(prediction for prediction in predictions if prediction.document is None)
        problem = f"it has no document, but {with_document[0].where} has"
        raise bad_record(without_document.where, problem, "give documents to all records or to none")
