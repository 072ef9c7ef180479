"""Extraction from the documents of a summarization corpus, with parses from a cache of `precis parse`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from datamodules.cache_folder import default_cache
from datamodules.corpora.parallel import progress_bar
from datamodules.corpora.readers import read_rows
from datamodules.discourse.cache import ParseCache
from datamodules.discourse.parses import ParseRequest
from datamodules.discourse.records import TreebankDocument
from datamodules.documents import BadRecord, UserError
from datamodules.parsing import CorpusDocuments, Parser, key_of
from experiments.studies.discourse_extraction.documents import (
    SentenceFeatures,
    SummarizedDocument,
    content_f1,
    places_of,
    request_of,
    sentence_vectors,
    structures_of,
)
from precis.command_line.commands import guess_corpus

HEADINGS, HEADING_WORDS = 8, 4


def read_corpus(files: Sequence[Path]) -> list[SummarizedDocument]:
    """Return the documents of data files that have a reference, split into sentences as for `precis parse`.

    Raises:
        UserError: if a file cannot be read, no document has a reference, or two documents have the same id.
    """
    documents: dict[str, SummarizedDocument] = {}
    for file in files:
        for document in CorpusDocuments(guess_corpus(file), default_cache()):
            if document.id in documents:
                raise UserError(f"{file}: {document.id!r} is the id of two documents; give each an id of its own")
            if document.references:
                request = ParseRequest.of(document)
                treeless = TreebankDocument(
                    document.id, request.text, [], list(request.sentences), list(request.paragraphs)
                )
                references = [" ".join(reference) for reference in document.references]
                lengths = [len(reference) for reference in document.references]
                documents[document.id] = SummarizedDocument(treeless, references, lengths)
    if not documents:
        raise UserError(f"{', '.join(map(str, files))}: no document has a reference summary")
    return list(documents.values())


def features_of_corpus(
    documents: Sequence[SummarizedDocument], parser: Parser, parses: Path, encoder: str
) -> list[SentenceFeatures]:
    """Encode the sentences of documents, with the heading of their section beside their place, and read their parses.

    Args:
        documents: documents of `read_corpus`.
        parser: parser that wrote the cache, with the same band.
        parses: cache of `precis parse --out`.
        encoder: encoder of sentences.

    Raises:
        UserError: if a parse is missing, or has pairs of EDUs outside the band.
    """
    cache, features, headings = ParseCache(parses), [], common_headings(documents)
    with progress_bar() as progress:
        pairs = zip(documents, sentence_vectors(documents, encoder))
        for row, vectors in progress.track(pairs, total=len(documents), description="encoding"):
            parse = cache.get(key_of(request_of(row.document), parser), row.document.id)
            if parse.size > parser.band + 1:
                raise UserError(
                    f"{parses}: {row.document.id!r} has {parse.size} EDUs, pairs of which are outside the band of "
                    f"{parser.band}; run `precis parse` and this command with --band {parse.size - 1}"
                )
            target = torch.tensor([content_f1(sentence, row.summaries) for sentence in row.sentences])
            places = torch.cat([places_of(row.document), section_of(row.document, headings)], 1)
            features.append(SentenceFeatures(vectors, places, target, structures_of(row.document, parse)))
    return features


def headings_of(document: TreebankDocument) -> dict[int, str]:
    """Return the paragraphs of at most `HEADING_WORDS` words, in lower case, by the character at which they begin."""
    texts = {start: document.text[start:end].lower() for start, end in document.paragraphs}
    return {start: text for start, text in texts.items() if len(text.split()) <= HEADING_WORDS}


def common_headings(documents: Sequence[SummarizedDocument]) -> list[str]:
    """Return the most frequent headings, at most `HEADINGS`, that a tenth of the documents have."""
    counts = Counter(heading for row in documents for heading in set(headings_of(row.document).values()))
    return [heading for heading, count in counts.most_common(HEADINGS) if count >= len(documents) / 10]


def section_of(document: TreebankDocument, headings: Sequence[str]) -> Tensor:
    """Return under which heading each sentence stands, 0 or 1, [S, number of headings]."""
    heading_at = headings_of(document)
    columns = torch.zeros(len(document.sentences), len(headings))
    for number, (start, _) in enumerate(document.sentences):
        before = [begin for begin in heading_at if begin <= start]
        if before and heading_at[max(before)] in headings:
            columns[number, headings.index(heading_at[max(before)])] = 1
    return columns


def with_scores(
    documents: Sequence[SummarizedDocument], features: Sequence[SentenceFeatures], files: Sequence[Path]
) -> list[SentenceFeatures]:
    """Return features with the scores of an extractive model next to the places of sentences.

    Args:
        documents: documents of the features.
        features: their features.
        files: predictions of extractive runs, each for documents that the run has not been trained on.

    Raises:
        UserError: if a document has no prediction, or one with another number of sentences.
    """
    scores_of: dict[str, Tensor] = {}
    for file in files:
        for number, row in read_rows(file, ["id", "sentence_scores"]):
            if isinstance(row, BadRecord) or "id" not in row or not row.get("sentence_scores"):
                raise UserError(
                    f"{file}:{number}: no prediction of an extractive model, which has `id` and `sentence_scores`"
                )
            if str(row["id"]) in scores_of:
                raise UserError(
                    f"{file}:{number}: another prediction of {row['id']!r}; give one, of a run that has not seen it"
                )
            scores_of[str(row["id"])] = torch.tensor(row["sentence_scores"], dtype=torch.float)
    extended = []
    for document, row in zip(documents, features):
        name = document.document.id
        scores = scores_of.get(name)
        if scores is None or len(scores) != len(row.target):
            problem = "no prediction" if scores is None else f"{len(scores)} scores for {len(row.target)} sentences"
            names = ", ".join(map(str, files))
            raise UserError(f"{names}: {problem} of {name!r}; predict it from the same sentences")
        extended.append(row._replace(places=torch.cat([row.places, scores[:, None]], 1)))
    return extended
