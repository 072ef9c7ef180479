"""Table of the arms: means, and differences with intervals over seeds and documents."""

from experiments.discourse_extraction.training import MEASURES
from experiments.evaluation.significance import PairedDifference, paired_differences
from experiments.evaluation.statistics import Array

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

    Args:
        scores: scores of R runs on N documents by the measures, [R, N, M], by inputs and arm.
    """
    lines = ["| inputs | arm | seeds | " + " | ".join(MEASURES) + " |", "|---|---|--:|--:|--:|--:|"]
    for (inputs, arm), values in scores.items():
        rho, rouge1, rouge2 = values.mean((0, 1))
        lines.append(f"| {inputs} | {arm} | {len(values)} | {rho:.3f} | {rouge1:.2f} | {rouge2:.2f} |")
    head = "| inputs | difference | measure | mean | over seeds and documents | over documents | detectable | p |"
    lines += ["", head, "|---|---|---|--:|---|---|--:|--:|"]
    for inputs in dict.fromkeys(key[0] for key in scores):
        for first, second in PAIRS:
            if (inputs, first) in scores and (inputs, second) in scores:
                rows = paired_differences(scores[inputs, first], scores[inputs, second])
                for name, digits, row in zip(MEASURES, DIGITS, rows):
                    lines.append(f"| {inputs} | {first} - {second} | {name} | {_format(row, digits)} |")
    return "\n".join(lines) + "\n"


def _format(row: PairedDifference, digits: int) -> str:
    both = f"[{row.low:+.{digits}f}, {row.high:+.{digits}f}]"
    documents = f"[{row.documents_low:+.{digits}f}, {row.documents_high:+.{digits}f}]"
    return f"{row.mean:+.{digits}f} | {both} | {documents} | {row.detectable:.{digits}f} | {row.p:.4f}"
