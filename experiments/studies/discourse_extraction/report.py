"""Table of the arms: means, and differences with intervals and tests over seeds and documents."""

import numpy as np

from experiments.studies.discourse_extraction.training import MEASURES
from precis.statistics.significance import format_p, paired_difference, significant
from precis.statistics.statistics import Array

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


def table(scores: dict[tuple[str, str], Array]) -> str:
    """Return a Markdown page: the means of all arms, and the differences of `PAIRS` whose arms both have scores.

    `*` marks differences that are significant after Holm's correction for all of the page.

    Args:
        scores: scores of R runs on N documents by the measures, [R, N, M], by inputs and arm.
    """
    lines = ["| inputs | arm | seeds | " + " | ".join(MEASURES) + " |", "|---|---|--:|--:|--:|--:|"]
    for (inputs, arm), values in scores.items():
        rho, rouge1, rouge2 = values.mean((0, 1))
        lines.append(f"| {inputs} | {arm} | {len(values)} | {rho:.3f} | {rouge1:.2f} | {rouge2:.2f} |")
    head = "| inputs | difference | measure | mean | 95 % interval | detectable | p |"
    lines += ["", head, "|---|---|---|--:|---|--:|--:|"]
    pairs = [
        (inputs, *pair)
        for inputs in dict.fromkeys(key[0] for key in scores)
        for pair in PAIRS
        if all((inputs, arm) in scores for arm in pair)
    ]
    differences = [paired_difference(scores[inputs, first], scores[inputs, second]) for inputs, first, second in pairs]
    stars = significant(np.array([difference.p for difference in differences]))  # [pairs, M]
    for (inputs, first, second), difference, marks in zip(pairs, differences, stars):
        marks = marks & (len(scores[inputs, first]) > 1)
        for name, digits, mark, *row in zip(MEASURES, DIGITS, marks, *difference):
            lines.append(f"| {inputs} | {first} - {second} | {name} | {_format(*row, digits)}{' *' if mark else ''} |")
    return "\n".join(lines) + "\n"


def _format(mean: float, low: float, high: float, p: float, detectable: float, digits: int) -> str:
    interval = f"[{low:+.{digits}f}, {high:+.{digits}f}]"
    return f"{mean:+.{digits}f} | {interval} | {detectable:.{digits}f} | {format_p(p)}"
