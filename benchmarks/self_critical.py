"""Time of a self-critical training step compared with an MLE step, and the share of rewards in it.

    python -m benchmarks.self_critical

The model is an untrained pointer-generator with coverage and the sizes of the paper. It hardly ever samples the end
symbol, so that every sample has the length of the references, the worst case. A step is loss, gradients, clipping and
Adagrad; the loss of self-critical steps is 0.9 self_critical + 0.1 MLE. Times are medians over alternating repetitions,
so that a busy machine slows all; they are processor times of this process with one thread.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from benchmarks.measuring import alternate, machine, options, print_table, training_step
from benchmarks.pointer_generator import STOP, B, S, T, V, make_batch, make_model, our_loss
from callbacks import SelfCritical
from datamodules.pointer_generator import PointerGeneratorBatch
from lightning_modules.pointer_generator.module import PointerGenerator

SENTENCE = 25  # number of words of a sentence in the references
SETTINGS = {
    "MLE": None,
    "greedy baseline, 1 sample": {},
    "the same, reward-to-go": {"credit": "reward_to_go"},
    "leave-one-out, 2 samples": {"samples": 2, "advantage": "leave_one_out"},
    "leave-one-out, 4 samples": {"samples": 4, "advantage": "leave_one_out"},
}


def batch_with_references(model: PointerGenerator) -> PointerGeneratorBatch:
    """Return the batch of `make_batch` with its targets as references, in sentences of equal length."""
    batch = make_batch()
    references = []
    for ids, oov_words in zip(batch.target.tolist(), batch.oov_words):
        words = model.tokenizer.decode([word for word in ids if word != STOP], oov_words, V)
        references.append([[" ".join(words[i : i + SENTENCE]) for i in range(0, len(words), SENTENCE)]])
    return replace(batch, references=references)


class Timed(SelfCritical):
    """Self-critical training that sums up the processor time of rewards."""

    reward_seconds = 0.0

    def advantages(self, *arguments) -> Tensor:
        start = time.process_time()
        result = super().advantages(*arguments)
        self.reward_seconds += time.process_time() - start
        return result


def steps(callbacks: dict[str, Timed | None]) -> dict[str, Callable[[], None]]:
    """Return a training step for each callback (None is maximum likelihood), all on one model."""
    model = make_model()
    model.log = lambda *arguments, **options: None  # there is no trainer
    model.tokenizer.end_ids = lambda marks: list(range(4, 9))  # ends of sentences: about one word in seven
    batch, optimizer = batch_with_references(model), model.configure_optimizers()

    def loss(callback: Timed | None) -> Tensor:
        likelihood = our_loss(model, batch)
        return likelihood if callback is None else 0.1 * likelihood + 0.9 * callback.term(model, batch)

    return {name: training_step(model, partial(loss, callback), optimizer) for name, callback in callbacks.items()}


def main() -> None:
    repetitions = options(__doc__, repetitions=5).parse_args().repetitions
    torch.set_num_threads(1)
    callbacks = {name: None if settings is None else Timed(**settings) for name, settings in SETTINGS.items()}
    seconds = alternate(steps(callbacks), repetitions)
    print(f"Batch {B}, {S} source and {T} target tokens, V = {V:,}; {machine()}.\n")
    rows = []
    for name, (_, times) in seconds.items():
        ratio = statistics.median(step / likelihood for step, likelihood in zip(times, seconds["MLE"].cpu))
        steps_run = repetitions + 1  # with the warm-up
        rewards = 0.0 if callbacks[name] is None else callbacks[name].reward_seconds / steps_run
        share = f"{100 * rewards / statistics.median(times):.2g} %" if rewards else ""
        rows.append([name, f"{statistics.median(times):.2f}", f"{ratio:.2f}", share])
    print_table(["step", "seconds", "times MLE", "rewards"], rows)


if __name__ == "__main__":
    main()
