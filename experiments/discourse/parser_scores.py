"""What `precis score-parser` counts: Parseval by systems, levels and genres, segmentation, calibration of the LDD."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.discourse.distributions import Rows, tree_ldd
from datamodules.discourse.parses import DiscourseParse, nodes_of, trimmed
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.trees import Span, Tree
from datamodules.text.offsets import paragraph_offsets, sentence_offsets
from experiments.evaluation.statistics import LEVEL, RESAMPLES, Interval, resampled_sums
from lightning_modules.metrics.calibration import KINDS, LDDCalibration
from lightning_modules.metrics.parseval import LEVELS, VARIANTS, parseval_counts, parseval_scores

PLACES = ("within sentences", "between sentences", "between paragraphs")

# Intervals -------------------------------------------------------------------------------------------------------


def intervals(
    sums: Tensor, score: Callable[[Tensor], Tensor], resamples: int = RESAMPLES, seed: int = 0
) -> list[Interval]:
    """A score of sums over documents and its percentile bootstrap interval.

    Args:
        sums: what is summed, of each document, [D, K].
        score: from sums [..., K] to M scores [..., M]; NaN where there is none.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Returns:
        Of each of the M scores.
    """
    sums = sums.double()
    drawn = score(torch.from_numpy(resampled_sums(sums.numpy(), resamples, seed))).numpy()
    found = []
    for value, column in zip(score(sums.sum(0)).tolist(), drawn.T):
        column = column[~np.isnan(column)]
        bounds = np.quantile(column, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if column.size else [np.nan] * 2
        found.append(Interval(value, *map(float, bounds)))
    return found


def f1(sums: Tensor) -> Tensor:
    """F1 x 100 of hits, found and true ones: [..., 3] -> [..., 1]."""
    return 200 * sums[..., :1] / (sums[..., 1:2] + sums[..., 2:])


# Trees -----------------------------------------------------------------------------------------------------------


def parseval(
    trees: Sequence[Tree],
    gold: Sequence[Tree],
    starts: Sequence[tuple[list[int], list[int]]] | None = None,
    resamples: int = RESAMPLES,
) -> dict[str, dict[str, Interval]]:
    """S, N, R and F by Parseval's name, `original` and `rst`.

    Args:
        trees: found ones, binary.
        gold: true ones, binary.
        starts: where the EDUs of each pair of trees begin, where they are not the same.
        resamples: of the bootstrap over documents.
    """
    table = {}
    for variant in VARIANTS:
        counts = [
            parseval_counts(one.spans(), other.spans(), variant, *(starts[i] if starts else ()))
            for i, (one, other) in enumerate(zip(trees, gold, strict=True))
        ]
        table[variant] = dict(zip(LEVELS, intervals(torch.stack(counts), parseval_scores, resamples)))
    return table


def by_place(
    trees: Sequence[Tree], documents: Sequence[TreebankDocument], resamples: int = RESAMPLES
) -> dict[str, dict[str, Any]]:
    """Original Parseval of the nodes within a sentence, of those over several sentences of a paragraph, and of those
    over several paragraphs; `nodes` is the number of true ones. Places without a true node are left out."""
    groups: dict[str, list[Tensor]] = {place: [] for place in PLACES}
    for tree, document in zip(trees, documents, strict=True):
        units = edu_units(document)
        found, gold = (_placed(one.spans(), units) for one in (tree, document.tree))
        for place in PLACES:
            groups[place].append(matches(found[place], gold[place]))
    table = {}
    for place, counts in groups.items():
        nodes = int(torch.stack(counts)[:, 5].sum())
        if nodes:
            scores = intervals(torch.stack(counts), parseval_scores, resamples)
            table[place] = {"nodes": nodes, **dict(zip(LEVELS, scores))}
    return table


def edu_units(document: TreebankDocument) -> tuple[list[int], list[int]]:
    """The sentence and the paragraph that each EDU begins in; those of the text where the treebank has none."""
    paragraphs = document.paragraphs or paragraph_offsets(document.text)
    sentences = document.sentences or sentence_offsets(document.text, paragraphs)
    bounds = ([start for start, _ in spans] for spans in (sentences, paragraphs))
    return tuple([bisect_right(begins, start) for start, _ in document.edus] for begins in bounds)


def _placed(spans: Iterable[Span], units: tuple[list[int], list[int]]) -> dict[str, list[Span]]:
    groups: dict[str, list[Span]] = {place: [] for place in PLACES}
    for span in spans:
        levels = (len(set(unit[span.start : span.end + 1])) > 1 for unit in units)  # also where sentences interleave
        sentence, paragraph = levels
        groups[PLACES[2 if paragraph else int(sentence)]].append(span)
    return groups


def matches(found: Sequence[Span], gold: Sequence[Span]) -> Tensor:
    """Original Parseval's counts, as `parseval_counts`, of some nodes of two trees over the same EDUs, [6]."""
    theirs = {(node.start, node.end): node for node in gold}
    pairs = [(node, theirs[node.start, node.end]) for node in found if (node.start, node.end) in theirs]
    right = [(one.nuclearity == other.nuclearity, one.relation == other.relation) for one, other in pairs]
    hits = [len(right), sum(n for n, _ in right), sum(r for _, r in right), sum(n and r for n, r in right)]
    return torch.tensor([*hits, len(found), len(gold)])


