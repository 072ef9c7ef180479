"""Simulated clusters of paragraphs, and properties that every graph over them must have."""

import random

import numpy as np

from datamodules.documents import Document
from datamodules.graphs import ParagraphRule, Paragraphs

THEMES = {
    "river": ["otter", "heron", "river", "bank", "water", "fish", "reed", "swim", "dive", "stream"],
    "market": ["price", "trade", "bank", "coin", "merchant", "sell", "buy", "cheap", "stall", "profit"],
    "sky": ["star", "moon", "comet", "orbit", "telescope", "night", "planet", "dark", "cloud", "light"],
}
NAMES = ("Quillon", "Brisbet", "Tamsel", "Vorrick")


def cluster(seed: int, sizes: tuple[int, ...] = (3, 2, 4, 1, 2)) -> Document:
    """Return a document whose parts have these numbers of sentences, each part about one theme."""
    rng, parts = random.Random(seed), []
    for size in sizes:
        theme, sentences = rng.choice(list(THEMES)), []
        for _ in range(size):
            words = [rng.choice(THEMES[theme]) for _ in range(rng.randrange(4, 9))]
            sentences.append(f"{rng.choice(NAMES)} saw that the {' '.join(words)} ended.")
        parts.append(sentences)
    return Document(f"cluster-{seed}", parts)


def paragraphs(*parts: list[str] | str, rule: ParagraphRule | None = None, id: str = "x") -> Paragraphs:
    """The paragraphs of parts, each a list of sentences or a single one."""
    listed = [[part] if isinstance(part, str) else part for part in parts]
    return (rule or ParagraphRule())(Document(id, listed))


def assert_is_graph(weights: np.ndarray, size: int, symmetric: bool) -> None:
    assert weights.shape == (size, size) and weights.dtype == np.float32
    assert (weights >= 0).all() and (weights <= 1).all() and (weights.diagonal() == 1).all()
    if symmetric:
        assert (weights == weights.T).all()
