"""Which errors of an EDU segmenter cost F: gold trees against trees over EDUs with one kind of error repaired.

    python -m experiments.studies.parser_training.segmentation_errors mpnet gum/val.jsonl.gz

A missed boundary has the relation of the gold node that it splits. All rows have the detected sentences and paragraphs,
so that the last one, with gold EDUs, differs from gold EDUs in `precis score-parser` in these alone.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch
from pytorch_lightning import LightningModule

from datamodules.discourse.parses import DiscourseParse, strip_edus
from datamodules.discourse.records import TreebankDocument
from datamodules.documents import UserError
from datamodules.text.offsets import paragraph_offsets, sentence_offsets
from lightning_modules.metrics.parseval import parseval_counts, parseval_scores
from precis.config.parsers import load_parser
from precis.discourse.parser_scores import edu_starts, intervals, table
from precis.discourse.score_parser import gold_documents, parsed, request_of

# Repair(document, missed, spurious) returns the boundaries to add and to take away.
Repair = Callable[[TreebankDocument, set[int], set[int]], tuple[set[int], set[int]]]
SMALLEST = 15  # relations with fewer missed boundaries are one row


def relations_of(document: TreebankDocument) -> dict[int, str]:
    """Return the relation of the gold node that each gold boundary splits, by the boundary's character."""
    starts = edu_starts(document)
    return {starts[node.split + 1]: node.relation for node in document.tree.spans()}


def with_edus(document: TreebankDocument, starts: set[int]) -> TreebankDocument:
    """Replace the EDUs of a document by those that begin at the given characters."""
    bounds = [*sorted(starts), len(document.text)]
    edus = strip_edus(torch.tensor(list(pairwise(bounds))), document.text)
    return replace(document, edus=[tuple(edu) for edu in edus.tolist()], tree=None)


def repairs(
    documents: Sequence[TreebankDocument], missed: Sequence[set[int]], spurious: Sequence[set[int]]
) -> dict[str, Repair]:
    """Return the repairs by name, those of relations with the most missed boundaries first."""

    def of_relations(relations: set[str]) -> Repair:
        def repair(document: TreebankDocument, missed: set[int], spurious: set[int]) -> tuple[set[int], set[int]]:
            relation = relations_of(document)
            return {start for start in missed if relation.get(start) in relations}, set()

        return repair

    counts = Counter(relations_of(document)[start] for document, starts in zip(documents, missed) for start in starts)
    frequent = {relation for relation, count in counts.items() if count >= SMALLEST}
    named = {f"missed: {r} ({n})": of_relations({r}) for r, n in counts.most_common() if r in frequent}
    rest = sum(count for relation, count in counts.items() if relation not in frequent)
    return named | {
        f"missed: other relations ({rest})": of_relations(set(counts) - frequent),
        f"all missed ({counts.total()})": lambda document, missed, spurious: (missed, set()),
        f"all spurious ({sum(map(len, spurious))})": lambda document, missed, spurious: (set(), spurious),
        "both, gold EDUs": lambda document, missed, spurious: (missed, spurious),
    }


def counts_of(parses: Sequence[DiscourseParse], gold: Sequence[TreebankDocument]) -> torch.Tensor:
    """Return the counts of Parseval of each document, [D, K]."""
    rows = []
    for parse, document in zip(parses, gold):
        starts = parse.edus[:, 0].tolist(), edu_starts(document)
        rows.append(parseval_counts(parse.best_tree().spans(), document.tree.spans(), "original", *starts))
    return torch.stack(rows)


def f_scores(sums: torch.Tensor) -> torch.Tensor:
    """Return F of two systems and their difference from sums [..., 2 K], [..., 3]."""
    first, second = (parseval_scores(half)[..., -1] for half in sums.chunk(2, -1))
    return torch.stack([first, second, second - first], -1)


def report(parser: LightningModule, gold: Sequence[TreebankDocument], language: str) -> str:
    """Return the table of repairs."""
    texts = []
    for document in gold:
        paragraphs = paragraph_offsets(document.text)
        sentences = sentence_offsets(document.text, paragraphs, language)
        texts.append(replace(document, paragraphs=paragraphs, sentences=sentences))
    segmented = parsed(parser, [request_of(text, edus=False) for text in texts], "text alone")
    predicted = [set(parse.edus[:, 0].tolist()) for parse in segmented]
    missed = [set(edu_starts(document)) - starts for document, starts in zip(gold, predicted)]
    spurious = [starts - set(edu_starts(document)) for document, starts in zip(gold, predicted)]
    before = counts_of(segmented, gold)
    rows = []
    for name, repair in repairs(gold, missed, spurious).items():
        repaired = []
        for text, starts, *errors in zip(texts, predicted, missed, spurious):
            added, removed = repair(text, *errors)
            repaired.append(with_edus(text, (starts | added) - removed))
        parses = parsed(parser, [request_of(document) for document in repaired], name)
        _, score, gain = intervals(torch.cat([before, counts_of(parses, gold)], -1), f_scores)
        rows.append([name, f"{score.mean:.1f}", f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"])
        print(rows[-1], flush=True)
    return table(["repaired", "F", "gain"], rows)


def main() -> None:
    """Print the table of repairs."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("parser", help="mpnet, minilm or small, or a run of a parser")
    arguments.add_argument("treebank", type=Path, help="treebank with gold trees")
    arguments.add_argument("--language", default="en", help="ISO code of the language")
    options = arguments.parse_args()
    try:
        parser = load_parser(options.parser)
        gold = gold_documents(options.treebank, parser.relations, language=options.language)
        print(report(parser, gold, options.language))
    except UserError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
