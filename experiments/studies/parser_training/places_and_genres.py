"""Parseval of a discourse parser by the place of nodes and by genre, beside right-branching trees, on gold EDUs:

    python -m experiments.studies.parser_training.places_and_genres gum/val.jsonl.gz --parser mpnet
"""

import argparse
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.trees import Span, Tree
from datamodules.documents import UserError
from datamodules.text.offsets import paragraph_offsets, sentence_offsets
from experiments.studies.markdown_table import shown, table
from lightning_modules.metrics.parseval import LEVELS, parseval_scores
from precis.config.parsers import load_parser
from precis.discourse.score_parser import (
    BASELINE,
    baseline_trees,
    gold_documents,
    intervals,
    name_of,
    parsed,
    request_of,
)
from precis.statistics.statistics import RESAMPLES

PLACES = ("within sentences", "between sentences", "between paragraphs")


def by_place(
    trees: Sequence[Tree], documents: Sequence[TreebankDocument], resamples: int = RESAMPLES
) -> dict[str, dict[str, Any]]:
    """Return original Parseval of nodes within sentences, between sentences of a paragraph, and between paragraphs.

    `nodes` is the number of gold nodes; levels without gold nodes are left out.
    """
    groups: dict[str, list[Tensor]] = {place: [] for place in PLACES}
    for tree, document in zip(trees, documents, strict=True):
        units = edu_units(document)
        predicted, gold = (_placed(any_tree.spans(), units) for any_tree in (tree, document.tree))
        for place in PLACES:
            groups[place].append(matches(predicted[place], gold[place]))
    table = {}
    for place, counts in groups.items():
        nodes = int(torch.stack(counts)[:, 5].sum())  # the last of the counts of Parseval is that of gold nodes
        if nodes:
            scores = intervals(torch.stack(counts), parseval_scores, resamples)
            table[place] = {"nodes": nodes, **dict(zip(LEVELS, scores))}
    return table


def edu_units(document: TreebankDocument) -> tuple[list[int], list[int]]:
    """Return the sentence and paragraph in which each EDU begins, detected in the text if the treebank has none."""
    paragraphs = document.paragraphs or paragraph_offsets(document.text)
    sentences = document.sentences or sentence_offsets(document.text, paragraphs)
    bounds = ([start for start, _ in spans] for spans in (sentences, paragraphs))
    return tuple([bisect_right(begins, start) for start, _ in document.edus] for begins in bounds)


def _placed(spans: Iterable[Span], units: tuple[list[int], list[int]]) -> dict[str, list[Span]]:
    groups: dict[str, list[Span]] = {place: [] for place in PLACES}
    for span in spans:
        levels = (len(set(unit[span.start : span.end + 1])) > 1 for unit in units)  # also if sentences interleave
        sentence, paragraph = levels
        groups[PLACES[2 if paragraph else int(sentence)]].append(span)
    return groups


def matches(predicted: Sequence[Span], gold: Sequence[Span]) -> Tensor:
    """Return counts of original Parseval (`parseval_counts`) for some nodes of two trees over the same EDUs, [6]."""
    gold_by_span = {(node.start, node.end): node for node in gold}
    pairs = [(node, gold_by_span.get((node.start, node.end))) for node in predicted]
    correct = [(node.nuclearity == match.nuclearity, node.relation == match.relation) for node, match in pairs if match]
    hits = [len(correct), sum(n for n, _ in correct), sum(r for _, r in correct), sum(n and r for n, r in correct)]
    return torch.tensor([*hits, len(predicted), len(gold)])


def by_genre(trees: Sequence[Tree], documents: Sequence[TreebankDocument]) -> dict[str, dict[str, Any]]:
    """Return original Parseval and the number of documents of each genre, without intervals."""
    counts: dict[str, list[Tensor]] = {}
    for tree, document in zip(trees, documents, strict=True):
        counts.setdefault(document.genre or "unknown", []).append(matches(tree.spans(), document.tree.spans()))
    scores = {}
    for genre, rows in sorted(counts.items()):
        values = parseval_scores(torch.stack(rows).sum(0)).tolist()
        scores[genre] = {"documents": len(rows), **dict(zip(LEVELS, values))}
    return scores


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table by place and one by genre."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("treebank", type=Path, help="file or folder of gold trees")
    options.add_argument("--parser", default="default", help="name of a parser, or a parser's run folder")
    options.add_argument("--resamples", type=int, default=RESAMPLES, help="resamples of the bootstrap")
    options = options.parse_args(arguments)
    try:
        parser = load_parser(options.parser)
        documents = gold_documents(options.treebank, parser.relations, getattr(parser, "inventory", None))
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    parses = parsed(parser, [request_of(document) for document in documents], "gold EDUs")
    trees = {
        name_of(options.parser): [parse.best_tree() for parse in parses],
        BASELINE: baseline_trees(documents, [document.tree for document in documents], parser.relations),
    }
    places = {system: by_place(predicted, documents, options.resamples) for system, predicted in trees.items()}
    rows = []
    for place in next(iter(places.values())):
        for system, scores in places.items():
            cells = [shown(scores[place][level]) for level in LEVELS]
            rows.append([place, system, f"{scores[place]['nodes']:,}", *cells])
    print(table(["original Parseval, gold EDUs", "tree", "nodes", *LEVELS], rows))
    genres = {system: by_genre(predicted, documents) for system, predicted in trees.items()}
    rows = []
    for genre in next(iter(genres.values())):
        for system, scores in genres.items():
            rows.append([genre, system, str(scores[genre]["documents"]), *(shown(scores[genre][n]) for n in LEVELS)])
    print("\n" + table(["original Parseval, gold EDUs", "tree", "documents", *LEVELS], rows))


if __name__ == "__main__":
    main()