def by_genre(trees: Sequence[Tree], documents: Sequence[TreebankDocument]) -> dict[str, dict[str, Any]]:
    """Original Parseval and number of documents of each genre; without intervals, as a genre has few."""
    counts: dict[str, list[Tensor]] = {}
    for tree, document in zip(trees, documents, strict=True):
        counts.setdefault(document.genre or "unknown", []).append(matches(tree.spans(), document.tree.spans()))
    return {
        genre: {"documents": len(rows), **dict(zip(LEVELS, parseval_scores(torch.stack(rows).sum(0)).tolist()))}
        for genre, rows in sorted(counts.items())
    }


# Segmentation ----------------------------------------------------------------------------------------------------


def edu_starts(document: TreebankDocument) -> list[int]:
    """Where the true EDUs begin, without white space before them."""
    return trimmed(torch.tensor(document.edus), document.text)[:, 0].tolist()


def segmentation(
    parses: Sequence[DiscourseParse], documents: Sequence[TreebankDocument], resamples: int = RESAMPLES
) -> Interval:
    """F1 of where EDUs begin, beginnings of sentences among them."""
    counts = []
    for found, document in zip(parses, documents, strict=True):
        ours, theirs = set(found.edus[:, 0].tolist()), set(edu_starts(document))
        counts.append([len(ours & theirs), len(ours), len(theirs)])
    return intervals(torch.tensor(counts), f1, resamples)[0]


# Calibration -----------------------------------------------------------------------------------------------------


def brier(sums: Tensor) -> Tensor:
    """Brier scores of both kinds of cells, and how far they are above those of a first system: from squares of the
    one, of the other, and pairs, [..., 5] -> [..., 4]."""
    own, first = sums[..., :2] / sums[..., 4:], sums[..., 2:4] / sums[..., 4:]
    return torch.cat([own, own - first], -1)


