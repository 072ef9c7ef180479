"""Table of the arms: means, and differences with intervals over seeds and documents."""

from typing import NamedTuple

import numpy as np

from experiments.discourse_extraction.training import MEASURES
from experiments.evaluation.significance import hierarchical_bootstrap, resampled_system_means
from experiments.evaluation.statistics import Array, bootstrap_interval

# pairs of arms; the first ones have no information about the document, so that they say what noise there is
PAIRS = (
    ("gold, other", "none"),
    ("gold, permuted", "gold, other"),
    ("parser, permuted", "parser, other"),
    ("gold", "gold, permuted"),
    ("gold", "gold, other"),
    ("gold", "none"),
    ("parser", "parser, permuted"),
    ("parser", "parser, other"),
    ("parser", "parser, best tree"),
    ("parser", "none"),
    ("parser, best tree", "none"),
    ("parser, best tree", "parser, other"),
    ("parser, by relation", "parser, by relation, other"),
    ("parser, by relation", "parser, best tree, by relation"),
    ("parser, by relation", "parser"),
    ("parser, by relation", "none"),
    ("parser", "parser, no labels"),
    ("parser, no labels", "parser, other"),
    *((f"parser, {name}", f"parser, {name}, other") for name in ("one_plus", "product", "wac")),
    ("gold", "parser"),
    ("gold, sums as inputs", "none"),
    ("parser, sums as inputs", "none"),
)
DIGITS = (3, 2, 2)  # decimals of each measure
POWER = 2.8  # standard errors: a difference that a two-sided test at 5 % detects in four of five repetitions


class Difference(NamedTuple):
    """Difference of two arms by one measure.

    Attributes:
        mean: mean difference over seeds and documents.
        low, high: 95 % interval over seeds and documents.
        documents_low, documents_high: 95 % interval over documents, with the seeds as they are.
        visible: smallest true difference that is detected in four of five repetitions.
        p: p-value of the hypothesis that there is no difference, over seeds and documents.
    """

    mean: float
    low: float
    high: float
    documents_low: float
    documents_high: float
    visible: float
    p: float


def difference(scores: Array, baseline: Array) -> list[Difference]:
    """Return the difference of two arms by each measure.

    Runs with the same seed have the same initial weights and order, so that seeds are paired like documents.

    Args:
        scores, baseline: scores of R runs on the same N documents by M measures, [R, N, M].
    """
    paired = scores - baseline
    draws = resampled_system_means(paired)                                            # [resamples, M]
    low, high = np.quantile(draws, (0.025, 0.975), axis=0)
    means, low_documents, high_documents = bootstrap_interval(paired.mean(0))
    p_values = hierarchical_bootstrap(paired, np.zeros_like(paired[:1]))
    columns = (means, low, high, low_documents, high_documents, POWER * draws.std(0), p_values)
    return [Difference(*map(float, row)) for row in zip(*columns)]


def table(scores: dict[tuple[str, str], Array]) -> str:
    """Return a Markdown page: the means of all arms, and the differences of `PAIRS` whose arms both have scores.

    Args:
        scores: scores of R runs on N documents by the measures, [R, N, M], by inputs and arm.
    """
    lines = ["| inputs | arm | seeds | " + " | ".join(MEASURES) + " |", "|---|---|--:|--:|--:|--:|"]
    for (inputs, arm), values in scores.items():
        rho, rouge1, rouge2 = values.mean((0, 1))
        lines.append(f"| {inputs} | {arm} | {len(values)} | {rho:.3f} | {rouge1:.2f} | {rouge2:.2f} |")
    head = "| inputs | difference | measure | mean | over seeds and documents | over documents | visible | p |"
    lines += ["", head, "|---|---|---|--:|---|---|--:|--:|"]
    for inputs in dict.fromkeys(key[0] for key in scores):
        for first, second in PAIRS:
            if (inputs, first) in scores and (inputs, second) in scores:
                rows = difference(scores[inputs, first], scores[inputs, second])
                for name, digits, row in zip(MEASURES, DIGITS, rows):
                    lines.append(f"| {inputs} | {first} - {second} | {name} | {_format(row, digits)} |")
    return "\n".join(lines) + "\n"


def _format(row: Difference, digits: int) -> str:
    both = f"[{row.low:+.{digits}f}, {row.high:+.{digits}f}]"
    documents = f"[{row.documents_low:+.{digits}f}, {row.documents_high:+.{digits}f}]"
    return f"{row.mean:+.{digits}f} | {both} | {documents} | {row.visible:.{digits}f} | {row.p:.4f}"
