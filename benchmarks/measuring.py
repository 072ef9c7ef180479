"""Shared parts of benchmarks: alternating timers, training steps, simulated and real documents, and tables."""

import argparse
import gzip
import itertools
import json
import multiprocessing
import platform
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Seconds(NamedTuple):
    """Seconds of each repetition of a benchmarked function."""

    wall: list[float]  # wall time
    cpu: list[float]  # processor time of all threads of this process

    def medians(self) -> tuple[float, float]:
        """Return the medians of wall time and of processor time."""
        return statistics.median(self.wall), statistics.median(self.cpu)


def alternate(
    ways: Mapping[str, Callable[[], object]], repetitions: int, warm_up: bool = True, device: str = "cpu"
) -> dict[str, Seconds]:
    """Time functions in turn, so that a busy machine slows all of them.

    Args:
        ways: functions to time, by name.
        repetitions: number of repetitions of each function.
        warm_up: whether to run each function once before, without timing.
        device: `cpu`, or a GPU, whose work must end before the time is read.
    """
    seconds = {name: Seconds([], []) for name in ways}
    for repetition in range(-warm_up, repetitions):  # True counts as 1: number -1 is the warm-up
        for name, way in ways.items():
            start, cpu = time.perf_counter(), time.process_time()
            way()
            if device != "cpu":
                torch.cuda.synchronize()
            if repetition >= 0:
                seconds[name].wall.append(time.perf_counter() - start)
                seconds[name].cpu.append(time.process_time() - cpu)
    return seconds


def cpu_seconds(way: Callable[[], object], repetitions: int = 1, warm_up: bool = False) -> float:
    """Return the median processor time of a function in seconds."""
    return alternate({"": way}, repetitions, warm_up)[""].medians()[1]


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a new process, for example its peak memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def memory_of_steps(step: Callable[[], object]) -> float:
    """Return the MiB that two steps add to the peak memory of this process; to be called in a new process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2):  # the optimizer allocates its state in the first one
        step()
    unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS reports bytes, Linux KiB
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / unit


def training_step(
    model: nn.Module, loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer | None = None, clip: float = 2.0
) -> Callable[[], None]:
    """Return a function that runs a training step: loss, gradients, clipping and optimizer (by default the model's)."""
    model.train()
    optimizer = optimizer or model.configure_optimizers()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(trained, clip)
        optimizer.step()

    return step


class MadeUpWords:
    """Generator of sentences of 20,000 simulated words with Zipf's frequencies and English endings."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        endings = ["", "", "s", "ed", "ing", "ation", "ly", "ness", "ment"]  # work for a stemmer
        letters = (self.random.choices("etaoinshrdlu", k=self.random.randint(1, 7)) for _ in range(20_000))
        self.words = ["".join(word) + self.random.choice(endings) for word in letters]
        self.weights = list(itertools.accumulate(1 / rank for rank in range(1, len(self.words) + 1)))  # cumulative

    def draw(self, min_words: int, max_words: int) -> list[str]:
        """Return between `min_words` and `max_words` words."""
        return self.random.choices(self.words, cum_weights=self.weights, k=self.random.randint(min_words, max_words))


def read_rows(path: str, count: int | None = None) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the sentences of each document and of its summary in gzipped JSON Lines; `count` limits the documents.

    Sentences end at line feeds, and in documents also at full stops between spaces, as in tokenized text.
    """
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, itertools.islice(lines, count)):
            document = row["document"].replace(" . ", " .\n").split("\n")
            yield [line for line in document if line.strip()], row.get("summary", "").split("\n")


def word_rows(documents: int, vocab_size: int, source_words: int, target_tokens: int) -> list[dict[str, Any]]:
    """Return simulated features of documents, to be collated by `PointerGeneratorData` or `CommunicatingAgentsData`.

    Words are drawn by Zipf's law. One in twenty is an out-of-vocabulary word, and half of the words of a summary are
    copied from its document.
    """
    from datamodules.text.vocabulary import STOP

    generator = torch.Generator().manual_seed(0)
    frequencies = 1 / torch.arange(4, vocab_size)  # the first four ids are special symbols
    rows = []
    for number in range(documents):
        source = 4 + torch.multinomial(frequencies, source_words, replacement=True, generator=generator)
        unknown = torch.rand(source_words, generator=generator) < 0.05
        source = torch.where(unknown, vocab_size + unknown.cumsum(0) - 1, source)  # extended ids in order
        target = 4 + torch.multinomial(frequencies, target_tokens, replacement=True, generator=generator)
        copied = torch.rand(target_tokens, generator=generator) < 0.5
        target = torch.where(copied, source[:target_tokens], target)
        target[-1] = STOP
        rows.append({
            "id": str(number), "references": [], "source": source.tolist(), "target": target.tolist(),
            "paragraphs": [source_words], "length": source_words,
            "oov_words": [f"own{k}" for k in range(int(unknown.sum()))],
        })  # fmt: skip
    return rows


def options(description: str | None, repetitions: int | None = None) -> argparse.ArgumentParser:
    """Return a parser of options with this help; with `--repetitions` if its default is not None."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if repetitions is not None:
        parser.add_argument("--repetitions", type=int, default=repetitions)
    return parser


def machine(device: str = "cpu") -> str:
    """Return the name of the processor with the number of threads, or of the GPU, and the version of PyTorch."""
    cpu = f"{torch.get_num_threads()} thread(s) of {platform.processor() or platform.machine()}"
    return f"{cpu if device == 'cpu' else torch.cuda.get_device_name()}, torch {torch.__version__}"


def print_table(head: Sequence[str], rows: Iterator[Sequence[object]] | Sequence[Sequence[object]]) -> None:
    """Print a Markdown table, each row as soon as it is computed."""
    for row in itertools.chain([head, ["---"] * len(head)], rows):
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    print()
