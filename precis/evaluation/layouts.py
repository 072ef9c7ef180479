"""Published layouts of summaries with human judgements: SummEval (Fabbri et al. 2021), RealSumm (Bhandari et al. 2020).

SummEval has JSON Lines with a record for each output: `id`, `decoded`, `references` (or `reference`), `model_id`,
`text` (in its paired files), and `expert_annotations`, a list with an object for each annotator. RealSumm has one
dictionary from documents to `ref_summ` and `system_summaries`; each output comes with `scores`, of which
`litepyramid_recall` is the human score.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from datamodules.documents import BadRecord, UserError
from datamodules.text.lines import load_json

Row = dict[str, Any]

PICKLES = (".pkl", ".pickle", ".p")
PYRAMID = "litepyramid_recall"
_HEAD = 1 << 16  # bytes in which a file of RealSumm has the name of a field


def refuse_pickle(path: Path) -> None:
    """Raise an error for a pickle, as RealSumm's files are upstream.

    Raises:
        UserError: with a command that converts it.
    """
    if path.suffix.lower() in PICKLES:
        command = "python -c \"import json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), sys.stdout)\""
        raise UserError(
            f"{path}: a pickle, which can run any code when it is read; if you trust it, convert it: "
            f"{command} {path.name} > {path.stem}.json"
        )


def is_realsumm(path: Path) -> bool:
    """Return whether a JSON file is in RealSumm's layout."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and b'"system_summaries"' in head


def realsumm_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield a record for each output of a file of RealSumm, with the place in the file.

    Raises:
        UserError: if the file is not JSON, or a document lacks a field.
    """
    try:
        documents = load_json(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise UserError(f"{path}: broken JSON ({error}); convert the file again") from None
    for key, document in documents.items():
        where = f"{path}: document {key!r}"
        if not isinstance(document, dict) or not isinstance(document.get("system_summaries"), dict):
            raise UserError(str(BadRecord(where, "it has no 'system_summaries'", "give RealSumm's whole dictionary")))
        for system, output in document["system_summaries"].items():
            if not isinstance(output, dict) or "system_summary" not in output:
                problem = f"system {system!r} has no 'system_summary'"
                raise UserError(str(BadRecord(where, problem, "give RealSumm's whole dictionary")))
            references = _sentences(document.get("ref_summ"))
            row = {
                "id": str(document.get("doc_id", key)),
                "system": system,
                "summary": _sentences(output["system_summary"]),
                "references": [references] if isinstance(references, list) else references,
            }
            yield f"{where}, system {system!r}", row | dict(output.get("scores") or {})


def _sentences(text: Any) -> Any:
    """Return the sentences from each `<t>` to the next `</t>` or `<t>`; a text without these marks as it is."""
    if not isinstance(text, str) or "<t>" not in text:
        return text
    pieces = [piece.partition("</t>")[0].strip() for piece in text.split("<t>")[1:]]
    return [piece for piece in pieces if piece]


def is_summeval(row: Row) -> bool:
    """Return whether a record is in SummEval's layout."""
    return "decoded" in row and "summary" not in row


def from_summeval(row: Row) -> Row:
    """Return a record of SummEval with the suite's names beside its own."""
    references = row.get("references") or row.get("reference")
    names = {"summary": row["decoded"], "references": references}
    optional = {"system": row.get("model_id"), "document": row.get("text")}
    return row | names | {name: value for name, value in optional.items() if name not in row and value is not None}


def judgements_in(row: Row) -> list[str]:
    """Return the names of the human judgements that a layout provides; none for records of another layout."""
    if PYRAMID in row:
        return [PYRAMID]
    annotations = row.get("expert_annotations")
    if isinstance(annotations, Sequence) and annotations and isinstance(annotations[0], dict):
        return [f"expert_annotations.{name}" for name in annotations[0]]
    return []
