"""Files of summaries, the suite's or foreign ones: read with every record checked."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from datamodules.corpora.readers import read_rows
from datamodules.documents import BadRecord, CorpusError
from experiments.evaluation.prediction_fields import (
    Cutter,
    FieldNames,
    Row,
    bad_record,
    read_document,
    read_id,
    read_judgement,
    read_references,
    read_summary,
    read_system,
    source_sentences,
)
from experiments.texts import is_records


@dataclass(frozen=True)
class Prediction:
    """An output, and what it is judged by.

    Attributes:
        id: of the document, unique among a system's outputs.
        where: file and line.
        summary: its sentences; none if the system wrote nothing.
        references: each a list of sentences; none where a file has none.
        document: the source's sentences; None where it is not given.
        system: what wrote it; None where a file is one system's.
        human: judgements by name.
        split: who cut output and references into sentences: "given", or the cutter's name if one came as a string.
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
    cut: Cutter | None = None,
    human: Sequence[str] = (),
) -> list[Prediction]:
    """The outputs in a file, with all that they are judged by.

    A file whose suffix says so (`.jsonl`, `.csv`, ..., see `readers.read_rows`) holds records; any other one is plain
    text, an output a line, whose ids are the numbers of the lines.

    Args:
        references: further files, used instead of the field; records go by id, the lines of plain text by their number.
        documents: the same for the sources.
        names: of the fields.
        cut: how strings become sentences.
        human: fields with judgements.

    Raises:
        CorpusError: naming file and line, for a record that cannot be read, an id that is missing or there twice, an
            empty reference or document, a judgement that is no number, or files of different lengths.
    """
    names, cut = names or FieldNames(), cut or Cutter()
    if not path.is_file():
        raise CorpusError(f"{path}: no such file; give one with summaries, such as RUN/predictions.jsonl")
    read = _read_records if is_records(path) else _read_plain
    if read is _read_plain and (human or not references):
        lack = "judgements; put them into records" if human else "references; add --references FILE, one a line"
        raise CorpusError(f"{path}: plain text has no {lack} (records are in files named .jsonl, .csv or .parquet)")
    found = read(path, names, cut, human)
    if not found:
        raise CorpusError(f"{path}: no summary in it; give a file with a record or a line a summary")
    _check_systems(found)
    _check_ids(found)
    for number, other in enumerate(references):
        columns = _beside(other, path, found, names, _reference_of_line, read_references)
        for index, texts in enumerate(columns):
            before = found[index].references if number else []
            split = cut.name if any(isinstance(text, str) for text in texts) else found[index].split
            found[index] = replace(found[index], references=[*before, *map(cut, texts)], split=split)
    if documents is not None:
        found = with_documents(found, _beside(documents, path, found, names, _document_of_line, _document_of_record))
    _check_texts(found)
    return found


def with_documents(predictions: list[Prediction], documents: Sequence[list[str]]) -> list[Prediction]:
    """The same outputs with the sentences of their sources."""
    return [replace(one, document=document) for one, document in zip(predictions, documents)]


def by_id(predictions: list[Prediction], found: Mapping[str, Any], where: str) -> list[Any]:
    """What a mapping holds for the document of each output.

    Raises:
        CorpusError: if it lacks an id.
    """
    for one in predictions:
        if one.id not in found:
            raise bad_record(one.where, f"{where} has no document with this id", "give the one that was summarized")
    return [found[one.id] for one in predictions]


def scores_path(path: Path) -> Path:
    """Return where the scores of a file of outputs are written.

    `p.scores.jsonl` for `p.jsonl`, `p.csv.scores.jsonl` for `p.csv`.
    """
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.scores.jsonl")


