"""Scores of `precis score-parser`, Parseval and segmentation, and their report in Markdown, whose text is scores.md."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.discourse.parses import DiscourseParse, strip_edus
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.trees import Tree
from lightning_modules.metrics.parseval import LEVELS, parseval_counts, parseval_scores
from precis.files.templates import template
from precis.statistics.statistics import LEVEL, RESAMPLES, Interval, resampled_sums

VARIANTS = {"original": "original Parseval", "rst": "RST-Parseval"}


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


def page(result: dict[str, Any]) -> str:
    """Return all scores as Markdown tables."""
    values = {"levels": LEVELS, "variants": VARIANTS, "shown": shown}
    values["cells"] = lambda scores: " | ".join(shown(scores[name]) for name in LEVELS)
    return template("precis.discourse", "scores.md").render(result, **values).rstrip()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(value: Interval | float, digits: int = 1) -> str:
    """Format a number, with its interval if it has one; `none` for NaN."""
    if not isinstance(value, Interval):
        return "none" if value != value else f"{value:.{digits}f}"
    if value.mean != value.mean:
        return "none"
    return f"{value.mean:.{digits}f} ({value.low:.{digits}f} to {value.high:.{digits}f})"
