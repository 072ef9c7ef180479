"""How often GraphSum attends most to the turn that answers a query, by graph:

    python -m experiments.studies.paragraph_graphs.attended 'runs/qmsum_graph/permuted_*' \\
        'runs/qmsum_graph/none_*' 'runs/qmsum_graph/scaled-similarity_*'

The runs are those of `experiments/sweeps/qmsum_graph.yaml`, with the predictions that `precis validate` wrote.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from datamodules.documents import UserError
from experiments.studies.controls.tasks import MeetingTurns
from experiments.studies.markdown_table import table
from precis.config.run_config import read_config
from precis.evaluation.likelihood import runs_of
from precis.runs.prediction_files import find_predictions, read_rows
from precis.statistics.significance import format_p, paired_difference


def corpus_of(folder: Path) -> MeetingTurns:
    """Return the corpus of a run."""
    return MeetingTurns(**read_config(folder)["data"]["init_args"]["corpus"]["init_args"])


def longest_turns(folder: Path) -> np.ndarray:
    """Return for each validation query of a run's corpus 100 if the right turn is the longest one, else 0, [N]."""
    right = []
    for record in corpus_of(folder).records("val"):
        longest = max(record.parts[1:], key=lambda part: len(part[0].split()))
        right.append(100.0 * (longest == record.references[0]))
    return np.array(right)


def right_turns(folder: Path) -> np.ndarray:
    """Return for each validation query 100 if the right turn has more attention than the other turns, else 0, [N]."""
    attention_of = {row["id"]: row["paragraph_attention"][0] for row in read_rows(find_predictions(folder, "val"))}
    right = []
    for record in corpus_of(folder).records("val"):
        closest = record.parts.index(record.references[0])
        to_turns = attention_of[record.id][1:]  # without the query
        right.append(100.0 * (1 + np.argmax(to_turns) == closest))
    return np.array(right)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="+", help="quoted patterns of runs, the baseline first")
    options = parser.parse_args(arguments)
    try:
        systems = [runs_of(system) for system in options.systems]
        scores = [np.stack([right_turns(runs[seed]) for seed in sorted(runs)]) for runs in systems]  # [R, N] each
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    rows = [["longest turn", f"{longest_turns(next(iter(systems[0].values()))).mean():.1f}", "", "", "", ""]]
    for name, values in zip(options.systems, scores):
        row = [name, f"{values.mean():.1f}", " ".join(f"{run.mean():.1f}" for run in values)]
        difference = paired_difference(values[..., None], scores[0][..., None])
        mean, low, high, p, detectable = (float(number[0]) for number in difference)
        rows.append([*row, f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]", f"{detectable:.1f}", format_p(p)])
    print(table(["runs", "right turn, %", "by seed", "to the first", "detectable", "p"], rows))


if __name__ == "__main__":
    main()
