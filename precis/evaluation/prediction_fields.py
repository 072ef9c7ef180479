"""Fields of the records of prediction files: parsing and error messages."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from datamodules.documents import BadRecord, UserError
from datamodules.text.language import Language, language_of
from datamodules.text.lines import lone_surrogate

Splitter = Literal["auto", "lines", "sentencex", "tokenized"]
Row = dict[str, Any]

_TEXTS = "a string, a list of strings or a list of lists of sentences"


@dataclass(frozen=True)
class FieldNames:
    """Names of the fields of a record.

    Attributes:
        id: id of the document.
        summary: output, a string or a list of sentences.
        references: a string, a list of references, or a list of lists of sentences.
        document: a string, a list of parts, or a list of lists of sentences; `documents` is accepted, too.
        system: name of the system, if a file has summaries of several systems for the same documents.
    """

    id: str = "id"
    summary: str = "summary"
    references: str = "references"
    document: str = "document"
    system: str = "system"


class SentenceCutter:
    """Splits outputs and references into sentences.

    Args:
        splitter: "lines" takes each line as a sentence; "auto" is "lines" for strings with several lines, as in
            `rouge-score`, and otherwise detects which splitter of `Language.split_sentences` suits the string.
        separator: separator of sentences in a string, such as `<q>`.
        language: code of the language.
    """

    def __init__(self, splitter: Splitter = "auto", separator: str | None = None, language: str = "en") -> None:
        self.splitter = splitter
        self.separator = separator
        self.language = language_of(language)
        self.name = f"{splitter}({separator})" if separator else splitter  # in the signatures of scores

    def __call__(self, text: str | list[str]) -> list[str]:
        """Return the sentences of a string; a list already has sentences. Blank sentences are left out."""
        sentences = text
        if isinstance(text, str):
            text = text.replace(self.separator, "\n") if self.separator else text
            sentences = [line for line in text.split("\n") if line.strip()]
            # A single line may be a whole paragraph, which `auto` leaves to the language's splitter.
            has_sentence_per_line = self.splitter == "lines" or (self.splitter == "auto" and len(sentences) != 1)
            if not has_sentence_per_line:
                sentences = self.language.split_sentences(text, self.splitter)
        return [sentence.strip() for sentence in sentences if sentence.strip()]


def bad_record(where: str, problem: str, remedy: str) -> UserError:
    """Return the error for a bad record: where it is, what is wrong, what to do."""
    return UserError(str(BadRecord(where, problem, remedy)))


# The functions `read_...` take `where`, the record's place, and raise a `UserError` with it, the field and a remedy.


def read_id(row: Row, where: str, names: FieldNames) -> str:
    """Return the id of a record, which is required: files may leave documents out, so line numbers do not match."""
    if row.get(names.id) is None:
        problem = f"it has no id, field {names.id!r} (there are: {_fields(row)})"
        raise bad_record(where, problem, "give it one, or name the field with --fields.id")
    name = row[names.id]
    name = int(name) if isinstance(name, float) and name.is_integer() else name  # pandas writes 1 as 1.0
    if not _is_name(name) or not str(name).strip():
        raise bad_record(where, f"its id {name!r} is not a valid id", "give it one, a string or a number")
    return str(name)


def read_summary(row: Row, where: str, names: FieldNames) -> str | list[str]:
    """Return the output (summary) in a record, a string or a list of sentences, which may be empty."""
    return _checked_value(row, where, names.summary, "summary", "a string or a list of sentences", _is_text)


def read_references(row: Row, where: str, names: FieldNames) -> list[str | list[str]]:
    """Return the references in a record, each a string or a list of sentences; a single string is one reference."""
    value = _checked_value(row, where, names.references, flag="references", kind=_TEXTS, fits=_are_texts)
    references: list[str | list[str]] = [value] if isinstance(value, str) else value
    for number, reference in enumerate(references, start=1):
        if not "".join(reference).strip():  # joins the sentences of a list, and leaves a string as it is
            name = "the reference" if len(references) == 1 else f"reference {number} of {len(references)}"
            raise bad_record(where, f"{name} is empty", "give it text, or leave the record out")
    return references


def read_document(row: Row, where: str, names: FieldNames, language: Language) -> list[str] | None:
    """Return the sentences of the document in a record, at least one; None if the record has no document."""
    # Data sets with several sources for a summary often have them in a field `documents`.
    name = names.document if row.get(names.document) is not None else "documents"
    if row.get(name) is None:
        return None
    value = _checked_value(row, where, name, flag="document", kind=_TEXTS, fits=_are_texts)
    parts = [value] if isinstance(value, str) else value  # a list: parts of the document, or its sources
    sentences = [sentence for part in parts for sentence in source_sentences(part, language)]
    if not sentences:
        raise bad_record(where, "the document is empty", "give it text, or leave the record out")
    return sentences


def source_sentences(part: str | list[str], language: Language) -> list[str]:
    """Return the sentences of a document or part; blank lines end a sentence, other line ends are white space."""
    if isinstance(part, str):
        return [sentence for block in part.split("\n\n") for sentence in language.split_sentences(block)]
    return [sentence.strip() for sentence in part if sentence.strip()]


def read_system(row: Row, where: str, names: FieldNames) -> str | None:
    """Return the name of the system in a record; None if the record has none."""
    name = row.get(names.system)
    if name is not None and not _is_name(name):
        remedy = "write the name of the system, a string or a number"
        raise bad_record(where, f"field {names.system!r} is not a valid name", remedy)
    return None if name is None else str(name)


def _checked_value(row: Row, where: str, name: str, flag: str, kind: str, fits: Callable[[Any], bool]) -> Any:
    """Return the value of field `name`; if `fits(value)` is false, raise a `UserError`: it is not `kind` ("a text")."""
    if row.get(name) is None:
        remedy = f"name the right one with --fields.{flag}"
        raise bad_record(where, f"it has no value in field {name!r} (there are: {_fields(row)})", remedy)
    if not fits(row[name]):
        raise bad_record(where, f"field {name!r} is not {kind}", f"fix it, or name another with --fields.{flag}")
    if not _is_utf8(row[name]):  # JSON may hold half of a surrogate pair, such as "\ud800"
        raise bad_record(where, f"field {name!r} has half of a surrogate pair, which is not text", "fix it")
    return row[name]


def _fields(row: Row) -> str:
    return ", ".join(name for name, value in row.items() if value is not None) or "none"


def _is_name(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and _is_utf8(str(value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def _are_texts(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(map(_is_text, value)))


def _is_utf8(value: str | list) -> bool:
    """Return whether all strings can be encoded as UTF-8; half of a surrogate pair, which JSON allows, cannot."""
    return all(map(_is_utf8, value)) if isinstance(value, list) else lone_surrogate(value) is None
