"""Scores of `precis score-parser`: Parseval by system, level and genre, segmentation, calibration of the LDD."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.discourse.distributions import Rows, tree_ldd
from datamodules.discourse.parses import DiscourseParse, nodes_of, strip_edus
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.trees import Span, Tree
from datamodules.text.offsets import paragraph_offsets, sentence_offsets
from lightning_modules.metrics.calibration import KINDS, LDDCalibration
from lightning_modules.metrics.parseval import LEVELS, VARIANTS, parseval_counts, parseval_scores
from precis.statistics.statistics import LEVEL, RESAMPLES, Interval, resampled_sums

PLACES = ("within sentences", "between sentences", "between paragraphs")


def intervals(
    sums: Tensor, score: Callable[[Tensor], Tensor], resamples: int = RESAMPLES, seed: int = 0
) -> list[Interval]:
    """Return M scores of sums over documents, with percentile bootstrap intervals.

    Args:
        sums: terms of each document, [D, K].
        score: function from sums [..., K] to M scores [..., M]; NaN if undefined.
        resamples: number of resamples of the bootstrap.
        seed: seed of the bootstrap.
    """
    sums = sums.double()
    drawn = score(torch.from_numpy(resampled_sums(sums.numpy(), resamples, seed))).numpy()
    results = []
    for value, column in zip(score(sums.sum(0)).tolist(), drawn.T):
        column = column[~np.isnan(column)]
        bounds = np.quantile(column, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if column.size else [np.nan] * 2
        results.append(Interval(value, *map(float, bounds)))
    return results


def _f1(sums: Tensor) -> Tensor:
    """Return F1 x 100 from hits, predictions and gold counts, [..., 3] -> [..., 1]."""
    return 200 * sums[..., :1] / (sums[..., 1:2] + sums[..., 2:])



def parseval(
    trees: Sequence[Tree],
    gold: Sequence[Tree],
    starts: Sequence[tuple[list[int], list[int]]] | None = None,
    resamples: int = RESAMPLES,
) -> dict[str, dict[str, Interval]]:
    """Return S, N, R and F of binary trees for both variants of Parseval, `original` and `rst`.

    `starts` has the first characters of the EDUs of each pair of trees, if they differ.
    """
    table = {}
    for variant in VARIANTS:
        counts = [
            parseval_counts(predicted.spans(), gold_tree.spans(), variant, *(starts[i] if starts else ()))
            for i, (predicted, gold_tree) in enumerate(zip(trees, gold, strict=True))
        ]
        table[variant] = dict(zip(LEVELS, intervals(torch.stack(counts), parseval_scores, resamples)))
    return table


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



def edu_starts(document: TreebankDocument) -> list[int]:
    """Return the first visible characters of the gold EDUs."""
    return strip_edus(torch.tensor(document.edus), document.text)[:, 0].tolist()


def segmentation(
    parses: Sequence[DiscourseParse], documents: Sequence[TreebankDocument], resamples: int = RESAMPLES
) -> Interval:
    """Return F1 of the beginnings of EDUs, including those of sentences."""
    counts = []
    for parse, document in zip(parses, documents, strict=True):
        predicted, gold = set(parse.edus[:, 0].tolist()), set(edu_starts(document))
        counts.append([len(predicted & gold), len(predicted), len(gold)])
    return intervals(torch.tensor(counts), _f1, resamples)[0]



def _brier(sums: Tensor) -> Tensor:
    """Return Brier scores of both kinds of cells, and their differences to those of the first system, [..., 4].

    `sums` are squared errors of the system (2) and of the first system (2), and the number of pairs, [..., 5].
    """
    scores = sums[..., :2] / sums[..., 4:]
    first = sums[..., 2:4] / sums[..., 4:]
    return torch.cat([scores, scores - first], -1)


class Forecasts:
    """LDDs of several systems and of gold trees, over the pairs of EDUs within the band of parses over gold EDUs."""

    def __init__(
        self, parses: Sequence[DiscourseParse], documents: Sequence[TreebankDocument], rows: Rows = "side"
    ) -> None:
        self.parses, self.rows = parses, rows
        relations = parses[0].relations
        self.gold = [nodes_of(document.tree, relations) for document in documents]
        self.prior = self._prior()
        self.epsilon = self._epsilon()

    def tree(self, number: int, nodes: Tensor) -> Tensor:
        """Return the LDD of a tree over the EDUs of a document, with the half-width of its parse, [E, 2b + 1, R]."""
        parse = self.parses[number]
        return tree_ldd(nodes, parse.size, len(parse.relations), self.rows, parse.half_width)

    def target(self, number: int) -> Tensor:
        """Return the LDD of the gold tree."""
        return self.tree(number, self.gold[number])

    def best(self, number: int) -> Tensor:
        """Return the LDD of the best tree."""
        return self.parses[number].band(self.parses[number].half_width, "one_best")

    def distribution(self, number: int) -> Tensor:
        """Return the LDD of the parser."""
        return self.parses[number].band(self.parses[number].half_width)

    def smoothed(self, number: int) -> Tensor:
        """Return (1 - epsilon) LDD of the best tree + epsilon prior."""
        return (1 - self.epsilon) * self.best(number) + self.epsilon * self.prior.float()

    def constant(self, number: int) -> Tensor:
        """Return the prior for all pairs."""
        return self.prior.float().expand_as(self.best(number)).contiguous()

    def pairs(self) -> tuple[int, int]:
        """Return the numbers of ordered pairs of EDUs within the band, and in all."""
        within_band = sum(_pairs(parse.size, parse.half_width) for parse in self.parses)
        return within_band, sum(parse.size * (parse.size - 1) for parse in self.parses)

    def _prior(self) -> Tensor:
        """Return the fraction of pairs with each relation in the gold trees, [R]."""
        total = sum(self.target(number).double().sum((0, 1)) for number in range(len(self.parses)))
        return total / max(1, self.pairs()[0])

    def _epsilon(self) -> float:
        """Return the epsilon with the lowest labelled Brier score.

        With d = prior - h, the minimum of sum (h - y + epsilon d)^2 is at -sum (h - y) d / sum d^2.
        """
        across = square = 0.0
        for number, parse in enumerate(self.parses):
            best, gold = self.best(number).double(), self.target(number).double()
            # h and y are zero outside the document: subtract the contribution of the prior there
            outside = parse.size * (2 * parse.half_width + 1) - _pairs(parse.size, parse.half_width)
            apart = self.prior - best
            across += ((best - gold) * apart).sum().item()
            square += (apart**2).sum().item() - outside * (self.prior**2).sum().item()
        return min(1.0, max(0.0, -across / square)) if square else 0.0


def _pairs(size: int, half: int) -> int:
    """Return the number of ordered pairs of `size` EDUs that are at most `half` apart."""
    half = min(half, size - 1)
    return 2 * half * size - half * (half + 1)


def calibration(
    systems: dict[str, Callable[[int], Tensor]], forecasts: Forecasts, resamples: int = RESAMPLES
) -> dict[str, dict[str, Any]]:
    """Return calibration errors, Brier scores and the bins of reliability diagrams by system.

    Each system is a function from the number of a document to its LDD. `brier_above` is the difference to the first.
    """
    metrics = {name: LDDCalibration() for name in systems}
    for number in range(len(forecasts.parses)):
        target = forecasts.target(number)
        for name, system in systems.items():
            metrics[name].update(system(number), target)
    first = metrics[next(iter(systems))].per_document()
    table: dict[str, dict[str, Any]] = {}
    for name, metric in metrics.items():
        sums = torch.cat([metric.per_document()[:, :2], first], 1)                       # [D, 5]
        results = intervals(sums, _brier, resamples)
        table[name] = {key: value.item() for key, value in metric.compute().items()}
        for kind, score, above in zip(KINDS, results[:2], results[2:]):
            table[name] |= {f"{kind}/brier": score, f"{kind}/brier_above": above}
            table[name][f"{kind}/reliability"] = metric.reliability(kind).tolist()
    return table
