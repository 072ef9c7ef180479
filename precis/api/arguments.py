"""Types of the arguments of the Python API."""

from collections.abc import Iterable, Mapping
from typing import Any

from datamodules.documents import Document, UserError
from precis.files.nested_values import leaves

Text = str | Mapping[str, Any] | Document


def checked(name: str, value: Any, kinds: Any, remedy: str) -> Any:
    """Return the value of an argument; a `UserError` with the name and a remedy if it is of none of these types."""
    if not isinstance(value, kinds):
        raise UserError(f"{name} is of type {type(value).__name__}; give {remedy}")
    return value


def metric_names(metrics: Any) -> str | None:
    """Return names of metrics, separated by commas, or None; a `UserError` if they are no string or list of strings."""
    if isinstance(metrics, str | None):
        return metrics
    remedy = "names of metrics, as a list or separated by commas"
    return ",".join(checked("metrics", name, str, remedy) for name in checked("metrics", metrics, list | tuple, remedy))


def text_rows(texts: Text | Iterable[Text]) -> list[dict[str, Any]]:
    """Return texts as records with `id`, by default their number from 1, and `document`; a `UserError` for no words."""
    rows = []
    if isinstance(texts, str | Mapping | Document):  # a single text
        texts = [texts]
    for number, text in enumerate(checked("texts", texts, Iterable, "a string, or a list of strings"), start=1):
        if not isinstance(text, (str, Mapping, Document)):
            kind = type(text).__name__
            raise UserError(f"text {number} is of type {kind}; give a string, or a mapping with a field 'document'")
        row = {"id": str(number), **text_row(text)}
        strings = [part for _, part in leaves(row.get("document", "")) if isinstance(part, str)]
        if not "".join(strings).strip():
            raise UserError(f"text {number} has no words; leave it out, or give one with words")
        rows.append(row)
    if not rows:
        raise UserError("there is no text; give a string, or a list of them")
    return rows


def text_row(text: Text) -> dict[str, Any]:
    if isinstance(text, Document):
        return {"id": text.id, "document": text.parts, "summary": text.references}
    return {"document": text} if isinstance(text, str) else dict(text)
