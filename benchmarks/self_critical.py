"""A self-critical training step beside an MLE step, and what share of it rewards are.

    python benchmarks/self_critical.py

The pointer-generator with coverage of the paper's size, before training: it hardly ever draws the end symbol, so that
every sample is as long as the references, the worst case. A step is loss, gradients, clipping and Adagrad; the
self-critical ones have the loss 0.9 self_critical + 0.1 MLE. Times are medians over repetitions that alternate between
all ways, so that a busy machine slows all; they are the processor time of this process, which has one thread.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from pointer_generator import STOP, B, S, T, V, make_batch, make_model
from torch import Tensor

from callbacks import SelfCritical
from datamodules.pointer_generator import PointerGeneratorBatch
from lightning_modules.pointer_generator.module import PointerGenerator

SENTENCE = 25  # words of a sentence of the references; the first word of the vocabulary ends one in the samples
WAYS = {
    "MLE": None,
    "greedy baseline, 1 sample": {},
    "the same, reward-to-go": {"credit": "reward_to_go"},
    "leave-one-out, 2 samples": {"samples": 2, "baseline": "leave_one_out"},
    "leave-one-out, 4 samples": {"samples": 4, "baseline": "leave_one_out"},
}


def batch_with_references(model: PointerGenerator) -> PointerGeneratorBatch:
    """The targets once more as text, cut into sentences."""
    batch = make_batch()
    references = []
    for ids, added in zip(batch.target.tolist(), batch.added):
        words = model.text.decode([word for word in ids if word != STOP], added, V)
        references.append([[" ".join(words[i : i + SENTENCE]) for i in range(0, len(words), SENTENCE)]])
    return replace(batch, references=references)


class Timed(SelfCritical):
    """Knows the processor time that its rewards took."""

    taken = 0.0

    def advantages(self, *arguments) -> Tensor:
        start = time.process_time()
        result = super().advantages(*arguments)
        self.taken += time.process_time() - start
        return result


def steppers(callbacks: dict[str, Timed | None]) -> dict[str, Callable[[], None]]:
    """A training step of each way, all on one model."""
    model = make_model().train()
    model.log = lambda *arguments, **options: None
    model.text.end_ids = lambda marks: list(range(4, 9))  # about one word in seven of the targets
    batch, optimizer = batch_with_references(model), model.configure_optimizers()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def step(callback: Timed | None) -> None:
        optimizer.zero_grad()
        terms = model.loss_terms(batch)
        own = terms["nll"] + model.loss_weights["coverage"] * terms["coverage"]
        loss = own if callback is None else 0.1 * own + 0.9 * callback.term(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 2.0)
        optimizer.step()

    return {name: partial(step, callback) for name, callback in callbacks.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    torch.set_num_threads(1)
    callbacks = {name: None if options is None else Timed(**options) for name, options in WAYS.items()}
    steps = steppers(callbacks)
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    rewards: dict[str, list[float]] = {name: [] for name in WAYS}
    for repetition in range(repetitions + 1):
        for name, step in steps.items():
            before, start = getattr(callbacks[name], "taken", 0.0), time.process_time()
            step()
            if repetition:  # the first one warms up
                seconds[name].append(time.process_time() - start)
                rewards[name].append((getattr(callbacks[name], "taken", 0.0) - before) / seconds[name][-1])
    print(
        f"Batch {B}, {S} source and {T} target tokens, V = {V:,}; one thread of "
        f"{platform.processor() or platform.machine()}, torch {torch.__version__}.\n"
    )
    print("| step | seconds | times MLE | rewards |\n|---|---|---|---|")
    for name, taken in seconds.items():
        ratios = [mine / theirs for mine, theirs in zip(taken, seconds["MLE"])]
        share = f"{100 * statistics.median(rewards[name]):.2g} %" if callbacks[name] else ""
        print(f"| {name} | {statistics.median(taken):.2f} | {statistics.median(ratios):.2f} | {share} |")


if __name__ == "__main__":
    main()
