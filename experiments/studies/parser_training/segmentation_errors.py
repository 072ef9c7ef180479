"""Which errors of an EDU segmenter cost F: gold trees against trees over EDUs with one kind of error repaired.

    python -m experiments.studies.parser_training.segmentation_errors mpnet gum/val.jsonl.gz

A missed boundary has the relation of the gold node that it splits. All rows have the detected sentences and paragraphs,
so that the last one, with gold EDUs, differs from gold EDUs in `precis score-parser` in these alone.
"""

import argparse
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch
from pytorch_lightning import LightningModule

from datamodules.discourse.parses import DiscourseParse, strip_edus
from datamodules.discourse.records import TreebankDocument
from datamodules.documents import UserError
from datamodules.text.offsets import paragraph_offsets, sentence_offsets
from experiments.studies.markdown_table import table
from lightning_modules.metrics.parseval import parseval_counts, parseval_scores
from precis.config.parsers import load_parser
from precis.discourse.score_parser import edu_starts, gold_documents, intervals, parsed, request_of

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


def repairs(gold: Sequence[TreebankDocument], predicted: Sequence[set[int]]) -> dict[tuple[str, int], list[set[int]]]:
    """Return the boundaries of each document after each repair, by its name and its number of errors."""
    boundaries = [set(edu_starts(document)) for document in gold]
    relations = [relations_of(document) for document in gold]
    missed = [[(start, relation[start]) for start in b - p] for b, p, relation in zip(boundaries, predicted, relations)]

    def added(names: Collection[str]) -> list[set[int]]:
        return [p | {start for start, relation in rows if relation in names} for p, rows in zip(predicted, missed)]

    counts = Counter(relation for rows in missed for _, relation in rows)
    frequent = {relation: count for relation, count in counts.most_common() if count >= SMALLEST}
    rest = counts.keys() - frequent.keys()
    spurious = sum(len(p - b) for p, b in zip(predicted, boundaries))
    return {(f"missed: {relation}", count): added({relation}) for relation, count in frequent.items()} | {
        ("missed: other relations", sum(counts[relation] for relation in rest)): added(rest),
        ("all missed", counts.total()): added(counts),
        ("all spurious", spurious): [p & b for p, b in zip(predicted, boundaries)],
        ("both: gold EDUs", counts.total() + spurious): boundaries,
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
    before = counts_of(segmented, gold)
    rows = []
    for (name, errors), boundaries in repairs(gold, [set(p.edus[:, 0].tolist()) for p in segmented]).items():
        requests = [request_of(with_edus(text, starts)) for text, starts in zip(texts, boundaries)]
        counts = counts_of(parsed(parser, requests, name), gold)
        _, score, gain = intervals(torch.cat([before, counts], -1), f_scores)
        interval = f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"
        rows.append([name, str(errors), f"{score.mean:.1f}", interval])
    return table(["repaired", "errors", "F", "gain"], rows)


def main() -> None:
    """Print the table of repairs."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("parser", help="default, mpnet or small, or a run of a parser")
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
