"""How to keep a labelled discourse distribution on disk: banded, sparse or by chunks; size, time and error of each.

    python benchmarks/ldd_storage.py

The document is one of 16,000 tokens: 1,950 EDUs in five charts of 390 and a chart over the charts, 15 relations and
three nuclearities. Its distributions are exact ones of random tree CRFs that favour the spans and labels of a random
tree by as much as makes them as sure of themselves as a weak, a usual and a strong parser are (the first two columns
of the first table). Every way keeps the pairs up to `--band` EDUs apart but "chunks", which keeps all of them. Time is
the least of several repetitions, with the file in the system's cache: `load` is from its path to tensors whose digest
was checked, `window` from there to float32 values for the pairs that a window of 1,024 tokens needs (61 to each side).
Error is the largest and the mean over the band, and the largest of log(0.001 + p).
"""

import argparse
import mmap
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import xxhash
from torch import Tensor

from datamodules.discourse.cache import ParseCache
from datamodules.discourse.distributions import decode, encode, inside, resize
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from lightning_modules.discourse_parser.chart import Potentials, node_marginals, span_marginals
from lightning_modules.discourse_parser.ldd import LabelClasses, chunked_band, chunked_gamma, discourse_distribution

RELATIONS, CHUNKS, CHUNK, WINDOW = 15, 5, 390, 61
NUCLEARITIES = ("NS", "SN", "NN")
SHARPNESS = {"weak": (2.0, 3.0), "usual": (3.0, 4.5), "strong": (6.0, 7.0)}  # added to a gold span, to a gold label
CLASSES = LabelClasses.of(
    [name for name in NUCLEARITIES for _ in range(RELATIONS)], list(range(RELATIONS)) * 3, RELATIONS
)


class Sample(NamedTuple):
    """Distributions of one document.

    Attributes:
        band: [E, 2b + 1, R].
        blocks: those of the chunks, [E_c, E_c, R] each.
        top: that over the chunks, [chunks, chunks, R].
        spans: mean probability of the spans of the tree that is favoured.
        labels: mean probability of the best label.
    """

    band: Tensor
    blocks: list[Tensor]
    top: Tensor
    spans: float
    labels: float


def random_tree(size: int, rng: random.Random) -> list[tuple[int, int]]:
    """First and last EDU of the nodes of a tree whose splits are more often early than late."""
    spans, todo = [], [(0, size - 1)]
    while todo:
        start, end = todo.pop()
        if start < end:
            split = start + int((end - start) * rng.betavariate(0.7, 1.0))
            spans.append((start, end))
            todo += [(start, split), (split + 1, end)]
    return spans


def crf(size: int, spans_by: float, labels_by: float, rng: random.Random) -> tuple[Tensor, float, float]:
    """The exact LDD of one chart [E, E, R], mean probability of the favoured spans and of the best labels."""
    start, end = torch.tensor(random_tree(size, rng)).unbind(1)
    scores = torch.randn(1, size, size)
    scores[0, start, end] += spans_by
    sizes = torch.tensor([size])
    potentials = Potentials(scores)
    nodes = node_marginals(potentials, sizes, 1e-6)
    seed = torch.Generator().manual_seed(rng.randrange(2**31))
    favoured = torch.randint(3 * RELATIONS, (size * size,), generator=seed)
    logits = torch.randn(size * size, 3 * RELATIONS, generator=seed)
    logits[torch.arange(size * size), favoured] += labels_by
    labels = logits.softmax(-1)[nodes.start * size + nodes.end]
    sure = (labels.max(-1).values * nodes.probability).sum() / nodes.probability.sum()
    recall = span_marginals(potentials, sizes)[0, start, end].mean()
    return discourse_distribution(nodes, labels, CLASSES, size).float(), recall.item(), sure.item()


def sample(sharpness: str, band: int, seed: int) -> Sample:
    """The distributions of a document."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    charts = [crf(CHUNK, *SHARPNESS[sharpness], rng) for _ in range(CHUNKS)]
    top, *_ = crf(CHUNKS, *SHARPNESS[sharpness], rng)
    blocks = [chart[0] for chart in charts]
    spans, labels = (sum(chart[i] for chart in charts) / CHUNKS for i in (1, 2))
    return Sample(chunked_band(blocks, top, None, band), blocks, top, spans, labels)


# The ways: a sample to arrays, and arrays back to the band -----------------------------------------------------------


def linear(p: Tensor) -> Tensor:
    return p.mul(255).round().to(torch.uint8)


def unlinear(code: Tensor) -> Tensor:
    return code.float() / 255


class Banded:
    """All values of the band."""

    def __init__(self, put: Callable[[Tensor], Tensor], get: Callable[[Tensor], Tensor]) -> None:
        self.put, self.get = put, get

    def pack(self, found: Sample) -> list[Tensor]:
        return [self.put(found.band)]

    def window(self, packed: list[Tensor], half: int) -> Tensor:
        return self.get(resize(packed[0], half))


class Sparse:
    """Values from `least` on: their places in the row of an EDU (two bytes) and codes (one), and where rows begin."""

    def __init__(self, least: float) -> None:
        self.least = least

    def pack(self, found: Sample) -> list[Tensor]:
        rows = found.band.flatten(1)
        row, place = (rows >= self.least).nonzero(as_tuple=True)
        first = torch.searchsorted(row, torch.arange(len(rows) + 1))
        shape = torch.tensor(found.band.shape)
        return [first, shape, place.to(torch.uint16), encode(rows[row, place])]

    def window(self, packed: list[Tensor], half: int) -> Tensor:
        first, shape, place, code = packed
        size, columns, relations = shape.tolist()
        row = torch.repeat_interleave(torch.arange(size), first.diff())
        band = torch.zeros(size, columns * relations, dtype=torch.uint8)
        band[row, place.long()] = code
        return decode(resize(band.view(size, columns, relations), half))


class Chunks:
    """All pairs of every chunk and of the chart over chunks, a byte each."""

    def pack(self, found: Sample) -> list[Tensor]:
        return [encode(values) for values in (found.top, *found.blocks)]

    def window(self, packed: list[Tensor], half: int) -> Tensor:
        top, *blocks = map(decode, packed)
        return chunked_band(blocks, top, None, half)


WAYS = {
    "banded, half precision": Banded(lambda p: p.half(), lambda code: code.float()),
    "banded, a byte, 255 p": Banded(linear, unlinear),
    "banded, a byte, 255 sqrt(p)": Banded(encode, decode),
    "sparse, p >= 0.0001": Sparse(1e-4),
    "sparse, p >= 0.001": Sparse(1e-3),
    "sparse, p >= 0.01": Sparse(1e-2),
    "chunks, a byte, 255 sqrt(p)": Chunks(),
}

# Measuring -----------------------------------------------------------------------------------------------------------


def load(path: Path, kinds: list[tuple[torch.dtype, torch.Size]], digest: bytes) -> list[Tensor]:
    """Tensors in a file one behind the other, memory-mapped and checked."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    if xxhash.xxh3_128(mapped).digest() != digest:
        raise ValueError(f"{path}: broken")
    tensors, at = [], 0
    for dtype, shape in kinds:
        count = shape.numel()
        tensors.append(torch.frombuffer(mapped, dtype=dtype, count=count, offset=at).view(shape))
        at += count * dtype.itemsize
    return tensors


