"""Score the decodings of a discourse parser on gold EDUs, original Parseval:

    python -m experiments.studies.parser_training.decodings gum/val.jsonl.gz --parser mpnet

The decodings are the parser's own, minimum Bayes risk over spans alone, and, of its first scorer, minimum Bayes risk
and the most probable tree, which cannot be found in the chart of a mixture.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from datamodules.corpora.parallel import progress_bar
from datamodules.discourse.distributions import NUCLEARITIES
from datamodules.discourse.features import ParserBatch, parser_features
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.trees import Span, Tree
from datamodules.documents import UserError
from experiments.studies.markdown_table import shown, table
from lightning_modules.discourse_parser.discourse_charts import ChartReader, document_tree
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.metrics.parseval import LEVELS
from precis.config.parsers import load_parser
from precis.discourse.score_parser import gold_documents, parseval


@torch.no_grad()
def decoded_trees(parser: DiscourseParser, documents: Sequence[TreebankDocument]) -> dict[str, list[Tree]]:
    """Return the trees of each decoding over the EDUs of documents."""
    first, original = parser.scorers[:1], parser.reader
    scorer = "" if len(parser.scorers) == 1 else f"scorer 1 of {len(parser.scorers)}, "
    readers = {original.decoding: original}
    shared = original.temperature, original.autocast
    readers["mbr_spans"] = ChartReader(parser.scorers, original.classes, "mbr_spans", *shared)
    for decoding in ("mbr", "cky"):
        readers[f"{scorer}{decoding}"] = ChartReader(first, original.classes, decoding, *shared)
    trees: dict[str, list[Tree]] = {name: [] for name in readers}
    try:
        with progress_bar() as progress:
            for document in progress.track(documents, description="decodings"):
                features = parser_features(document, document.edus, parser.subwords, name=document.id)
                batch = ParserBatch.of([features]).to(parser.device)
                vectors = parser.vectors(batch)
                for name, reader in readers.items():
                    parser.reader = reader
                    (charts,) = parser.charts(batch, vectors, with_nodes=False)
                    nodes = document_tree(charts, reader.classes).tolist()
                    spans = [Span(a, k, b, NUCLEARITIES[sides], parser.relations[r]) for a, k, b, sides, r in nodes]
                    trees[name].append(Tree.from_spans(spans, len(document.edus)))
    finally:
        parser.reader = original
    return trees


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of the decodings."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("treebank", type=Path, help="file or folder of gold trees")
    options.add_argument("--parser", default="default", help="name of a parser, or a parser's run folder")
    options = options.parse_args(arguments)
    try:
        parser = load_parser(options.parser)
        if not isinstance(parser, DiscourseParser):
            raise UserError(f"--parser {options.parser}: it has no chart to decode; give a trained parser")
        documents = gold_documents(options.treebank, parser.relations, parser.inventory)
        trees = decoded_trees(parser, documents)
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    gold = [document.tree for document in documents]
    rows = []
    for name, predicted in trees.items():
        scores = parseval(predicted, gold)["original"]
        rows.append([name, *(shown(scores[level]) for level in LEVELS)])
    print(table(["decoding", *LEVELS], rows))


if __name__ == "__main__":
    main()
