"""Training on a CPU: two processes of one thread each (DDP over gloo) against one process of two threads.

    python -m benchmarks.data_parallel [--cores 2] [--model NAME ...]

Every model has the sizes of a config for small machines and trains on the built-in corpus. One process takes batches
of `data.batch_size` documents; each of n processes takes an n-th of each batch, and gradients are averaged. A row has
the median wall time of a training step (loss, gradients, clipping, AdamW), where the ways take turns with the same
documents; the machine has to have as many free cores. Starting a process is not included.
"""

import itertools
import os
import socket
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.measuring import machine, model_and_data, options, print_table, training_step
from lightning_modules.summarizer import Summarizer, weighted_sum

CONFIGS = Path("experiments/configs")
MODELS = {
    "pointer-generator": ["pointer_generator/docstrings.yaml"],
    "agents": ["communicating_agents/docstrings.yaml"],
    "GraphSum": ["graphsum/docstrings.yaml"],
    "RSTformer": ["rstformer/docstrings.yaml"],
    "PEGASUS": ["pegasus/docstrings.yaml"],
    "BertSum over MiniLM": ["bertsum/cnndm_minilm.yaml", "--data.corpus=Docstrings"],
}
DOCUMENTS, BLOCK = 256, 4  # number of documents; training steps per timed block


class Loss(nn.Module):
    """Weighted loss of a model as a forward pass, which is what DDP synchronizes."""

    def __init__(self, model: Summarizer) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Any) -> Tensor:
        return weighted_sum(self.model.loss_terms(batch), self.model.loss_weights)


def prepared(arguments: list[str], rank: int = 0, processes: int = 1) -> tuple[Summarizer, list[Any]]:
    """Return a model and this process's share of the first batches.

    A batch of all processes together has `data.batch_size` documents, rounded down to a multiple of their number.
    """
    config, *rest = arguments
    _, model, data = model_and_data([f"--config={CONFIGS / config}", *rest, f"--data.max_train={DOCUMENTS}"])
    data.batch_size //= processes
    data.prepare_splits(["train"])
    data.tokenizer = data.load_tokenizer(data._tokenizer_folder())
    model.set_tokenizer(data.tokenizer)
    data.trainer = SimpleNamespace(world_size=processes, global_rank=rank)  # all that the loader needs of a trainer
    return model, list(itertools.islice(data.train_dataloader(), BLOCK))


def blocks(arguments: list[str], rank: int, processes: int, threads: int) -> Iterator[float]:
    """Yield the mean seconds of a training step over the same batches, again and again."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, batches = prepared(arguments, rank, processes)
    loss = Loss(model) if processes == 1 else DistributedDataParallel(Loss(model))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
    while True:
        start = time.perf_counter()
        for batch in batches:
            training_step(loss, lambda batch=batch: loss(batch), optimizer)()
        yield (time.perf_counter() - start) / len(batches)


def work(rank: int, arguments: list[str], processes: int, threads: int, port: int, pipe: Any) -> None:
    """Run in a worker process: train a block of steps for each message, and send back the seconds per step."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    distributed.init_process_group("gloo", rank=rank, world_size=processes)
    for seconds in blocks(arguments, rank, processes, threads):
        pipe.send(seconds)
        if not pipe.recv():
            break
    distributed.destroy_process_group()


class Workers:
    """Processes that train together, and wait between blocks of steps."""

    def __init__(self, arguments: list[str], processes: int, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.pipes, self.processes = [], []
        for rank in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(rank, arguments, processes, threads, port, theirs))
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        self._answers()  # the first block includes allocations

    def block(self) -> float:
        """Train a block of steps, and return the seconds per step of the slowest process."""
        for pipe in self.pipes:
            pipe.send(True)
        return self._answers()

    def close(self) -> None:
        """End the processes."""
        for pipe in self.pipes:
            pipe.send(False)
        for process in self.processes:
            process.join()

    def _answers(self) -> float:
        return max(pipe.recv() for pipe in self.pipes)


def compare(arguments: list[str], cores: int, repetitions: int) -> tuple[int, dict[str, float]]:
    """Return the number of documents per step, and its median seconds with one thread, `cores` threads or processes."""
    _, batches = prepared(arguments)  # builds the cache, too
    ways = {"one thread": (1, 1), "threads": (1, cores), "processes": (cores, 1)}
    workers = {way: Workers(arguments, *counts) for way, counts in ways.items()}
    seconds = {way: [] for way in ways}
    for _ in range(repetitions):
        for way, group in workers.items():
            seconds[way].append(group.block())
    for group in workers.values():
        group.close()
    return batches[0].batch_size, {way: statistics.median(values) for way, values in seconds.items()}


def main() -> None:
    parser = options(__doc__, repetitions=5)
    parser.add_argument("--cores", type=int, default=2, help="threads of the one process, and number of processes")
    parser.add_argument("--model", choices=list(MODELS), action="append", help="measure these alone")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.cores)
    print(f"{machine()}\n")

    def rows() -> Iterator[list[object]]:
        for name in arguments.model or MODELS:
            size, seconds = compare(MODELS[name], arguments.cores, arguments.repetitions)
            one, threads, processes = (seconds[way] for way in ("one thread", "threads", "processes"))
            ratios = [f"{one / threads:.2f}", f"{one / processes:.2f}", f"{threads / processes:.2f}"]
            yield [name, size, f"{one:.3f}", f"{threads:.3f}", f"{processes:.3f}", *ratios]

    n = arguments.cores
    head = ["model", "documents per step", "1 thread, s", f"{n} threads, s", f"{n} processes, s"]
    print_table([*head, f"speed-up of {n} threads", f"of {n} processes", "processes / threads"], rows())


if __name__ == "__main__":
    main()
