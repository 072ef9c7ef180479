"""Scores of sentences from index files, such as those of MatchSum."""

import hashlib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from datamodules.corpora.readers import read_rows
from datamodules.documents import BadRecord, Document, UserError


class SentenceIndex:
    """Scorer of sentences (`SentenceScorer`) by files that list the best sentences of each document, best first.

    A line of a file is a JSON object with `sent_id`, the indices of the sentences from 0, and perhaps `id`. Without
    ids, line n belongs to document n of the document file that `files` pairs with it.

    Args:
        files: index files by the name (without suffix) of the file that holds the documents, such as
            `{train: bert/train_index.jsonl}` for documents of `train.jsonl`.

    Raises:
        UserError: on use, if a file is missing or broken, or a document has no line or too few sentences for it.
    """

    def __init__(self, files: dict[str, str]) -> None:
        self.files = {stem: Path(path) for stem, path in files.items()}

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the index files and the names of the document files, for cache keys."""
        digest = hashlib.sha256()
        for stem, path in sorted(self.files.items()):
            if not path.is_file():
                raise UserError(f"{path}: no such file; check data.scorer.files")
            digest.update(stem.encode() + path.read_bytes())
        return digest.hexdigest()

    @cached_property
    def _indices(self) -> dict[str, tuple[str, list[int]]]:
        """File and line of each document's entry, and the indices of its sentences, best first; by document id."""
        by_id: dict[str, tuple[str, list[int]]] = {}
        for stem, path in self.files.items():
            for number, row in read_rows(path, ["id", "sent_id"]):
                if isinstance(row, BadRecord):
                    raise UserError(str(row))
                where = f"{path}:{number}"
                indices = row.get("sent_id")
                # `type`, because True and False are instances of `int`
                if not isinstance(indices, list) or not all(type(index) is int and index >= 0 for index in indices):
                    raise UserError(f"{where}: sent_id is not a list of indices; correct it")
                by_id[str(row.get("id", f"{stem}-{number}"))] = where, indices  # default: the id that `Files` gives
        return by_id

    def sentence_scores(self, documents: Iterable[Document]) -> Iterator[list[float]]:
        """Yield the scores of each document's sentences: 1, (n - 1) / n, ..., 1 / n for the n listed ones, else 0."""
        for document in documents:
            if document.id not in self._indices:
                listed = ", ".join(map(str, self.files.values()))
                raise UserError(f"document {document.id!r} has no line in {listed}; check data.scorer.files")
            where, indices = self._indices[document.id]
            scores = [0.0] * len(document.sentences)
            for rank, index in enumerate(indices):
                if index >= len(scores):  # `document_list` is an option of the corpus: what a list of texts means
                    raise UserError(
                        f"{where}: sentence {index} of document {document.id!r}, which has {len(scores)} sentences; "
                        "give the documents as the sentences that were indexed (document_list: sentences)"
                    )
                scores[index] = 1 - rank / len(indices)
            yield scores
