"""The documents that a baseline summarizes: arguments of the command line, and reading."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt

import datamodules.corpora
from datamodules.corpora.corpus import Corpus, build_documents
from datamodules.documents import Document, UserError
from precis.config.load_classes import load_classes
from precis.files.field_names import first_row, guess_fields
from precis.files.texts import is_records

if TYPE_CHECKING:
    from datasets import Dataset


def add_document_arguments(parser: ArgumentParser, needs_out: bool = True) -> None:
    """Add the arguments that name documents, and where their summaries are written."""
    load_classes(datamodules.corpora)
    parser.add_subclass_arguments(Corpus, "corpus", required=False)
    parser.add_argument("--run", type=str | None, default=None, help="run folder whose corpus is summarized")
    parser.add_argument("--split", type=str, default="test", help="split of the corpus")
    parser.add_argument("--language", type=str, default="en", help="ISO code of the language; of --run, the run's")
    parser.add_argument("--out", type=str, required=needs_out, help="output file, such as lead.jsonl")
    parser.add_argument("--documents", type=PositiveInt | None, default=None, help="maximum number of documents")
    parser.add_argument(
        "--on_bad_record", type=Literal["raise", "skip"], default="raise", help="what to do about invalid records"
    )
    parser.add_argument("--num_proc", type=int, default=1, help="number of processes for sentence splitting")


def with_file(arguments: list[str]) -> list[str]:
    """Return arguments in which a file of records after `--corpus` stands for `Files` with its fields guessed."""
    for number, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        path = Path(value or "".join(arguments[number + 1 : number + 2]))
        if name == "--corpus" and path.is_file() and is_records(path):
            has_options = any(other.startswith("--corpus.") for other in arguments)
            fields = {} if has_options else guess_fields(first_row(path), str(path)).arguments()
            options = [f"--corpus.{key}={field}" for key, field in {"test": path, **fields}.items()]
            return [*arguments[:number], "--corpus=Files", *options, *arguments[number + (1 if value else 2) :]]
    return arguments


def read_documents(parser: ArgumentParser, options: Namespace) -> "Dataset":
    """Return the documents that parsed arguments name, a memory-mapped table (see `build_documents`).

    Raises:
        UserError: if they name no corpus or run, or both, or the documents cannot be read.
    """
    if (options.corpus is None) == (options.run is None):
        raise UserError("precis baseline needs documents: give --corpus CORPUS ..., or --run RUN, and not both")
    from datamodules.summarization import default_cache  # these import torch and Lightning
    from precis.runs.run_folder import load_run

    if options.run is not None:
        data = load_run(Path(options.run)).data
        options.language = data.language.code
        rows = data.documents(options.split)
    else:
        corpus = parser.instantiate_classes(options).corpus
        settings = {"on_bad_record": options.on_bad_record, "num_proc": options.num_proc, "language": options.language}
        rows = build_documents(corpus, options.split, default_cache(), **settings)
    if options.documents is not None:
        rows = rows.select(range(min(options.documents, len(rows))))
    return rows


def documents_digest(documents: Iterable[Document]) -> str:
    """Return a digest of ids and texts of documents, in their order."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(json.dumps([document.id, document.parts]).encode())
    return digest.hexdigest()[:16]
