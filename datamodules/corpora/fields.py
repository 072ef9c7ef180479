"""Conversion of table rows, with configurable column names, to `Record`s, without marks of published datasets."""

import re
from collections import Counter
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, Literal, get_args, get_origin

from datamodules.documents import FIX_OR_SKIP, OR_SKIP, BadRecord, Record, UserError
from datamodules.text.lines import is_blank, split_lines

# name of a rule -> pattern of its marks (strings in published datasets that are no text), and what replaces them
RULES = {
    "byte order marks": (re.compile("\ufeff"), ""),
    "sentence tags <S>": (re.compile(r"</?S> ?"), ""),  # PubMed and arXiv of Cohan et al. (2018)
    "marks NEWLINE_CHAR": (re.compile(r" ?\bNEWLINE_CHAR\b ?"), "\n"),  # Multi-News
    # CNN/DailyMail: "(CNN)" or "LONDON, England (CNN) --", but no convolutional neural network
    "datelines (CNN)": (re.compile(r"\A(?:[A-Z]{2}[^\n()]{0,60} (?=\(CNN\) --))?\(CNN\)(?: ?--)? ?"), ""),
}


def clean(value: Any, counts: Counter[str]) -> Any:
    """Remove marks of datasets (`RULES`), such as "(CNN)", from a text or nested lists of texts; count them by rule."""
    if isinstance(value, list):
        return [clean(item, counts) for item in value]
    if isinstance(value, str):
        for rule, (marks, replacement) in RULES.items():
            value, num_removed = marks.subn(replacement, value)
            counts[rule] += num_removed
    return value  # without marks; None and numbers are unchanged


# None comes first because the command line takes the first type that fits, and "null" is also a valid string
NameOrNone = None | str
NamesOrNone = None | list[str] | str
Paragraphs = Literal["blank_line", "line", "none"]
Sentences = Literal["split", "line"]
DocumentList = Literal["parts", "sentences", "tokens"]
SummaryList = Literal["references", "sentences", "tokens"]


@dataclass(frozen=True)
class Fields:
    """Names and layout of the fields of a row.

    Args:
        document: field that holds the text or a list of texts, or several such fields, which are concatenated.
        summary: field or fields that hold the reference or a list of references; null if there are none.
        id: field that holds the id; by default `id`, or file name and line number if there is no such field.
        paragraphs: separator of paragraphs in a document that is one string: `blank_line`, `line` or `none`.
        separator: string between source documents in a document that is one string; replaces `paragraphs`.
        document_list: meaning of a list of strings: `parts` (paragraphs or source documents), or the `sentences` of one
            part. A list of lists of strings has a list of sentences for each part, or with `tokens` a list of tokens
            for each sentence of the only part (the JSON of PreSumm).
        document_sentences: `split` splits text into sentences; `line` takes each line as a sentence.
        summary_list: meaning of a list of strings: several `references`, or the `sentences` of one; lists of lists and
            `tokens` as in `document_list`.
        summary_sentences: like `document_sentences`, for references.
        skip_parts: number of parts to leave out at the beginning of each document.

    Raises:
        UserError: if an argument has an invalid value.
    """

    document: list[str] | str = "document"
    summary: NamesOrNone = "summary"
    id: NameOrNone = None
    paragraphs: Paragraphs = "blank_line"
    separator: str | None = None
    document_list: DocumentList = "parts"
    document_sentences: Sentences = "split"
    summary_list: SummaryList = "references"
    summary_sentences: Sentences = "split"
    skip_parts: int = 0

    def __post_init__(self) -> None:
        for name in ("document", "summary"):
            if isinstance(getattr(self, name), list):  # a tuple, so that equal lists and tuples have one fingerprint
                object.__setattr__(self, name, tuple(getattr(self, name)))  # a frozen dataclass forbids `self.name =`
        for field in fields(self):
            value, choices = getattr(self, field.name), get_args(field.type)
            if get_origin(field.type) is Literal and value not in choices:
                raise UserError(f"{field.name}={value!r} is not one of {', '.join(choices)}; choose one")

    @property
    def names(self) -> list[str]:
        """Distinct names of the fields to read: id, documents, summaries."""
        return [*dict.fromkeys([self.id or "id", *_as_tuple(self.document), *_as_tuple(self.summary)])]

    def record(self, row: dict[str, Any], where: str, number: str) -> Record | BadRecord:
        """Convert a row to a record, cleaned by `RULES`, or to a `BadRecord` if a field is invalid.

        `where` is the place of the row for messages; the names of the row's fields are added to it if the summary field
        is missing. `number` names the row, such as `train-12`; it is the id if the row has no field `id`.
        """
        # `number` replaces a missing field `id`, but not a missing field that the user named
        identifier = row.get(self.id or "id", number if self.id is None else None)
        if isinstance(identifier, float) and identifier.is_integer():  # pandas writes 1 as 1.0
            identifier = int(identifier)
        if not isinstance(identifier, str | int):
            return _bad_field(row, where, self.id or "id", "a string or an integer", "id")
        where = f"{where} (id {identifier!r})" if identifier != number else where
        cleaned: Counter[str] = Counter()  # rule -> number of removed marks
        parts = []  # paragraphs or source documents
        for field in _as_tuple(self.document):
            value = clean(row.get(field), cleaned)
            texts = _texts(value, self.document_list)
            if texts is None:
                return _bad_field(row, where, field, "a string or a list of strings", "document")
            if isinstance(value, str):
                texts = value.split(self.separator) if self.separator else _paragraphs(value, self.paragraphs)
            parts += texts
        references = []
        summary_fields = _as_tuple(self.summary)
        for field in summary_fields:
            texts = _texts(clean(row.get(field), cleaned), self.summary_list)
            if texts is None and row.get(field) is not None:
                return _bad_field(row, where, field, "a string or a list of strings", "summary")
            references += texts or []  # None for a missing summary
        if summary_fields and not any(field in row for field in summary_fields):
            where = f"{where} (fields: {', '.join(row)})"  # for the error if a reference is required
        return Record(
            str(identifier),
            [_lines_or_text(part, self.document_sentences) for part in parts[self.skip_parts :]],
            [_lines_or_text(text, self.summary_sentences) for text in references],
            where,
            dict(+cleaned),  # without zero counts
        )