class Forecasts:
    """The LDDs that are compared with the gold trees' LDD: over the pairs of EDUs that the parses hold.

    Args:
        parses: over the true EDUs.
        documents: with binary trees of the parses' relations.
        rows: reading of the LDD; the parses'.
    """

    def __init__(
        self, parses: Sequence[DiscourseParse], documents: Sequence[TreebankDocument], rows: Rows = "side"
    ) -> None:
        self.parses, self.rows = parses, rows
        relations = parses[0].relations
        self.gold = [nodes_of(document.tree, relations) for document in documents]
        self.prior = self._prior()
        self.epsilon = self._epsilon()

    def tree(self, number: int, nodes: Tensor) -> Tensor:
        """The LDD of one tree of a document, as wide as the stored one, [E, 2b + 1, R]."""
        found = self.parses[number]
        return tree_ldd(nodes, found.size, len(found.relations), self.rows, found.half_width)

    def target(self, number: int) -> Tensor:
        """The gold tree's."""
        return self.tree(number, self.gold[number])

    def best(self, number: int) -> Tensor:
        """The best tree's."""
        return self.parses[number].band(self.parses[number].half_width, "one_best")

    def distribution(self, number: int) -> Tensor:
        """The parser's."""
        return self.parses[number].band(self.parses[number].half_width)

    def smoothed(self, number: int) -> Tensor:
        """(1 - epsilon) best tree + epsilon prior."""
        return (1 - self.epsilon) * self.best(number) + self.epsilon * self.prior.float()

    def constant(self, number: int) -> Tensor:
        """The prior, whatever the pair."""
        return self.prior.float().expand_as(self.best(number)).contiguous()

    def pairs(self) -> tuple[int, int]:
        """Ordered pairs of EDUs of one document: those held, all."""
        held = sum(_pairs(found.size, found.half_width) for found in self.parses)
        return held, sum(found.size * (found.size - 1) for found in self.parses)

    def _prior(self) -> Tensor:
        """Share of the pairs that are related by each relation in the gold trees, [R]."""
        total = sum(self.target(number).double().sum((0, 1)) for number in range(len(self.parses)))
        return total / max(1, self.pairs()[0])

    def _epsilon(self) -> float:
        """The one with the least labelled Brier score: with d = prior - h, sum (h - y + epsilon d)^2 is least at
        -sum (h - y) d / sum d^2."""
        across = square = 0.0
        for number, found in enumerate(self.parses):
            best, gold = self.best(number).double(), self.target(number).double()
            # outside of the document h and y are zero: what the prior has there is taken away again
            outside = found.size * (2 * found.half_width + 1) - _pairs(found.size, found.half_width)
            apart = self.prior - best
            across += ((best - gold) * apart).sum().item()
            square += (apart**2).sum().item() - outside * (self.prior**2).sum().item()
        return min(1.0, max(0.0, -across / square)) if square else 0.0


def _pairs(size: int, half: int) -> int:
    """Ordered pairs of two of `size` EDUs that are at most `half` apart."""
    half = min(half, size - 1)
    return 2 * half * size - half * (half + 1)


def calibration(
    systems: dict[str, Callable[[int], Tensor]], forecasts: Forecasts, bins: int, resamples: int = RESAMPLES
) -> tuple[dict[str, dict[str, Any]], dict[str, LDDCalibration]]:
    """Calibration errors and Brier scores by system; `brier_above`, how far the Brier score is above the first's.

    Args:
        systems: the LDD of a document by its number, of each system.
        forecasts: with the gold trees' LDDs.
        bins: of calibration errors.
        resamples: of the bootstrap over documents.

    Returns:
        Scores by system, and the metrics.
    """
    metrics = {name: LDDCalibration(bins) for name in systems}
    for number in range(len(forecasts.parses)):
        target = forecasts.target(number)
        for name, system in systems.items():
            metrics[name].update(system(number), target)
    first = metrics[next(iter(systems))].per_document()
    table: dict[str, dict[str, Any]] = {}
    for name, metric in metrics.items():
        sums = torch.cat([metric.per_document()[:, :2], first], 1)                       # [D, 5]
        found = intervals(sums, brier, resamples)
        table[name] = {key: value.item() for key, value in metric.compute().items()}
        for kind, score, above in zip(KINDS, found[:2], found[2:]):
            table[name] |= {f"{kind}/brier": score, f"{kind}/brier_above": above}
    return table, metrics
