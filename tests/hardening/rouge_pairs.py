"""Compare ROUGE of random pairs of real texts with `rouge-score`: all variants, with and without stems.

    python tests/hardening/rouge_pairs.py --files aeslc/val.jsonl.gz scitldr/val.jsonl.gz cnndm/val.jsonl.gz

The files are JSON Lines with `document` and `summary` or `summaries`. A prediction is three consecutive sentences of a
document, or a summary; its reference is a random summary of the same file. Each file has the same number of pairs, half
of them with stems. Precision, recall and F1 may differ by rounding alone (1e-9).
"""

import gzip
import json
import random
import sys
from argparse import Namespace
from itertools import islice
from pathlib import Path

import harness  # first, since it finds the others
from rouge_score.rouge_scorer import RougeScorer

from datamodules.text.language import language_of
from lightning_modules.metrics.rouge import rouge_scores

VARIANTS = ("rouge1", "rouge2", "rouge3", "rougeL", "rougeLsum")
DOCUMENTS = 2000  # of a file


def texts_of(path: Path) -> tuple[list[list[str]], list[list[str]]]:
    """Return parts of documents and summaries, both as lists of sentences."""
    parts, summaries = [], []

    def split(text: str) -> list[str]:
        return [sentence for line in text.split("\n") for sentence in language_of("en").split_sentences(line)]

    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, islice(lines, DOCUMENTS)):
            sentences = split(row["document"])
            parts += [sentences[start : start + 3] for start in range(0, len(sentences), 3)]
            summaries += map(split, row.get("summaries") or [row["summary"]])
    return parts, [summary for summary in summaries if any(map(str.strip, summary))]


def differences(path: Path, pairs: int, rng: random.Random) -> int:
    """Return the number of pairs of a file with another score in some variant."""
    parts, summaries = texts_of(path)
    scorers, different = [RougeScorer(VARIANTS, use_stemmer=stem) for stem in (False, True)], 0
    for number in range(pairs):
        stem = number % 2
        prediction, reference = rng.choice(rng.choice((parts, summaries))), rng.choice(summaries)
        theirs = scorers[stem].score("\n".join(reference), "\n".join(prediction))
        ours = rouge_scores(prediction, [reference], VARIANTS, bool(stem))
        if any(abs(a - b) > 1e-9 for name in VARIANTS for a, b in zip(ours[name], theirs[name], strict=True)):
            different += 1
            print(f"{path}: {prediction!r} against {reference!r}: {ours} and not {theirs}", file=sys.stderr)
    return different


def compare_scores(options: Namespace, _: Path) -> int:
    rng, share = random.Random(options.seed), options.pairs // len(options.files)
    counts = {path: differences(Path(path), share, rng) for path in options.files}
    for path, count in counts.items():
        print(f"{path}: {share:,} pairs, {count:,} with another score in one of {', '.join(VARIANTS)}")
    return sum(counts.values())


if __name__ == "__main__":
    harness.run(__doc__, compare_scores, files=([], "corpora"), pairs=(72_000, "number of pairs in all"))
