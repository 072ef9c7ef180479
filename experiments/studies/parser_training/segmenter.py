"""Training and scoring of EDU segmenters.

    python -m experiments.studies.parser_training.segmenter fit ...
    python -m experiments.studies.parser_training.segmenter score ...
"""

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.treebanks import read_treebank
from datamodules.documents import UserError
from datamodules.text.offsets import sentence_offsets
from datamodules.treebank import SegmentationData
from lightning_modules.discourse_parser.segmenter import EduSegmenter
from lightning_modules.metrics.boundaries import BoundaryF1

Boundaries = tuple[set[int], set[int], set[int]]  # predicted and gold beginnings of EDUs, beginnings of sentences
NAMES = ("f1", "precision", "recall", "inner_f1", "inner_precision", "inner_recall")


class SegmenterCLI(LightningCLI):
    """LightningCLI that keeps the trained weights in a folder."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the output folder, and link the tokenizer of the data to the encoder of the model."""
        parser.add_argument("--out", type=Path, required=True, help="folder for the weights")
        parser.add_argument("--bits", type=Literal[16, 8], default=16, help="precision of stored matrices")
        parser.link_arguments("model.encoder.checkpoint", "data.checkpoint")

    def after_fit(self) -> None:
        """Save the weights."""
        options = self.config[self.subcommand]
        self.model.save(options.out, options.bits)


def begins(
    model: EduSegmenter, documents: list[TreebankDocument], sentences: str, language: str = "en"
) -> list[Boundaries]:
    """Return the positions of the first characters of EDUs and sentences, with gold or detected sentences."""
    requests = documents
    if sentences == "own":
        requests = [replace(d, sentences=sentence_offsets(d.text, d.paragraphs or None, language)) for d in documents]
    segmented = model.segment(requests)

    def starts(spans: Sequence[tuple[int, int]]) -> set[int]:
        return {start for start, _ in spans}

    return [(starts(edus), starts(d.edus), starts(d.sentences)) for edus, d in zip(segmented, documents)]


def scores(boundaries: list[Boundaries]) -> dict[str, float]:
    """Return precision, recall and F1 over documents, of all boundaries and of inner (not sentence-initial) ones."""
    metric = BoundaryF1()
    for document in boundaries:
        metric.update(*document)
    return {name: value.item() for name, value in metric.compute().items()}


def interval(boundaries: list[Boundaries], name: str, draws: int = 1000, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a score over documents."""
    rng = random.Random(seed)
    values = sorted(scores(rng.choices(boundaries, k=len(boundaries)))[name] for _ in range(draws))
    return values[int(0.025 * draws)], values[int(0.975 * draws) - 1]


def score(arguments: list[str]) -> None:
    """Print the scores of a segmenter on a treebank, overall and by genre."""
    parser = argparse.ArgumentParser(prog="python -m experiments.studies.parser_training.segmenter score")
    parser.add_argument("weights", help="minilm or small, or a folder that `fit` wrote")
    parser.add_argument("treebank", type=Path, help="treebank with gold EDUs and sentences")
    parser.add_argument("--language", default="en", help="ISO code of the language")
    options = parser.parse_args(arguments)
    documents, model = read_treebank(options.treebank, options.language), EduSegmenter.load(options.weights)
    print(f"| {options.weights}, {len(documents)} documents | " + " | ".join(NAMES) + " | 95 % of f1 |")
    print("|---" * (len(NAMES) + 2) + "|")
    for sentences in ("gold", "own"):
        boundaries = begins(model, documents, sentences, options.language)
        low, high = interval(boundaries, "f1")
        row = scores(boundaries)
        print(f"| {sentences} sentences | {' | '.join(f'{row[n]:.1f}' for n in NAMES)} | {low:.1f} to {high:.1f} |")
        if sentences == "gold":
            genres = defaultdict(list)
            for document, counts in zip(documents, boundaries):
                genres[document.genre].append(counts)
    by_genre = (f"{genre or 'unknown'} {scores(counts)['f1']:.1f}" for genre, counts in sorted(genres.items()))
    print("\nF1 by genre, gold sentences: " + ", ".join(by_genre))


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments[:1] == ["score"]:
            score(arguments[1:])
        else:
            SegmenterCLI(
                EduSegmenter,
                SegmentationData,
                args=arguments,
                seed_everything_default=1,
                save_config_callback=None,
                parser_kwargs={"fit": {"allow_abbrev": False}},
                trainer_defaults={"use_distributed_sampler": False, "gradient_clip_val": 1.0},
            )
    except UserError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
