"""Compare two parsers on a treebank, with gold EDUs and from plain text: scores, and paired intervals of F.

    python -m experiments.studies.parser_training.compare_parsers BEFORE AFTER gum/val.jsonl.gz
    python -m experiments.studies.parser_training.compare_parsers BEFORE AFTER gum/train.jsonl.gz --unshared

A parser is a name or a folder, as in `precis parse --parser`. The second command takes the documents whose license does
not permit sharing weights, which the shipped parsers have not seen.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from pytorch_lightning import LightningModule

from datamodules.discourse.records import TreebankDocument
from datamodules.documents import UserError
from datamodules.text.offsets import paragraph_offsets, sentence_offsets
from experiments.studies.markdown_table import table
from experiments.studies.parser_training.segmentation_errors import counts_of, f_scores
from lightning_modules.metrics.parseval import parseval_scores
from precis.config.parsers import load_parser
from precis.discourse.score_parser import edu_starts, gold_documents, intervals, parsed, request_of

SHARED = ("CC BY", "CC BY 2.5", "CC BY 4.0", "CC BY-SA 3.0", "public domain")  # licenses of the training documents


def without_annotation(document: TreebankDocument) -> TreebankDocument:
    """Return a document with the paragraphs and sentences that are detected in its text."""
    paragraphs = paragraph_offsets(document.text)
    return replace(document, paragraphs=paragraphs, sentences=sentence_offsets(document.text, paragraphs, "en"))


def report(parsers: Sequence[LightningModule], gold: Sequence[TreebankDocument]) -> str:
    """Return the table of two parsers: S, N, R, F and the F1 of EDU boundaries of each, and the difference in F."""
    rows = []
    gold_starts = [set(edu_starts(document)) for document in gold]
    requests = {
        "gold EDUs": [request_of(document) for document in gold],
        "plain text": [request_of(without_annotation(document), edus=False) for document in gold],
    }
    for design, asked in requests.items():
        parses = [parsed(parser, asked, design) for parser in parsers]
        counts = [counts_of(of_parser, gold) for of_parser in parses]               # [D, K] each
        gain = intervals(torch.cat(counts, -1), f_scores)[2]
        for name, of_parser, sums in zip(("before", "after"), parses, counts):
            starts = [set(parse.edus[:, 0].tolist()) for parse in of_parser]
            right = sum(len(a & b) for a, b in zip(starts, gold_starts))
            f1 = 200 * right / sum(len(a) + len(b) for a, b in zip(starts, gold_starts))
            scores = [f"{score:.1f}" for score in [*parseval_scores(sums.sum(0)).tolist(), f1]]
            interval = f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]" if name == "after" else ""
            rows.append([design, name, *scores, interval])
    return table(["EDUs", "parser", "S", "N", "R", "F", "EDU F1", "F, after - before"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parsers", nargs=2, metavar="PARSER", help="name or folder of a parser")
    parser.add_argument("treebank", type=Path, help="English treebank with gold trees")
    parser.add_argument("--unshared", action="store_true", help="only documents whose license is none of SHARED")
    options = parser.parse_args(arguments)
    try:
        parsers = [load_parser(name) for name in options.parsers]
        gold = gold_documents(options.treebank, parsers[0].relations)
        if options.unshared:
            gold = [document for document in gold if document.licence.partition(" (")[0] not in SHARED]
        if not gold:
            raise UserError(f"{options.treebank}: no document has another license; leave --unshared out")
        print(report(parsers, gold))
    except UserError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
