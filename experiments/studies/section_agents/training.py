"""Training and evaluation of all arms of a seed, on the same batches in the same order."""

import random
import sys
import time
from collections.abc import Iterator

import torch

from datamodules.text.vocabulary import UNK
from experiments.studies.section_agents.arms import BRANCHES, SCRATCH, Arm, Sizes, branch_off, make_arm
from experiments.studies.section_agents.sections import SECTIONS, TARGET_WORDS, Corpus

LESSONS, BRANCH, LATE = (
    0.12,
    0.4,
    0.8,
)  # shares of the steps: end of the lessons, start of the branches, first evaluation
WARM_UP = 30  # steps
EVAL_BATCH = 50

Scores = dict[str, list]  # `nll`, `known` and `attention`, see `evaluate`


@torch.inference_mode()
def evaluate(arm: Arm, corpus: Corpus, device: torch.device, exchanged: bool = False) -> Scores:
    """Return likelihoods of the validation targets.

    Args:
        arm: model.
        corpus: articles.
        device: device of the model.
        exchanged: give each target the sections of another article.

    Returns:
        `nll`: nats per token of each article. `known`: the same over tokens of the vocabulary, which do not depend on
        what can be copied. `attention`: share of each agent in the final distribution by third of the target, [3][A].
    """
    arm.model.eval()
    scores: Scores = {"nll": [], "known": []}
    shares, counts = torch.zeros(3, len(SECTIONS), device=device), torch.zeros(3, 1, device=device)
    rows = corpus.exchanged if exchanged else corpus.val
    for start in range(0, len(rows), EVAL_BATCH):
        batch = corpus.batch(rows[start : start + EVAL_BATCH], arm.agents).to(device)
        # ids beyond the vocabulary are those of the words of the article's own sections
        target = corpus.batch(corpus.val[start : start + EVAL_BATCH], arm.agents).target.to(device)  # [B, T]
        decoded = arm.model.decode(batch, batch.target_input.unsqueeze(1))
        log_probs = arm.model.target_log_probs(batch, decoded, batch.target.unsqueeze(1), batch.target_rows).squeeze(1)
        in_vocabulary = (target < arm.model.vocab_size) & (target != UNK) & (target != 0)
        scores["nll"] += (-log_probs.sum(1) / batch.target_lengths).tolist()
        scores["known"] += (-(log_probs * in_vocabulary).sum(1) / in_vocabulary.sum(1).clamp_min(1)).tolist()
        third = torch.arange(target.shape[1], device=device) // TARGET_WORDS
        for number in range(3):
            chosen = (target != 0) & (third == number)  # [B, T]
            attention = (decoded.agents.squeeze(1) * chosen.unsqueeze(-1)).sum((0, 1))  # [A]
            shares[number, : len(attention)] += attention
            counts[number] += chosen.sum()
    arm.model.train()
    return scores | {"attention": (shares / counts.clamp_min(1)).tolist()}


def evaluate_all(arms: dict[str, Arm], corpus: Corpus, device: torch.device) -> dict[str, Scores]:
    """Return the scores of each arm, and of it with exchanged sections, and with other messages than in training."""
    results = {}
    for name, arm in arms.items():
        trained = arm.mode
        results[name] = evaluate(arm, corpus, device)
        results[f"{name}, exchanged sections"] = evaluate(arm, corpus, device, exchanged=True)
        for mode in ("own", "other", "cut"):
            if trained not in (None, mode):
                arm.set_mode(mode)
                results[f"{name}, {mode} messages"] = evaluate(arm, corpus, device)
                arm.set_mode(trained)
    return results


def shuffled(number: int, size: int, seed: int) -> Iterator[list[int]]:
    """Yield batches of indices below `number` without end, in a new order each pass; incomplete ones are dropped."""
    generator, order = random.Random(seed), []
    while True:
        if len(order) < size:
            order = generator.sample(range(number), number)
        yield order[:size]
        order = order[size:]


def train_seed(corpus: Corpus, sizes: Sizes, seed: int, device: torch.device) -> dict[str, dict[str, Scores]]:
    """Train the arms of a seed.

    Arms from scratch first learn to copy the beginnings of the sections. After `BRANCH` of the steps, two copies of the
    arm without messages join them, which receive messages by weights that start at zero: of their own article, or of
    another one.

    Returns:
        Scores of the arms after `LATE` of the steps, as `late`, and those of `evaluate_all` as `end`.
    """
    arms = {name: make_arm(name, sizes, seed, device) for name in SCRATCH}
    evaluations, start = {}, time.monotonic()
    batches = shuffled(len(corpus.train), sizes.batch_size, seed)
    for number in range(sizes.steps):
        share = number / sizes.steps
        if share >= BRANCH and BRANCHES[0] not in arms:
            arms |= {name: branch_off(name, arms["silent"], sizes, seed, device) for name in BRANCHES}
        if share >= LATE and "late" not in evaluations:
            evaluations["late"] = {name: evaluate(arm, corpus, device) for name, arm in arms.items()}
        rows = corpus.lessons if share < LESSONS else corpus.train
        chosen = [rows[index] for index in next(batches)]
        shapes = {agents: corpus.batch(chosen, agents).to(device) for agents in (1, len(SECTIONS))}
        rate = sizes.lr * (1 - 0.95 * share) * min(1.0, (number + 1) / WARM_UP)
        losses = {name: arm.step(shapes[arm.agents], rate, 1000 * number + seed) for name, arm in arms.items()}
        if (number + 1) % 25 == 0:
            text = ", ".join(f"{name} {loss:.3f}" for name, loss in losses.items())
            seconds = time.monotonic() - start
            print(
                f"seed {seed}, step {number + 1} of {sizes.steps}, {seconds:.0f} s: {text}", file=sys.stderr, flush=True
            )
    evaluations["end"] = evaluate_all(arms, corpus, device)
    return evaluations