def least_ms(action: Callable[[], object], repetitions: int) -> float:
    """Milliseconds of the fastest repetition."""
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def measure(way: Banded | Sparse | Chunks, found: Sample, repetitions: int, folder: Path) -> dict[str, float]:
    """Megabytes, milliseconds and errors of one way."""
    half = found.band.shape[1] // 2
    packed = sorted(way.pack(found), key=lambda tensor: -tensor.dtype.itemsize)  # stable; wide ones first are aligned
    path = folder / "document"
    path.write_bytes(b"".join(tensor.contiguous().numpy().tobytes() for tensor in packed))
    kinds, digest = [(t.dtype, t.shape) for t in packed], xxhash.xxh3_128(path.read_bytes()).digest()
    loaded = load(path, kinds, digest)
    back, pairs = way.window(loaded, half), inside(len(found.band), half)
    error = (back - found.band).abs()[pairs]
    logs = ((back + 1e-3).log() - (found.band + 1e-3).log()).abs().max()
    return {
        "MB": path.stat().st_size / 1e6,
        "load": least_ms(lambda: load(path, kinds, digest), repetitions),
        "window": least_ms(lambda: way.window(loaded, WINDOW), repetitions),
        "largest": error.max().item(),
        "mean": error.mean().item(),
        "log": logs.item(),
    }


def cached(found: Sample, repetitions: int, folder: Path) -> str:
    """The same document through the cache of the suite: megabytes on disk, milliseconds of `ParseCache.get`."""
    size = len(found.band)
    request = ParseRequest("document", "word " * size, (), ())
    edus = [(5 * i, 5 * i + 4) for i in range(size)]
    tree = [(i, i, size - 1, 0, 0) for i in range(size - 1)]
    gamma = chunked_gamma(found.blocks, found.top, None)
    relations = [str(i) for i in range(RELATIONS)]
    with ParseCache(folder).writer() as writer:
        writer.add("key", DiscourseParse.of(request, edus, relations, tree, found.band, gamma=gamma))
    times = []
    for _ in range(repetitions):
        cache = ParseCache(folder)
        start = time.perf_counter()
        cache.get("key")
        times.append(1000 * (time.perf_counter() - start))
    megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    spread = f"{min(times):.2f} / {statistics.median(times):.2f} / {max(times):.2f} ms (least / median / most)"
    return f"{megabytes:.2f} MB on disk; `ParseCache.get`, digest checked, {spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--band", type=int, default=128, help="EDUs to each side that are kept")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    samples = {name: sample(name, options.band, options.seed) for name in SHARPNESS}
    print("| parser | P(favoured span) | P(best label) | values >= 0.001 | >= 0.01 | >= 0.1 |")
    print("|---|---|---|---|---|---|")
    for name, found in samples.items():
        values = found.band[inside(len(found.band), options.band)]
        shares = " | ".join(f"{100 * (values >= least).float().mean():.1f} %" for least in (1e-3, 1e-2, 1e-1))
        print(f"| {name} | {found.spans:.2f} | {found.labels:.2f} | {shares} |")
    print("\n| way | parser | MB | load, ms | window, ms | largest error | mean error | error of the log |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for title, way in WAYS.items():
            for name, found in samples.items():
                row = measure(way, found, options.repetitions, Path(folder))
                times = f"{row['MB']:.1f} | {row['load']:.2f} | {row['window']:.0f}"
                print(f"| {title} | {name} | {times} | {row['largest']:.4f} | {row['mean']:.5f} | {row['log']:.3f} |")
        print(f"\nThrough the cache: {cached(samples['usual'], 5 * options.repetitions, Path(folder) / 'cache')}.")
    threads, version = torch.get_num_threads(), np.__version__
    print(f"\n{CHUNKS * CHUNK:,} EDUs, {threads} thread(s), torch {torch.__version__}, numpy {version}")


if __name__ == "__main__":
    main()
