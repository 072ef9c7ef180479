"""What a baseline reads and writes: the documents that a command line names; predictions, and how they were made."""

import hashlib
import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt

from callbacks.results_path import results_path
from datamodules.atomic_write import atomic_file, atomic_write
from datamodules.corpora.corpus import as_document, build_documents
from datamodules.documents import Document, UserError
from datamodules.text.lines import counted, json_line
from lightning_modules.metrics.rouge import suite_version
from precis.config.load_classes import add_corpus_arguments
from precis.files.field_names import guess_file
from precis.files.texts import is_records
from precis.summarizing.prompts import sentences_of

if TYPE_CHECKING:
    from datasets import Dataset

MAX_NAMED = 3  # maximum number of documents that a message names


def add_document_arguments(parser: ArgumentParser, needs_out: bool = True) -> None:
    """Add the arguments that name documents, and where their summaries are written."""
    add = parser.add_argument
    add_corpus_arguments(parser)
    add("--run", type=str | None, default=None, help="run folder whose corpus is summarized, in the run's language")
    add("--split", type=str, default="test", help="split of the corpus")
    add("--out", type=str, required=needs_out, help="output file, such as lead.jsonl")
    add("--documents", type=PositiveInt | None, default=None, help="maximum number of documents")


def expand_corpus_file(arguments: list[str]) -> list[str]:
    """Replace `--corpus RECORDS` by `--corpus=Files --corpus.test=RECORDS`; guess fields if no --corpus.* is given."""
    for number, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        following = arguments[number + 1 :]
        if name != "--corpus" or not (value or following):  # a last `--corpus` is left to the parser
            continue
        path = Path(value or following.pop(0))  # `--corpus=FILE` or `--corpus FILE`
        if path.is_file() and is_records(path):
            has_options = any(other.startswith("--corpus.") for other in arguments)
            fields = {} if has_options else guess_file(path)[0].arguments()
            values = {"test": path, **fields}  # `test` is the default of --split
            options = [f"--corpus.{name}={value}" for name, value in values.items()]
            return [*arguments[:number], "--corpus=Files", *options, *following]
    return arguments


def read_documents(parser: ArgumentParser, options: Namespace) -> "Dataset":
    """Return the documents that the options name as a dataset; with --run, set `options.language` to the run's."""
    if (options.corpus is None) == (options.run is None):  # both or neither
        raise UserError("precis baseline needs documents: give --corpus CORPUS ..., or --run RUN, and not both")
    from datamodules.summarization import default_cache  # here, as these import torch and Lightning
    from precis.runs.run_folder import load_run

    if options.run is not None:
        data = load_run(Path(options.run)).data
        options.language = data.language.code
        dataset = data.documents(options.split)
    else:
        corpus = parser.instantiate_classes(options).corpus
        settings = {"on_bad_record": options.on_bad_record, "num_proc": options.num_proc, "language": options.language}
        dataset = build_documents(corpus, options.split, default_cache(), **settings)
    return dataset if options.documents is None else dataset.select(range(min(options.documents, len(dataset))))


def documents_digest(documents: Iterable[Document]) -> str:
    """Return a digest of the ids and texts of documents, which depends on their order."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(json.dumps([document.id, document.parts]).encode())
    return digest.hexdigest()[:16]  # 16 hexadecimal digits, 64 bits, are enough to tell corpora apart


def write_predictions(
    path: Path,
    documents: "Dataset",
    texts: Mapping[str, str],
    record: Mapping[str, Any],
    notes: Iterable[str | None],
    language: str = "en",
) -> None:
    """Write summaries to `NAME.jsonl`, and `record` to `NAME.results.json`; print their number, `notes` and signature.

    Args:
        path: `NAME.jsonl`.
        documents: documents in the order in which their summaries are written.
        texts: summaries by the id of their document; one that is missing is written as empty.
        record: `split`, `settings` (with `system`), `counts` of cut or empty texts, `signature` (how they were made).
        notes: lines for the user about the summaries, such as which are empty; None entries are left out.
        language: code of the language, by which summaries are divided into sentences.
    """
    with atomic_file(path) as file:
        for document in map(as_document, documents):
            summary = sentences_of(texts.get(document.id, ""), language)
            file.write(json_line({"id": document.id, "summary": summary, "references": document.references}))
    command = shlex.join(["precis", *sys.argv[1:]])
    results = {"command": command, "documents": len(documents), **record, "predictions": path.name}
    atomic_write(results_path(path), json.dumps(results, ensure_ascii=False, indent=1) + "\n")
    print(written_line(record["settings"]["system"], len(documents), path, language))
    print(*filter(None, notes), record["signature"], sep="\n")


def written_line(system: str, count: int, path: Path, language: str) -> str:
    """Return the last line of a baseline's output: how many summaries are in which file, and how to score them."""
    option = "" if language == "en" else f" --language {language}"
    command = f"precis evaluate {shlex.quote(str(path))}{option}"
    return f"{system}: {counted(count, 'summary')} in {path}; score them with {command}"


def signature(system: str, settings: Mapping[str, Any]) -> str:
    """Return one line that says how summaries were made: `hf|checkpoint:...|num_beams:4|...|precis:0.1.0`."""
    parts = [f"{name}:{value}" for name, value in settings.items() if value is not None]
    return "|".join([system, *parts, f"precis:{suite_version()}"])


def name_documents(ids: Iterable[str], what: str) -> str | None:
    """Return a line such as `empty summaries (2): a, b`, with the first ids of documents; None without ids."""
    ids = list(ids)
    more = ", ..." if len(ids) > MAX_NAMED else ""
    return f"{what} ({len(ids):,}): {', '.join(ids[:MAX_NAMED])}{more}" if ids else None
