"""Train communicating agents over the sections of SumPubMed's articles, with and without messages, and compare them:

    python -m experiments.studies.section_agents.run sumpubmed/train.jsonl.gz sumpubmed/val.jsonl.gz \\
        --out runs/section_agents

A seed takes about half an hour of a CPU core. Each has a file in OUT, so that the same command continues after the last
one that is finished. OUT/table.md has paired differences with intervals over seeds and documents.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from experiments.studies.markdown_table import table
from experiments.studies.section_agents.arms import Sizes
from experiments.studies.section_agents.sections import Corpus, read_articles
from experiments.studies.section_agents.training import Scores, train_seed
from precis.statistics.significance import format_p, paired_difference

COMPARISONS = (  # arm, compared with, measure
    ("joined", "silent", "nll"),
    ("joined", "other", "nll"),
    ("other", "silent", "nll"),
    ("joined, other messages", "joined", "nll"),
    ("joined, cut messages", "joined", "nll"),
    ("messages", "silent", "nll"),
    ("messages, other messages", "messages", "nll"),
    ("one", "silent", "nll"),
    ("silent, exchanged sections", "silent", "known"),
)


def report(runs: Sequence[dict[str, Scores]]) -> str:
    """Return tables of the means of each arm, of differences, and of the attention to agents.

    Args:
        runs: scores of `evaluate_all` of each seed.
    """

    def values(name: str, measure: str) -> np.ndarray:
        return np.array([run[name][measure] for run in runs])[..., None]  # [R, N, 1]

    means = [[name, f"{values(name, 'nll').mean():.4f}"] for name in runs[0]]
    differences = []
    for name, other, measure in COMPARISONS:
        difference = paired_difference(values(name, measure), values(other, measure))
        mean, low, high, p, detectable = (float(value[0]) for value in difference)
        interval = f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]"
        differences.append([name, other, measure, interval, f"{detectable:.4f}", format_p(p)])
    attention = [
        [name, str(third + 1), *(f"{share:.2f}" for share in row)]
        for name in ("silent", "messages", "joined")
        for third, row in enumerate(np.mean([run[name]["attention"] for run in runs], 0))
    ]
    parts = [
        table(["arm", "nats per token"], means),
        table(["arm", "compared with", "measure", "difference", "detectable", "p"], differences),
        table(["arm", "third of the target", "background", "results", "conclusions"], attention),
    ]
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path, help="training articles of SumPubMed")
    parser.add_argument("val", type=Path, help="validation articles")
    parser.add_argument("--out", type=Path, required=True, help="folder of scores")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--articles", type=int, help="number of articles of each file; all by default")
    for name, value in vars(Sizes()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help="default %(default)s")
    options = parser.parse_args(arguments)
    sizes = Sizes(**{name: getattr(options, name) for name in vars(Sizes())})
    options.out.mkdir(parents=True, exist_ok=True)
    paths = [options.out / f"seed-{seed}.json" for seed in options.seeds]
    try:
        if not all(path.is_file() for path in paths):
            corpus = Corpus(
                *(read_articles(file, options.articles) for file in (options.train, options.val)), sizes.vocab_size
            )
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            for seed, path in zip(options.seeds, paths):
                if not path.is_file():
                    atomic_write(path, json.dumps(train_seed(corpus, sizes, seed, device)) + "\n")
    except (UserError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    runs = [json.loads(path.read_text(encoding="utf-8"))["end"] for path in paths]
    text = report(runs)
    atomic_write(options.out / "table.md", text + "\n")
    print(text)


if __name__ == "__main__":
    main()
