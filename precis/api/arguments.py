"""Types of the arguments of the Python API."""

from collections.abc import Iterable, Mapping
from typing import Any

from datamodules.documents import Document, UserError
from precis.files.nested_values import leaves

Text = str | Mapping[str, Any] | Document


def checked(name: str, value: Any, kinds: Any, remedy: str) -> Any:
    """Return the `value` of the argument `name` if its type is in `kinds`; else raise a `UserError` with `remedy`."""
    if not isinstance(value, kinds):
        raise UserError(f"{name} is of type {type(value).__name__}; give {remedy}")
    return value


def metric_names(metrics: Any) -> str | None:
    """Return metrics, a string or a list, as a comma-separated string; None for None, a `UserError` for other types."""
    if isinstance(metrics, str | None):
        return metrics
    remedy = "names of metrics, as a list or separated by commas"
    names = checked("metrics", metrics, list | tuple, remedy)  # raises a `UserError` for another type
    return ",".join(checked("metrics", name, str, remedy) for name in names)


def text_rows(texts: Text | Iterable[Text]) -> list[dict[str, Any]]:
    """Return a dict with `id` (by default 1, 2, ...) and `document` of each text; a `UserError` if one has no words."""
    records = []
    texts = [texts] if isinstance(texts, str | Mapping | Document) else texts  # a single text becomes a list
    texts = texts.to_dict("records") if hasattr(texts, "iterrows") else texts  # a table of pandas
    for number, text in enumerate(checked("texts", texts, Iterable, "a string, or a list of strings"), start=1):
        if not isinstance(text, (str, Mapping, Document)):
            kind = type(text).__name__
            raise UserError(f"text {number} is of type {kind}; give a string, or a mapping with a field 'document'")
        record = {"id": str(number), **text_row(text)}
        # A document may be nested lists of sentences, whose leaves are (path, sentence).
        strings = [part for _, part in leaves(record.get("document", "")) if isinstance(part, str)]
        if not "".join(strings).strip():
            raise UserError(f"text {number} has no words; leave it out, or give words (of a mapping, in 'document')")
        records.append(record)
    if not records:
        raise UserError("there is no text; give a string, or a list of them")
    return records


def text_row(text: Text) -> dict[str, Any]:  # record of a text: `document`, and the other fields that it has
    if isinstance(text, Document):
        return {"id": text.id, "document": text.parts, "summary": text.references}
    return {"document": text} if isinstance(text, str) else dict(text)
