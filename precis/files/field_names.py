"""Detection of the fields with document, reference and id of a record, by common names and by their values."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from datamodules.corpora.fields import DocumentList, SummaryList
from datamodules.corpora.readers import read_rows
from datamodules.documents import BadRecord, UserError
from datamodules.text.language import ANY, count_words, language_of, length_words
from datamodules.text.lines import counted
from datamodules.text.sentences import UNSPACED_ENDS

# The most specific names come first.
DOCUMENT_NAMES = (
    "document", "documents", "article", "text", "source", "src", "dialogue", "report", "transcript", "body", "content",
    "sentences", "input", "maintext", "article_text",
)  # fmt: skip
SUMMARY_NAMES = (
    "summary", "summaries", "highlights", "abstract", "target", "tgt", "reference", "references", "headline", "title",
    "output", "abstract_text",
)  # fmt: skip
ID_NAMES = ("id", "guid", "doc_id", "article_id", "paper_id", "url")


@dataclass(frozen=True)
class FieldMap:
    """Arguments of the corpus class `Files`: names of fields (None if missing), and what lists mean (see `Fields`)."""

    document: str
    summary: str | None
    id: str | None
    document_list: DocumentList = "parts"
    summary_list: SummaryList = "references"

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that differ from the defaults of `Files`."""
        defaults = asdict(FieldMap("document", "summary", id=None))
        values = asdict(self) | {"id": None if self.id == "id" else self.id}  # the default None reads `id`, too
        return {name: value for name, value in values.items() if value != defaults[name]}


def guess_fields(row: Mapping[str, Any], where: str) -> FieldMap:
    """Return which fields hold document, reference and id, and what their lists mean; a `UserError` if no document."""
    by_lower_case = {name.lower(): name for name in reversed(list(row))}  # of Text and text, the first

    def first_field(names: Iterable[str]) -> str | None:
        return next((by_lower_case[name] for name in names if name in by_lower_case), None)

    document, summary = first_field(DOCUMENT_NAMES), first_field(SUMMARY_NAMES)
    if document is None:
        fields = ", ".join(row) or "none"
        raise UserError(f"{where}: no field is named like a document (fields: {fields}); rename one to `document`")
    is_one_part = document.lower() != "documents" and _is_sentences(row[document])
    document_list: DocumentList = "sentences" if is_one_part else "parts"  # see `Fields`
    summary_list: SummaryList = "tokens" if _is_tokens(row.get(summary)) else "references"
    if _is_tokens(row[document]):  # a list of tokens for each sentence
        document_list = "tokens"
    if summary and summary.lower() == "abstract_text":  # in data of Cohan et al. (2018): the abstract's sentences
        summary_list = "sentences"
    return FieldMap(document, summary, first_field(ID_NAMES), document_list, summary_list)


def guess_file(path: Path) -> tuple[FieldMap, int]:
    """Return the fields of a file by its first record, the id one of unique values, and its number of records."""
    record = first_row(path)
    by_lower_case = {name.lower(): name for name in record}  # name as in the file
    candidates = [by_lower_case[name] for name in ID_NAMES if name in by_lower_case]
    rows = (row for _, row in read_rows(path, candidates) if not isinstance(row, BadRecord))
    ids = [tuple(str(row.get(name)) for name in candidates) for row in rows]  # values of all candidates, by record
    unique = (name for name, values in zip(candidates, zip(*ids)) if len(set(values)) == len(ids))
    return replace(guess_fields(record, str(path)), id=next(unique, None)), len(ids)


def describe_value(value: Any) -> str:
    """Return the layout of a value in words, such as `list of 3 texts`, for `precis corpus FILE`."""
    if isinstance(value, str):
        return f"text of {counted(len(length_words(value)), 'word')}"
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return f"list of {counted(len(value), 'text')}"
    if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
        sentences = f"{counted(len(value), 'sentence')} as lists of tokens"
        return sentences if _is_tokens(value) else f"{len(value):,} lists of texts"  # tokens have no spaces
    return type(value).__name__


def first_row(path: Path) -> dict[str, Any]:
    """Return the first record of a file that can be read; a `UserError` if there is none."""
    problem = ""
    for _, row in read_rows(path, []):  # []: all fields
        if not isinstance(row, BadRecord):
            return row
        problem = problem or str(row)  # not raised if a later record can be read: bad ones may be skipped
    raise UserError(problem or f"{path}: no record in it; give a file with at least one")


def _is_tokens(value: Any) -> bool:
    """Return whether a value is a list of lists of tokens rather than sentences, which may have no spaces either."""
    if not isinstance(value, list) or not value or not all(isinstance(item, list) for item in value):
        return False
    tokens = [token for item in value for token in item]
    if not all(isinstance(token, str) and not token.isspace() and " " not in token for token in tokens):
        return False
    has_sentence = any(UNSPACED_ENDS.search(token) and len(length_words(token)) > 1 for token in tokens)
    return bool(tokens) and not has_sentence and count_words(tokens) <= 4 * len(tokens)  # average; Chinese: characters


def _is_sentences(value: Any) -> bool:
    """Return whether a value is a list of texts, at most a fifth with ends of sentences (of any language) inside."""
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(item, str) for item in value):
        return False  # a single text is rather a document than a list of its sentences
    texts = [UNSPACED_ENDS.sub(". ", item).strip() for item in value]  # in Chinese, no space follows a sentence
    num_with_several = sum(any(f"{stop} " in text for stop in language_of(ANY).sentence_ends) for text in texts)
    return num_with_several <= len(value) / 5  # a fifth, because "Dr. " in a sentence looks like its end
