"""Write the trees of a parser as a treebank, to train another parser or segmenter on them (distillation):

    python -m experiments.studies.parser_training.parsed_treebank stories.jsonl abstracts.jsonl \\
        --number 100 --max_words 400 \\
        --licence 'CC BY 4.0' --out treebank/parsed.jsonl

With `data.train` a folder, `precis fit` and `python -m
experiments.studies.parser_training.segmenter fit` read this file together
with a treebank of gold trees. `--gold gum/train.jsonl.gz --gold_copies 2` writes the documents of such a treebank to
the same file, each of them twice, so that gold trees weigh more in training.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from datamodules.atomic_write import atomic_write
from datamodules.corpora.corpus import make_document
from datamodules.corpora.files import Files
from datamodules.corpora.parallel import progress_bar
from datamodules.discourse.parses import ParseRequest
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.treebanks import read_treebank
from datamodules.documents import BadRecord, Document, Record, UserError
from datamodules.text.lines import counted
from precis.config.parsers import load_parser


def passages(document: Document, number: int, max_words: int) -> list[Document]:
    """Divide a document at sentences into passages of at most that many words, and return some of them.

    They are spread evenly, from the first one on. A passage has at least one sentence; one that is shorter than a
    fourth of `max_words` is left out, unless it is the first.
    """
    divided: list[list[list[str]]] = [[]]  # parts of each passage
    counts = [0]  # words of each passage
    for part in document.parts:
        divided[-1].append([])
        for sentence in part:
            words = len(sentence.split())
            if counts[-1] and counts[-1] + words > max_words:
                divided.append([[]])
                counts.append(0)
            divided[-1][-1].append(sentence)
            counts[-1] += words
    long = [i for i, count in enumerate(counts) if i == 0 or count >= max_words / 4]
    chosen = sorted({long[i * len(long) // number] for i in range(number)})
    return [Document(document.id + f"-{i}" * (i > 0), [part for part in divided[i] if part]) for i in chosen]


def read_passages(
    paths: Sequence[Path], field: str, number: int | None, max_words: int, per_document: int
) -> Iterator[Document]:
    """Yield passages of the first documents of each file, each document once.

    Ids are preceded by the names of folder and file.

    Raises:
        UserError: if a file or a record cannot be read.
    """
    for path in paths:
        records = Files(train=str(path), document=field, summary=None).records("train")
        for document in islice(_documents_of(path, records), number):
            yield from passages(document, per_document, max_words)


def _documents_of(path: Path, records: Iterable[Record | BadRecord]) -> Iterator[Document]:
    texts = set()
    for record in records:
        document = make_document(record)
        if not isinstance(document, Document):
            raise UserError(str(document))
        if document.text not in texts:
            texts.add(document.text)
            yield Document(f"{path.resolve().parent.name}/{path.name}/{document.id}", document.parts)


def record_of(document: TreebankDocument) -> dict[str, Any]:
    """Return a document with a tree as a record, as `read_treebank` reads it."""
    offsets = {"edus": document.edus, "sentences": document.sentences, "paragraphs": document.paragraphs}
    annotation = {"tree_nary": document.tree.nested(), "genre": document.genre, "license": document.licence}
    return {"id": document.id, "text": document.text, **offsets, **annotation}


def gold_records(path: Path, copies: int) -> Iterator[dict[str, Any]]:
    """Yield the documents of a treebank as records, and copies of them whose ids end in the number of the copy.

    Raises:
        UserError: if there are no copies, the treebank cannot be read, or a document has no tree.
    """
    if copies < 1:
        raise UserError(f"--gold_copies must be at least 1, got {copies}")
    for document in read_treebank(path):
        if document.tree is None:
            raise UserError(f"{path}: {document.id} has no tree; annotate it, or leave it out")
        record = record_of(document)
        yield record
        for copy in range(2, copies + 1):
            yield record | {"id": f"{document.id} copy {copy}"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command: parse the documents, and write the treebank once all are parsed."""
    program = "python -m experiments.studies.parser_training.parsed_treebank"
    parser = argparse.ArgumentParser(prog=program, allow_abbrev=False)
    parser.add_argument("files", type=Path, nargs="+", help="files of records with texts, see `Files`")
    parser.add_argument("--out", type=Path, required=True, help="treebank to write, JSON Lines")
    parser.add_argument("--field", default="document", help="field of the text")
    parser.add_argument("--parser", default="default", help="parser, as `precis parse --parser` takes it")
    parser.add_argument("--number", type=int, help="maximal number of documents of each file; all by default")
    parser.add_argument("--max_words", type=int, default=400, help="maximal number of words of a passage")
    parser.add_argument("--passages", type=int, default=1, help="number of passages per document; 1: its beginning")
    parser.add_argument("--gold", type=Path, help="treebank of gold trees to write to the same file")
    parser.add_argument("--gold_copies", type=int, default=1, help="how many times each of its documents is written")
    parser.add_argument("--licence", default="", help="licence of the texts, for `data.licences`")
    options = parser.parse_args(arguments)
    if options.passages < 1:
        parser.error(f"--passages must be at least 1, got {options.passages}")
    try:
        gold = list(gold_records(options.gold, options.gold_copies)) if options.gold else []
        documents = list(
            read_passages(options.files, options.field, options.number, options.max_words, options.passages)
        )
        model, records = load_parser(options.parser, "side", 1), []
        with progress_bar() as progress:
            for document in progress.track(documents, description="parsing"):
                request = ParseRequest.of(document)
                parse = model.predict_step([request])[0]
                if parse.size > 1:
                    places = (parse.edus.tolist(), request.sentences, request.paragraphs)
                    tree = parse.best_tree()
                    parsed = TreebankDocument(request.id, request.text, *places, tree, licence=options.licence)
                    records.append(record_of(parsed))
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    atomic_write(options.out, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in gold + records))
    single = len(documents) - len(records)
    written = f"{options.out}: {counted(len(records), 'tree')}"
    written += f" and {counted(len(gold), 'gold tree')}" if gold else ""
    print(f"{written}; {counted(single, 'document')} of a single EDU left out")


if __name__ == "__main__":
    main()