def _as_tuple(names: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names or ()  # None, for no summary, becomes ()


def _texts(value: Any, layout: DocumentList | SummaryList) -> list[str | list[str]] | None:
    """Return the texts in a field, strings or lists of sentences; None if its type does not fit `layout` (`Fields`)."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        return None
    lists = [item for item in value if not isinstance(item, str)]  # sentences of a text, or tokens of a sentence
    if not all(isinstance(item, list) and all(isinstance(text, str) for text in item) for item in lists):
        return None
    if lists and len(lists) < len(value) and layout != "references":  # only references may mix strings and lists
        return None
    if layout == "tokens" and value:  # each item is a sentence of one text, as a list of tokens
        return [[" ".join(tokens) for tokens in lists]] if len(lists) == len(value) else None
    return [value] if layout == "sentences" and not lists else value  # one text's sentences, or several texts


def _paragraphs(text: str, paragraphs: Paragraphs) -> list[str]:
    """Split a text into paragraphs at line ends or blank lines, or not at all with `none`."""
    if paragraphs == "none":
        return [text]
    lines = split_lines(text)
    if paragraphs == "line":
        return lines
    return ["\n".join(block) for blank, block in groupby(lines, key=is_blank) if not blank]


def _lines_or_text(text: str | list[str], sentences: Sentences) -> str | list[str]:  # lines that are sentences
    return split_lines(text) if sentences == "line" and isinstance(text, str) else text


def _bad_field(row: dict[str, Any], where: str, field: str, expected: str, argument: str) -> BadRecord:
    """Return the error of a field that is missing or not of type `expected`; the user names it by option `argument`."""
    if field not in row:
        problem = f"it has no field {field!r} (there are: {', '.join(row) or 'none'})"
        return BadRecord(where, problem, f"name the right one with `{argument}`, {OR_SKIP}")
    kind = "null" if row[field] is None else f"of type {type(row[field]).__name__}"
    return BadRecord(where, f"field {field!r} is {kind}, not {expected}", FIX_OR_SKIP)
