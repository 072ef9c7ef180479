"""Implementation of `precis score-parser`: Parseval and segmentation on a treebank, beside right-branching trees."""

import json
import math
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jsonargparse import Namespace
from pytorch_lightning import LightningModule
from torch import Tensor

from datamodules.corpora.parallel import progress_bar
from datamodules.discourse.parses import DiscourseParse, ParseRequest, strip_edus
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.relations import INVENTORIES, Inventory, coarsened
from datamodules.discourse.treebanks import read_treebank
from datamodules.discourse.trees import Tree
from datamodules.documents import UserError
from datamodules.text.lines import counted
from datamodules.text.offsets import paragraph_offsets, sentence_offsets
from lightning_modules.discourse_parser.right_branching import Label, right_branching
from lightning_modules.metrics.parseval import LEVELS, parseval_counts, parseval_scores
from precis.config.parsers import PARSERS, load_parser
from precis.files.templates import template
from precis.statistics.statistics import LEVEL, RESAMPLES, Interval, percentile_bounds, resampled_sums

BASELINE = "right-branching"
VARIANTS = {"original": "original Parseval", "rst": "RST-Parseval"}


def print_scores(options: Namespace, arguments: Sequence[str]) -> None:
    """Print the scores of a parser; with `--out`, write scores.md, and scores.json, which includes the command line."""
    result = {"command": shlex.join(["precis", "score-parser", *arguments]), **score(options)}
    text = template("precis.discourse", "scores.md").render(result, levels=LEVELS, variants=VARIANTS).rstrip()
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "scores.json").write_text(json.dumps(to_json_values(result), indent=1) + "\n")
        (options.out / "scores.md").write_text(text + "\n", encoding="utf-8")
    print(text, flush=True)


