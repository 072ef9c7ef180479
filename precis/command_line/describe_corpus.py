"""Implementation of `precis corpus`: counts, lengths, overlaps and first examples of a corpus."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from datasets import Dataset
from jsonargparse import Namespace
from rich.console import Console
from rich.table import Table
from rich.text import Text

from datamodules.cache_folder import default_cache
from datamodules.corpora.corpus import Corpus, as_document, build_documents, read_manifest
from datamodules.documents import Document
from datamodules.text.language import count_words, script_of
from datamodules.text.lines import printable, printable_line

_SCRIPT_SAMPLE = 100  # number of documents from which the script (such as Latin) of a split is detected
_MAX_LISTED = 3  # maximum number of overlaps or skipped records of a split that are printed
_STATISTICS = {
    "document_words": "words per document",
    "document_sentences": "sentences per document",
    "parts": "parts per document",
    "references": "references per document",
    "reference_words": "words per reference",
    "reference_sentences": "sentences per reference",
    "compression": "document words per reference word",
}


def describe_corpus(corpus: Corpus, options: Namespace) -> None:
    """Print a description of each split of a corpus (at least one) according to the options of `precis corpus`."""
    settings = {"on_bad_record": options.on_bad_record, "num_proc": options.num_proc, "language": options.language}
    tables = {split: build_documents(corpus, split, default_cache(), **settings) for split in corpus.splits()}
    overlaps = find_overlaps(tables)  # by split, its documents that an earlier split has too
    descriptions = [describe(split, table, options.examples, overlaps[split]) for split, table in tables.items()]
    if options.json:
        print(json.dumps(descriptions, ensure_ascii=False, indent=1, default=asdict))  # asdict: for `Document`s
    else:
        print_descriptions(descriptions)


def find_overlaps(tables: Mapping[str, Dataset]) -> dict[str, list[dict[str, str]]]:
    """Return by split the documents whose text an earlier split also has, ignoring case and amount of white space."""
    first_with_text: dict[str, tuple[str, str]] = {}  # (split, id) of the first document with a text
    overlaps: dict[str, list[dict[str, str]]] = {split: [] for split in tables}
    for split, table in tables.items():
        for document in map(as_document, table):
            text = " ".join(document.text.lower().split())
            other_split, other_id = first_with_text.setdefault(text, (split, document.id))
            if other_split != split:
                overlaps[split].append({"id": document.id, "other_split": other_split, "other_id": other_id})
    return overlaps


def describe(split: str, dataset: Dataset, examples: int, overlaps: list[dict[str, str]]) -> dict[str, Any]:
    """Describe the documents of a split, as `build_documents` returns them.

    Returns:
        `split`; `documents` (count), `skipped` and `digest` from the record of the build; `examples`, first documents;
        `script`, the writing system of most letters of the first documents, its share and a likely language; `overlaps`
        with earlier splits, as given; mean, median and 95th percentile of each of `_STATISTICS`, None without values.
    """
    manifest = read_manifest(dataset)
    sample = dataset.select(range(min(_SCRIPT_SAMPLE, len(dataset))))
    script = script_of(as_document(record).text for record in sample)  # None without letters
    return {
        "split": split,
        "documents": manifest["documents"],
        "skipped": manifest["skipped"],
        "digest": manifest["digest"],
        "examples": list(map(as_document, dataset.select(range(min(examples, len(dataset)))))),
        **{name: _spread(values) for name, values in _lengths(dataset).items()},
        "script": script._asdict() if script else None,
        "overlaps": overlaps,
    }


def print_descriptions(splits: list[dict[str, Any]]) -> None:
    """Print descriptions of splits (see `describe`) as a table, followed by the examples."""
    console = Console()
    table = Table(title="mean / median / 95th percentile")
    table.add_column("")
    for split in splits:
        table.add_column(split["split"], justify="right")
    table.add_row("documents", *(f"{split['documents']:,}" for split in splits))
    table.add_row("skipped records", *(f"{len(split['skipped']):,}" for split in splits))
    for name, title in _STATISTICS.items():
        table.add_row(title, *(_cell(split[name]) for split in splits))
    if any(split["overlaps"] for split in splits):
        table.add_row("in an earlier split", *(f"{len(split['overlaps']):,}" for split in splits))
    table.add_row("digest", *(split["digest"][:12] for split in splits))  # --json has the whole digest
    console.print(table)
    for split in splits:
        if split["script"] and split["script"]["name"] != "Latin":
            share, name, code = (split["script"][key] for key in ("share", "name", "language"))
            line = f"{split['split']}: {share:.0%} of the letters are {name}; train with --data.language {code}"
            console.print(Text(f"{line}, or the code of their language (xx for any)"))
        for overlap in split["overlaps"][:_MAX_LISTED]:
            line = f"{split['split']} {overlap['id']} equals {overlap['other_split']} {overlap['other_id']}"
            console.print(Text(printable_line(line)))
        for bad in split["skipped"][:_MAX_LISTED]:
            console.print(Text(printable_line(f"skipped {bad['where']}: {bad['problem']}")))
        for document in split["examples"]:
            console.print(_example(split["split"], document))


def _lengths(dataset: Dataset) -> dict[str, list[float]]:
    """Return the values of each of `_STATISTICS`, such as words, one for each document or for each reference."""
    values: dict[str, list[float]] = {name: [] for name in _STATISTICS}
    for document in map(as_document, dataset):
        words = count_words(document.sentences)
        reference_words = [count_words(reference) for reference in document.references]
        values["document_words"].append(words)
        values["document_sentences"].append(len(document.sentences))
        values["parts"].append(len(document.parts))  # paragraphs, or source documents
        values["references"].append(len(document.references))
        values["reference_words"] += reference_words
        values["reference_sentences"] += map(len, document.references)
        if reference_words:
            values["compression"].append(words / np.mean(reference_words))
    return values


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:  # such as lengths of references, in a corpus without references
        return None
    return {"mean": float(np.mean(values)), "median": float(np.median(values)), "p95": float(np.percentile(values, 95))}


def _cell(spread: dict[str, float] | None) -> str:
    return "none" if spread is None else " / ".join(f"{value:,.1f}" for value in spread.values())


def _example(split: str, document: Document, length: int = 600) -> Text:
    """Return a document for the terminal: id, whole words of its first `length` characters, and references."""
    text = document.text if len(document.text) <= length else document.text[:length].rsplit(None, 1)[0] + " ..."
    out = Text(f"\n{split}: {printable_line(document.id)}\n", style="bold")
    out.append(printable(text) + "\n", style="not bold")
    for reference in document.references:
        out.append("reference: " + printable(" ".join(reference)) + "\n", style="not bold italic")
    return out
