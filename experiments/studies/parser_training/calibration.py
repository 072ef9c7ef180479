"""Calibration of the labeled discourse distribution (LDD) of a parser, beside distributions from its best trees:

    python -m experiments.studies.parser_training.calibration gum/val.jsonl.gz --parser mpnet

The distributions are the LDD, the best tree, the best tree smoothed with the share of each relation, this share alone,
and the right-branching tree, each over gold EDUs. `--out` writes all numbers, with reliability diagrams, as JSON.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from datamodules.discourse.distributions import Rows, tree_ldd
from datamodules.discourse.parses import DiscourseParse, nodes_of
from datamodules.discourse.records import TreebankDocument
from datamodules.documents import UserError
from experiments.studies.markdown_table import shown, table
from experiments.studies.parser_training.ldd_calibration import BINS, FLOOR, KINDS, LDDCalibration
from precis.config.parsers import load_parser
from precis.discourse.score_parser import (
    BASELINE,
    baseline_trees,
    gold_documents,
    intervals,
    parsed,
    request_of,
    to_json_values,
)
from precis.statistics.statistics import RESAMPLES

CELLS = {"labelled": "a relation and a pair", "summed": "a pair, relations summed"}
ERRORS = {
    "ece": "ECE, all cells",
    "ece_probable": f"ECE, p >= {FLOOR:g}",
    "ece_mass": "equal-mass ECE, all cells",
    "ece_mass_probable": f"equal-mass ECE, p >= {FLOOR:g}",
}


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
        parse = self.parses[number]
        return tree_ldd(parse.tree, parse.size, len(parse.relations), parse.rows, parse.half_width)

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


def score(parser: torch.nn.Module, treebank: Path, rows: Rows, resamples: int) -> dict[str, Any]:
    """Return the calibration of a parser's LDD and of the other distributions on a treebank."""
    documents = gold_documents(treebank, parser.relations, getattr(parser, "inventory", None))
    parses = parsed(parser, [request_of(document) for document in documents], "gold EDUs")
    forecasts = Forecasts(parses, documents, rows)
    branching = baseline_trees(documents, [document.tree for document in documents], parser.relations)
    branching_nodes = [nodes_of(tree, parser.relations) for tree in branching]
    systems = {
        "LDD": forecasts.distribution,
        "1-best tree": forecasts.best,
        "1-best tree, smoothed": forecasts.smoothed,
        "prior of the relations": forecasts.constant,
        BASELINE: lambda number: forecasts.tree(number, branching_nodes[number]),
    }
    within_band, pairs = forecasts.pairs()
    return {
        "rows": rows,
        "epsilon": forecasts.epsilon,
        "prior": dict(zip(parser.relations, forecasts.prior.tolist())),
        "pairs": within_band,
        "pairs_too_far_apart": pairs - within_band,
        "systems": calibration(systems, forecasts, resamples),
    }


def page(result: dict[str, Any]) -> str:
    """Return the scores as Markdown tables, one for each kind of cell."""
    away = result["pairs_too_far_apart"]
    explanation = [
        f"Calibration of the LDD, `rows: {result['rows']}`, over {result['pairs']:,} ordered pairs of EDUs",
        f"({away:,} further apart than --band are left out)." if away else "(all).",
        f"ECE: expected calibration error, {BINS} bins of equal width, or of like number of cells.",
        "Brier: sum over the relations of a pair of squared errors, a mean over pairs. Smoothed: (1 - epsilon) 1-best"
        f" tree + epsilon prior, the prior being each relation's share among the gold trees' pairs and epsilon ="
        f" {result['epsilon']:.3f} the one with the lowest Brier score over relations, both taken from this"
        " treebank, to the advantage of the smoothed tree.",
    ]
    parts = [" ".join(explanation)]
    for kind in KINDS:
        head = [f"a cell: {CELLS[kind]}", "Brier", "above the LDD's", *ERRORS.values()]
        rows = []
        for system, scores in result["systems"].items():
            above = "" if system == "LDD" else shown(scores[f"{kind}/brier_above"], 4)
            errors = [shown(scores[f"{kind}/{key}"], 4) for key in ERRORS]
            rows.append([system, shown(scores[f"{kind}/brier"], 4), above, *errors])
        parts.append(table(head, rows))
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, and write all numbers to a file if one is named."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("treebank", type=Path, help="file or folder of gold trees")
    options.add_argument("--parser", default="default", help="name of a parser, or a parser's run folder")
    options.add_argument("--rows", choices=["side", "nucleus"], default="side", help="which EDUs carry probability")
    options.add_argument("--band", type=int, default=512, help="half-width of the band of relations, in EDUs")
    options.add_argument("--resamples", type=int, default=RESAMPLES, help="resamples of the bootstrap")
    options.add_argument("--out", type=Path, help="file for all numbers, JSON")
    options = options.parse_args(arguments)
    try:
        parser = load_parser(options.parser, options.rows, options.band)
        result = score(parser, options.treebank, options.rows, options.resamples)
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    if options.out is not None:
        options.out.write_text(json.dumps(to_json_values(result), indent=1) + "\n", encoding="utf-8")
    print(page(result))


if __name__ == "__main__":
    main()
