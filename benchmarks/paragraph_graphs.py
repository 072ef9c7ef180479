r"""Paragraph graphs side by side: time, weights, and whether the paragraphs that others look at are those that matter.

    python benchmarks/paragraph_graphs.py cnndm/val.jsonl.gz --sentences 3
    python benchmarks/paragraph_graphs.py scisummnet_mds/val.jsonl.gz --document documents \
        --skip_parts 1 --parts sources

Centrality of a paragraph is the mean weight with which the others look at it; its relevance is ROUGE-1 precision
against the best reference. The last column is Spearman's rank correlation of the two within a document, mean and
standard error over documents with four paragraphs or more. "position" ranks the first paragraph first. Topics are
learned from the documents of the file behind those that are measured, up to 1,000. Times are processor time of this
process, one thread.
"""

import argparse
import math
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from scipy.stats import rankdata

from datamodules.corpora import Files
from datamodules.corpora.corpus import make_document
from datamodules.documents import Document
from datamodules.graphs import RST, Discourse, ParagraphGraph, ParagraphRule, Paragraphs, Similarity, Topic
from experiments.discourse.parsers import load_parser
from lightning_modules.metrics.rouge import rouge_scores


class Position(ParagraphGraph):
    """The earlier a paragraph, the more it is looked at."""

    name, symmetric = "position", False

    def weights(self, paragraphs: Paragraphs) -> np.ndarray:
        size = len(paragraphs)
        return np.tile(1 - np.arange(size) / size, (size, 1))


def between(weights: np.ndarray) -> np.ndarray:
    """Weights but for the diagonal, [L, L - 1]."""
    size = len(weights)
    return weights[~np.eye(size, dtype=bool)].reshape(size, size - 1)


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's, 0 where one is constant."""
    ranks = np.stack([rankdata(one), rankdata(other)])
    return 0.0 if (ranks.std(1) == 0).any() else float(np.corrcoef(ranks)[0, 1])


def relevance(paragraphs: Paragraphs) -> np.ndarray:
    """ROUGE-1 precision of each paragraph against the best reference, [L]."""
    references = paragraphs.document.references
    return np.array([rouge_scores(text, references, ("rouge1",))["rouge1"].precision for text in paragraphs.texts])


def centrality(weights: np.ndarray) -> np.ndarray:
    """How much the others look at each paragraph, [L]."""
    return (weights.sum(0) - 1) / (len(weights) - 1)


def row(graph: ParagraphGraph, found: list[Paragraphs], relevant: list[np.ndarray]) -> str:
    start = time.process_time()
    made = [graph(one) for one in found]
    spent = 1000 * (time.process_time() - start) / len(found)
    values = np.concatenate([between(weights).ravel() for weights in made if len(weights) > 1])
    rhos = [rank_correlation(centrality(w), r) for w, r in zip(made, relevant) if len(w) >= 4]
    error = np.std(rhos) / math.sqrt(len(rhos))
    shares = f"{values.mean():.2f} | {values.std():.2f} | {100 * (values == 0).mean():.0f} %"
    return f"| {graph.name} | {spent:.1f} | {shares} | {np.mean(rhos):+.2f} ± {error:.2f} |"


def read(arguments: argparse.Namespace) -> tuple[list[Document], list[Document]]:
    """Documents that are measured, and those that topics are learned from."""
    paragraphs = "none" if arguments.sentences else "blank_line"
    corpus = Files(
        test=str(arguments.file), document=arguments.document, paragraphs=paragraphs, skip_parts=arguments.skip_parts
    )
    records = islice(corpus.records("test"), arguments.documents + 1000)
    made = [document for document in map(make_document, records) if isinstance(document, Document)]
    return made[: arguments.documents], made[arguments.documents :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--document", default="document")
    parser.add_argument("--skip_parts", type=int, default=0)
    parser.add_argument("--sentences", type=int, default=None, help="sentences a paragraph")
    parser.add_argument("--parts", default="paragraphs", choices=("paragraphs", "sources"))
    parser.add_argument("--documents", type=int, default=40)
    parser.add_argument("--parser", default="default", help="for rst; `none` leaves it out")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rule = ParagraphRule(30, arguments.sentences, arguments.parts)
    documents, others = read(arguments)
    found = [rule(document) for document in documents]
    relevant = [relevance(one) for one in found]
    topic = Topic()
    topic.fit(map(rule, others))
    sizes = [len(one) for one in found]
    print(f"{len(found)} documents, {np.mean(sizes):.1f} paragraphs each\n")
    print("| graph | ms a document | mean weight | its deviation | zero | centrality and relevance |")
    print("|---|---|---|---|---|---|")
    for graph in (Position(), Similarity(), topic, Discourse()):
        print(row(graph, found, relevant), flush=True)
    if arguments.parser == "none":
        return
    with TemporaryDirectory() as folder, torch.no_grad():
        rst = RST(load_parser(arguments.parser), Path(folder))
        start = time.process_time()
        rst.prepare(documents)
        spent = (time.process_time() - start) / len(documents)
        print(row(rst, found, relevant))
        rst.name, rst.without = "rst, all relations", ()
        print(row(rst, found, relevant))
    print(f"\nParsing, once for all that needs it, takes {spent:.1f} s a document more.")


if __name__ == "__main__":
    main()
