"""Parses of made-up documents."""

import random

import torch

from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.documents import Document

RELATIONS = ("elaboration", "contrast", "cause")


def random_tree(size: int, relations: int, rng: random.Random) -> torch.Tensor:
    """A random binary tree over EDUs, its nodes in random order, [E - 1, 5]."""
    nodes, todo = [], [(0, size - 1)]
    while todo:
        start, end = todo.pop()
        if start == end:
            continue
        split = rng.randrange(start, end)
        nodes.append((start, split, end, rng.randrange(3), rng.randrange(relations)))
        todo += [(start, split), (split + 1, end)]
    rng.shuffle(nodes)
    return torch.tensor(nodes, dtype=torch.int32).reshape(-1, 5)


def made_up_document(number: int, sentences: int = 3) -> Document:
    """Sentences of two clauses, some beyond the basic plane, two paragraphs."""
    lines = [f"Nº {number}.{i} — the 😀 otter swims , and the naïve heron 𝔴atches ." for i in range(sentences)]
    return Document(f"doc-{number}", [part for part in (lines[:1], lines[1:]) if part])


def made_up_parse(request: ParseRequest, half_width: int = 8) -> DiscourseParse:
    """A parse whose EDUs end at commas and sentences' ends, with a random tree and random probabilities."""
    rng = random.Random(request.text)
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    edus = []
    for start, end in request.sentences:
        comma = request.text.find(",", start, end)
        edus += [(start, end)] if comma < 0 else [(start, comma + 1), (comma + 1, end)]
    band = torch.rand(len(edus), 2 * half_width + 1, len(RELATIONS), generator=generator) / 2
    gamma = torch.rand(len(edus), generator=generator)
    tree = random_tree(len(edus), len(RELATIONS), rng)
    return DiscourseParse.of(request, edus, RELATIONS, tree, band, gamma=gamma)


class MadeUpParser:
    """A parser that needs no model, whose distributions are no tree's; `asked` has ids of documents it has parsed."""

    relations, __reduce__ = RELATIONS, None  # cannot be pickled, like a parser with low-rank changes

    def __init__(self, fingerprint: str = "made up", rows: str = "side", band: int = 4) -> None:
        self.fingerprint, self.rows, self.band, self.asked = fingerprint, rows, band, []

    def predict_step(self, batch: list[ParseRequest], batch_idx: int) -> list[DiscourseParse]:
        self.asked += [request.id for request in batch]
        return [made_up_parse(request, self.band) for request in batch]


def same(one: DiscourseParse, other: DiscourseParse) -> bool:
    plain = ("id", "text_digest", "relations", "rows")
    return all(getattr(one, name) == getattr(other, name) for name in plain) and all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in ("edus", "tree", "ldd", "gamma")
    )


def to_band(dense: torch.Tensor, band: int) -> torch.Tensor:
    """Return the band of a dense LDD: [E, E, R] -> [E, 2b + 1, R], zero outside the document."""
    size = len(dense)
    banded = dense.new_zeros(size, 2 * band + 1, dense.shape[2])
    for edu in range(size):
        for offset in range(-band, band + 1):
            if 0 <= edu + offset < size:
                banded[edu, offset + band] = dense[edu, edu + offset]
    return banded
