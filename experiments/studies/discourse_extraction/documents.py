"""Documents for extraction: vectors and targets of sentences, and labelled discourse distributions over them.

The distribution over sentences is the mean of that over their EDUs: p(s, t, l) is the mean over the EDUs a of s and b
of t of p(a, b, l). Where two sentences are whole subtrees, all these pairs have the same value.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.discourse.distributions import encode, to_dense, tree_ldd
from datamodules.discourse.parses import DiscourseParse, ParseRequest, align, nodes_of
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.relations import coarsened
from datamodules.discourse.treebanks import read_treebank
from datamodules.documents import UserError
from datamodules.text.content_words import content_stems
from datamodules.text.hashing import text_digest
from datamodules.text.offsets import sentence_offsets
from datamodules.text.subwords import Subwords, encoder_path
from lightning_modules.discourse_parser.encoders import multiplies_bfloat16
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.networks.text_encoder import TextEncoder, load_encoder


class SummarizedDocument(NamedTuple):
    """A document with its summaries.

    Attributes:
        document: document of a treebank with a binary tree and coarse relations, or of a corpus, without EDUs and tree.
        summaries: at least one summary, by a human.
        lengths: number of sentences of each summary.
    """

    document: TreebankDocument
    summaries: list[str]
    lengths: list[int]

    @property
    def sentences(self) -> list[str]:
        """Texts of the sentences."""
        return [self.document.text[start:end] for start, end in self.document.sentences]

    def number(self, number: int | None) -> int:
        """Return how many sentences to extract: `number`, or as many as the summaries have on average if it is None."""
        return max(1, round(sum(self.lengths) / len(self.lengths))) if number is None else number


class SentenceFeatures(NamedTuple):
    """Input of a ranker for one document, and its target.

    Attributes:
        vectors: mean of the token vectors of each sentence, [S, H].
        places: position and length of each sentence, see `places_of`, and other scores if there are any, [S, P].
        target: overlap of each sentence with the summaries, see `content_f1`, [S].
        structures: distributions over sentences by name, see `structures_of`.
    """

    vectors: Tensor
    places: Tensor
    target: Tensor
    structures: dict[str, DiscourseParse]


def read_documents(files: Sequence[Path]) -> list[SummarizedDocument]:
    """Return the documents of treebank files that have a tree, sentences and a summary by a human.

    Raises:
        UserError: if a document has no tree or no sentences, or no document has a summary by a human.
    """
    documents = []
    for file in files:
        summaries = {row["id"]: _human_summaries(row) for row in read_records(file)}
        for document in coarsened(read_treebank(file), where=str(file)):
            if document.tree is None or not document.sentences:
                raise UserError(f"{file}: {document.id} has no tree or no sentences, which extraction needs")
            if summaries[document.id]:
                binary = replace(document, tree=document.tree.binary())
                lengths = [len(sentence_offsets(summary)) for summary in summaries[document.id]]
                documents.append(SummarizedDocument(binary, summaries[document.id], lengths))
    if not documents:
        names = ", ".join(map(str, files))
        raise UserError(f"{names}: no document has `summaries` with a source `human` in `summary_sources`")
    return documents


def of_length(
    documents: Sequence[SummarizedDocument], number: int | None, max_sentences: int
) -> list[SummarizedDocument]:
    """Return the documents of at most `max_sentences` sentences that have more than are extracted.

    A batch takes time and memory by the square of the sentences; a document that is its own extract tells nothing.
    """
    return [row for row in documents if row.number(number) < len(row.document.sentences) <= max_sentences]


def read_records(file: Path) -> list[dict]:
    """Return the records of a file of JSON Lines, which may be compressed by gzip."""
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def _human_summaries(row: dict) -> list[str]:
    pairs = zip(row.get("summaries", []), row.get("summary_sources", []))
    return [summary for summary, source in pairs if source.startswith("human")]


# Features of sentences -------------------------------------------------------------------------------------------


def content_f1(sentence: str, summaries: Sequence[str]) -> float:
    """Return the ROUGE-1 F of a sentence without function words, averaged over the summaries."""
    words = Counter(content_stems(sentence))
    scores = []
    for summary in summaries:
        reference = Counter(content_stems(summary))
        scores.append(2 * (words & reference).total() / max(1, words.total() + reference.total()))
    return sum(scores) / len(scores)


def places_of(document: TreebankDocument) -> Tensor:
    """Return relative position, log of position and of length in words, and whether a paragraph begins, [S, 4]."""
    paragraphs = {start for start, _ in document.paragraphs}
    rows = []
    for number, (start, end) in enumerate(document.sentences):
        words = torch.tensor(float(len(document.text[start:end].split())))
        place = torch.tensor(float(number))
        begins = torch.tensor(float(start in paragraphs))
        rows.append(torch.stack([place / len(document.sentences), place.log1p() / 4, words.log1p() / 3, begins]))
    return torch.stack(rows)


@torch.no_grad()
def sentence_vectors(documents: Sequence[SummarizedDocument], encoder: str) -> Iterator[Tensor]:
    """Yield the mean token vector of each sentence, read alone by a frozen encoder, [S, H] of each document.

    Processors with instructions for bfloat16 multiply in it.
    """
    subwords = Subwords(encoder)
    model = load_encoder(encoder_path(encoder))
    network = TextEncoder(model, subwords.special, pad_id=subwords.pad_id, batch_size=64)
    for start in range(0, len(documents), 32):
        group = documents[start : start + 32]
        tokens = [torch.tensor(subwords(sentence).ids) for document in group for sentence in document.sentences]
        # zero for a sentence without tokens, such as a control character
        with torch.autocast("cpu", torch.bfloat16, enabled=multiplies_bfloat16()):
            means = [states.float().sum(0) / max(1, len(states)) for states in network(tokens)]
        yield from torch.stack(means).split([len(document.sentences) for document in group])


# Structures over sentences ---------------------------------------------------------------------------------------


def over_sentences(ldd: Tensor, edus: Tensor, sentences: Tensor) -> Tensor:
    """Return the mean of a distribution over the EDUs of each pair of sentences.

    Args:
        ldd: p(a, b, l), [E, E, R].
        edus: offsets of the EDUs, [E, 2].
        sentences: offsets of the sentences, [S, 2]; an EDU belongs to the one in which it begins.

    Returns:
        p(s, t, l), zero on the diagonal and for sentences in which no EDU begins, [S, S, R].
    """
    owner = align(edus, sentences)                                                    # [E]
    member = (owner == torch.arange(len(sentences))[:, None]).float()                 # [S, E]
    member = member / member.sum(1, keepdim=True).clamp(min=1)
    means = torch.einsum("sa,abl,tb->stl", member, ldd, member)
    means[range(len(sentences)), range(len(sentences))] = 0
    return means


def sentence_parse(document: TreebankDocument, relations: Sequence[str], ldd: Tensor) -> DiscourseParse:
    """Return the distribution over sentences in the form of a parse whose units are sentences; it has no tree.

    Args:
        document: document with the sentences.
        relations: names of the R relations.
        ldd: p(a, b, l) over EDUs, [E, E, R].
    """
    units = torch.tensor(document.sentences)
    dense = over_sentences(ldd, torch.tensor(document.edus), units)                   # [S, S, R]
    size = len(units)
    column = torch.arange(size)[:, None] + torch.arange(1 - size, size)               # [S, 2S - 1]
    band = dense[torch.arange(size)[:, None], column.clamp(0, size - 1)]
    band = band * ((column >= 0) & (column < size)).unsqueeze(-1)
    return DiscourseParse(
        id=document.id, text_digest=text_digest(document.text), edus=units, relations=tuple(relations), rows="side",
        tree=torch.zeros(0, 5, dtype=torch.int32), ldd=encode(band), gamma=dense.sum((1, 2)) / size,
    )  # fmt: skip


def request_of(document: TreebankDocument) -> ParseRequest:
    """Return the request to parse a document, with its EDUs if it has any."""
    edus = tuple(document.edus) or None
    return ParseRequest(document.id, document.text, tuple(document.sentences), tuple(document.paragraphs), edus)


def structures_of(document: TreebankDocument, parse: DiscourseParse) -> dict[str, DiscourseParse]:
    """Return distributions over sentences by name: `gold` (the tree, if there is one), `parser` (the parse), and
    `parser, best tree`.
    """
    relations = parse.relations
    best_tree = tree_ldd(parse.tree, parse.size, len(relations), parse.rows)
    dense = {"parser": parse.dense(), "parser, best tree": to_dense(best_tree)}
    if document.tree is not None:
        gold = tree_ldd(nodes_of(document.tree, relations), len(document.edus), len(relations))
        dense = {"gold": to_dense(gold)} | dense
    segmented = replace(document, edus=parse.edus.tolist(), tree=None)
    return {name: sentence_parse(segmented, relations, ldd) for name, ldd in dense.items()}


def out_of_fold(folders: Sequence[Path], held_out: Sequence[Sequence[str]], ids: Sequence[str]) -> dict[str, Path]:
    """Return for each document a parser that was not trained on it.

    Args:
        folders: parsers of the folds, see `experiments.studies.parser_training.class_temperature`.
        held_out: ids of the training documents that each of them has not seen.
        ids: documents to parse; those in no fold were not used for training at all, and take turns.
    """
    fold_of = {id: folder for folder, fold in zip(folders, held_out) for id in fold}
    return {id: fold_of.get(id, folders[number % len(folders)]) for number, id in enumerate(ids)}


def load_parser(folder: Path) -> DiscourseParser:
    """Load a trained parser, with a distribution over whole documents."""
    return DiscourseParser.load(folder, band=512)