def to_json_values(value: Any) -> Any:
    """Convert a nested value for JSON: intervals to objects, NaN to null."""
    if isinstance(value, Interval):
        return to_json_values({"value": value.mean, "low": value.low, "high": value.high})
    if isinstance(value, dict):
        return {name: to_json_values(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_values(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def gold_documents(
    path: Path, relations: Sequence[str], inventory: Inventory | None = None, language: str = "en"
) -> list[TreebankDocument]:
    """Read a treebank as binary trees with coarse relations of `inventory`, by default the one that has `relations`."""
    documents = read_treebank(path, language)
    if without_tree := [document.id for document in documents if document.tree is None]:
        lacking = f"{counted(len(without_tree), 'document')} without a tree, the first {without_tree[0]!r}"
        raise UserError(f"{path}: {lacking}; a parser is scored on gold trees, leave others out")
    if inventory is None:
        matching = (candidate for candidate in INVENTORIES.values() if set(candidate.coarse) == set(relations))
        inventory = next(matching, None)  # the one whose coarse relations are `relations`
    if inventory is None:
        raise UserError(f"the parser's relations ({', '.join(relations)}) are none of {', '.join(INVENTORIES)}")
    gold = []
    for document in coarsened(documents, inventory, where=str(path)):
        assert document.tree, "documents without a tree were refused above"
        # without annotated ones, as `sentence_starts` finds them for parsers: the baseline branches by sentences
        sentences = document.sentences or sentence_offsets(document.text, document.paragraphs or None, language)
        gold.append(replace(document, tree=document.tree.binary(), sentences=sentences))
    return gold


def request_of(document: TreebankDocument, edus: bool = True) -> ParseRequest:
    """Return a document as the parser's input; without its EDUs (discourse units), the parser predicts them."""
    return ParseRequest(
        id=document.id, text=document.text, sentences=tuple(document.sentences), paragraphs=tuple(document.paragraphs),
        edus=tuple(document.edus) if edus else None,
    )  # fmt: skip


@torch.no_grad()
def parsed(parser: LightningModule, requests: Sequence[ParseRequest], description: str) -> list[DiscourseParse]:
    """Return the parse of each request, one by one, with a progress bar on terminals."""
    with progress_bar() as progress:
        tracked = progress.track(requests, description=description)
        return [parser.predict_step([request], 0)[0] for request in tracked]  # batches of one request


def score(options: Namespace) -> dict[str, Any]:
    """Return the content of scores.json: scores of a parser and right-branching trees, with gold and predicted EDUs."""
    parser = load_parser(options.parser)
    parser.to("cuda" if torch.cuda.is_available() else "cpu")
    inventory = getattr(parser, "inventory", None)  # a right-branching parser has no inventory
    documents = gold_documents(options.treebank, parser.relations, inventory, options.language)
    gold = [document.tree for document in documents]
    parses = parsed(parser, [request_of(document) for document in documents], "gold EDUs")
    name, resamples = name_of(options.parser), options.resamples
    trees = {name: [parse.best_tree() for parse in parses], BASELINE: baseline_trees(documents, gold, parser.relations)}
    return {
        "treebank": str(options.treebank),
        "parser": name,
        "baseline": BASELINE,
        "documents": len(documents),
        "edus": sum(len(document.edus) for document in documents),
        "relations": len(parser.relations),
        "level": LEVEL,  # of the intervals
        "resamples": resamples,
        "decoding": getattr(getattr(parser, "reader", None), "decoding", None),  # such as `mbr`, minimum Bayes risk
        "gold_edus": {system: parseval(predicted, gold, resamples=resamples) for system, predicted in trees.items()},
        "end_to_end": _end_to_end(parser, documents, name, resamples, options.language),
    }


def name_of(parser: str) -> str:
    """Return a parser's name for tables: its own or its folder's; with ` (parser)` if the baseline has that name."""
    name = Path(parser).resolve().name if Path(parser).exists() and parser not in PARSERS else parser
    return f"{name} (parser)" if name == BASELINE else name


def baseline_trees(documents: Sequence[TreebankDocument], gold: Sequence[Tree], relations: Sequence[str]) -> list[Tree]:
    """Return right-branching trees, labeled with the most frequent (nuclearity, relation) of GUM, or else of `gold`."""
    labels: dict[str, Label] = {}  # empty: the default labels, elaboration and joint as in the GUM treebank
    if not {"elaboration", "joint"} <= set(relations):  # the parser lacks one of them
        counts = Counter((span.nuclearity, span.relation) for tree in gold for span in tree.spans())
        most_frequent = counts.most_common(1)[0][0]
        labels = {"within": most_frequent, "between": most_frequent}  # of nodes within and between sentences
    return [right_branching(document, **labels) for document in documents]


def _end_to_end(
    parser: LightningModule, documents: Sequence[TreebankDocument], name: str, resamples: int, language: str
) -> dict[str, Any]:
    """Return `segmentation_f1` of a parser on raw text, and `parseval` of it and the baseline over predicted EDUs."""
    texts = []  # the documents, with sentences and paragraphs as detected in their text
    for document in documents:
        paragraphs = paragraph_offsets(document.text)
        sentences = sentence_offsets(document.text, paragraphs, language)
        texts.append(replace(document, paragraphs=paragraphs, sentences=sentences))
    parses = parsed(parser, [request_of(text, edus=False) for text in texts], "text alone")
    # offsets at which predicted and gold EDUs (discourse units) begin, by document
    starts = [(parse.edus[:, 0].tolist(), edu_starts(document)) for parse, document in zip(parses, documents)]
    segmented = []  # the documents with predicted EDUs, for the baseline
    for text, parse in zip(texts, parses):
        segmented.append(replace(text, edus=[tuple(edu) for edu in parse.edus.tolist()], tree=None))
    gold = [document.tree for document in documents]
    systems = {name: [parse.best_tree() for parse in parses]}
    systems[BASELINE] = baseline_trees(segmented, gold, parser.relations)
    return {
        "segmentation_f1": segmentation(parses, documents, resamples),
        "parseval": {system: parseval(trees, gold, starts, resamples) for system, trees in systems.items()},
    }


def intervals(counts: Tensor, score: Callable[[Tensor], Tensor], resamples: int = RESAMPLES) -> list[Interval]:
    """Return M scores, computed from counts summed over documents, with 95 % percentile bootstrap intervals.

    Args:
        counts: K counts for each of D documents, such as of correct and predicted spans, [D, K].
        score: function from summed counts [..., K] to M scores [..., M]; NaN if undefined.
        resamples: number of bootstrap samples, drawn with seed 0.
    """
    counts = counts.double()
    samples = torch.from_numpy(resampled_sums(counts.numpy(), resamples))  # sums of each sample, [resamples, K]
    bounds = percentile_bounds(score(samples).numpy())  # [2, M]
    return [Interval(*values) for values in zip(score(counts.sum(0)).tolist(), *bounds.tolist())]


def parseval(
    trees: Sequence[Tree],
    gold: Sequence[Tree],
    starts: Sequence[tuple[list[int], list[int]]] | None = None,
    resamples: int = RESAMPLES,
) -> dict[str, dict[str, Interval]]:
    """Return Parseval by variant (original, RST), level; `starts`: offsets of predicted, gold EDUs, None if equal."""
    table = {}
    for variant in VARIANTS:
        counts = []  # for each document: matching nodes on the four levels, predicted nodes, gold nodes, [6]
        for index, (predicted, gold_tree) in enumerate(zip(trees, gold, strict=True)):
            offsets = starts[index] if starts else ()  # two further arguments, or none
            counts.append(parseval_counts(predicted.spans(), gold_tree.spans(), variant, *offsets))
        table[variant] = dict(zip(LEVELS, intervals(torch.stack(counts), parseval_scores, resamples)))
    return table


def edu_starts(document: TreebankDocument) -> list[int]:
    """Return the offsets of the first characters of the gold EDUs, white space excluded."""
    return strip_edus(torch.tensor(document.edus), document.text)[:, 0].tolist()


def segmentation(
    parses: Sequence[DiscourseParse], documents: Sequence[TreebankDocument], resamples: int = RESAMPLES
) -> Interval:
    """Return F1 x 100 of the beginnings of EDUs (discourse units), including those at beginnings of sentences."""
    counts = []  # [D, 3]: correct, predicted and gold beginnings of each document
    for parse, document in zip(parses, documents, strict=True):
        predicted, gold = set(parse.edus[:, 0].tolist()), set(edu_starts(document))
        counts.append([len(predicted & gold), len(predicted), len(gold)])

    def f1(sums: Tensor) -> Tensor:  # F1 = 2 correct / (predicted + gold), in percent, [..., 3] -> [..., 1]
        return 200 * sums[..., :1] / sums[..., 1:].sum(-1, keepdim=True)

    return intervals(torch.tensor(counts), f1, resamples)[0]