def read_lines(path: Path) -> list[str]:
    """The lines of a plain text; a line feed ends a line, with a carriage return before it or not, and nothing else.

    Raises:
        CorpusError: if the file is absent or not UTF-8.
    """
    if not path.is_file():
        raise CorpusError(f"{path}: no such file; check the path")
    content = path.read_bytes()
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8 (byte 0x{content[error.start]:02x})"
        raise bad_record(f"{path}:{line}", problem, "convert the file (iconv -f latin1 -t utf-8)") from None
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _read_plain(path: Path, names: FieldNames, cut: Cutter, human: Sequence[str]) -> list[Prediction]:
    lines = enumerate(read_lines(path), start=1)
    return [Prediction(str(number), f"{path}:{number}", cut(line), [], split=cut.name) for number, line in lines]


def _read_records(path: Path, names: FieldNames, cut: Cutter, human: Sequence[str]) -> list[Prediction]:
    found = []
    for where, row in _rows(path, names, human):
        name = read_id(row, where, names)
        where = f"{where} (id {name!r})"
        summary = read_summary(row, where, names)
        # References may come from another file, and some measures need none.
        references = read_references(row, where, names) if row.get(names.references) is not None else []
        found.append(
            Prediction(
                name,
                where,
                cut(summary),
                [cut(text) for text in references],
                read_document(row, where, names),
                read_system(row, where, names),
                {judgement: read_judgement(row, where, judgement) for judgement in human},
                cut.name if any(isinstance(text, str) for text in (summary, *references)) else "given",
            )
        )
    return found


def _rows(path: Path, names: FieldNames, human: Sequence[str] = ()) -> Iterator[tuple[str, Row]]:
    """The records of a file with file and line."""
    wanted = [names.id, names.summary, names.references, names.document, "documents", names.system]
    for number, row in read_rows(path, [*wanted, *human, *(name.split(".")[0] for name in human)]):
        if isinstance(row, BadRecord):
            raise bad_record(row.where, row.problem, "mend the file: UTF-8, and a record a line")
        yield f"{path}:{number}", row


def _beside(
    path: Path,
    predicted: Path,
    predictions: list[Prediction],
    names: FieldNames,
    of_line: Callable[[str, str], Any],
    of_record: Callable[[Row, str, FieldNames], Any],
) -> list[Any]:
    """What another file holds for each output: of records by id, of plain text by line."""
    if is_records(path):
        found: dict[str, Any] = {}
        for where, row in _rows(path, names):
            name = read_id(row, where, names)
            if name in found:
                raise bad_record(where, f"id {name!r} is there twice", "give each record an id of its own")
            found[name] = of_record(row, f"{where} (id {name!r})", names)
        return by_id(predictions, found, str(path))
    lines = read_lines(path)
    if len(lines) != len(predictions):
        raise CorpusError(
            f"{path}: {len(lines)} lines, but {predicted} has {len(predictions)} summaries; they belong together line "
            "by line, so leave a line empty where a system wrote nothing"
        )
    return [of_line(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]


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
        problem = f"it has nothing in field {names.document!r}"
        raise bad_record(where, problem, "name the right one with --fields.document")
    return document


def _check_systems(predictions: list[Prediction]) -> None:
    """Raises unless all records name a system, or none does."""
    named = [one for one in predictions if one.system is not None]
    if named and len(named) < len(predictions):
        other = next(one for one in predictions if one.system is None)
        raise bad_record(other.where, f"it names no system, but {named[0].where} does", "name it in all or in none")


def _check_ids(predictions: list[Prediction]) -> None:
    """Raises if an id is there twice, of one system."""
    places: dict[tuple[str | None, str], str] = {}
    for one in predictions:
        key = (one.system, one.id)
        if key in places:
            remedy = "give each its own; where several systems summarize a document, name them in the field `system`"
            raise bad_record(one.where, f"the id is that of {places[key]} too", remedy)
        places[key] = one.where.partition(" (id ")[0]


def _check_texts(predictions: list[Prediction]) -> None:
    """Raises if a reference has no sentence, or if some records have a document and others have none."""
    for one in predictions:
        if not all(one.references):
            raise bad_record(one.where, "a reference is empty", "give it text, or leave the record out")
    having = [one for one in predictions if one.document is not None]
    if having and len(having) < len(predictions):
        other = next(one for one in predictions if one.document is None)
        raise bad_record(other.where, f"it has no document, but {having[0].where} has", "give those of all or of none")
