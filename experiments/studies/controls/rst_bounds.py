"""What readers of a planted distribution can reach: `python -m experiments.studies.controls.rst_bounds`.

A perfect reader of the distribution knows the candidate trees and their probabilities, and so P(target). A perfect
reader of the best tree knows that tree's target and how often the best tree is right. A reader of sums knows, for each
sentence, the LDD summed over its row, which one layer of attention can compute: P(target) is a softmax of the sums
times a factor. P(target) does not depend on a few pairs of EDUs alone: it is the probability that a sentence is the
nucleus of all others in the same tree.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from datamodules.discourse.distributions import tree_gamma
from experiments.studies.controls.rst_extraction import ARMS, CORPUS, Noise, Outcome
from experiments.studies.controls.tasks.planted_parser import PlantedParser
from experiments.studies.controls.tasks.planted_trees import planted_tree


class Bounds(NamedTuple):
    """Accuracy and loss of each reader.

    Attributes:
        distribution: perfect reader of the distribution.
        best_tree: perfect reader of the best tree.
        sums: reader of the row sums of the LDD.
    """

    distribution: Outcome
    best_tree: Outcome
    sums: Outcome


def head(nodes: Tensor, size: int) -> int:
    """Return the most nuclear EDU of a tree: the nucleus, or the left one of two, from the root downwards."""
    by_span = {(start, end): (split, nuclearity) for start, split, end, nuclearity, _ in nodes.tolist()}
    start, end = 0, size - 1
    while start < end:
        split, nuclearity = by_span[start, end]
        start, end = (split + 1, end) if nuclearity == 1 else (start, split)
    return start


def bounds(noise: Noise, documents: int = 1000) -> Bounds:
    """Return what the readers reach where the target is the nucleus, over made-up documents."""
    parser, size = PlantedParser("nucleus", *noise), CORPUS["sentences"]
    probabilities = torch.zeros(documents, size)                                      # [N, E]
    sums = torch.zeros(documents, size)                                               # [N, E]
    of_best, targets = torch.zeros(documents, dtype=torch.long), torch.zeros(documents, dtype=torch.long)
    for number in range(documents):
        sentences = [f"document {number}, sentence {place}" for place in range(size)]
        trees, weights = parser.distribution(sentences)
        targets[number] = planted_tree(sentences, "nucleus").target
        heads = [head(tree, size) for tree in trees]
        of_best[number] = heads[max(range(len(trees)), key=weights.__getitem__)]
        for tree, weight, place in zip(trees, weights, heads):
            probabilities[number, place] += weight
            sums[number] += weight * tree_gamma(tree, size) * size
    entropy = -torch.xlogy(probabilities, probabilities).sum(1).mean().item()
    distribution = Outcome(probabilities.max(1).values.mean().item(), entropy)
    right = probabilities.gather(1, of_best[:, None]).mean()
    wrong = 1 - right
    loss = abs((torch.xlogy(right, right) + torch.xlogy(wrong, wrong / (size - 1))).item())
    return Bounds(distribution, Outcome(right.item(), loss), _reader_of_sums(sums, targets))


def _reader_of_sums(sums: Tensor, targets: Tensor) -> Outcome:
    """Fit the factor of the sums by maximum likelihood."""
    factor = torch.ones((), requires_grad=True)
    optimizer = torch.optim.LBFGS([factor], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = cross_entropy(factor * sums, targets)
        value.backward()
        return value

    optimizer.step(loss)
    accuracy = (sums.argmax(1) == targets).float().mean().item()
    return Outcome(accuracy, cross_entropy(factor.detach() * sums, targets).item())


def main() -> None:
    """Print the bounds of every noise of the arms."""
    print("| candidates | agreement | distribution | best tree | sums |\n|---|---|---|---|---|")
    for noise in dict.fromkeys(arm.noise for arm in ARMS if arm.noise.candidates > 1):
        cells = [f"{100 * reader.accuracy:.1f} %, {reader.loss:.3f}" for reader in bounds(noise)]
        agreement = "none" if noise.agreement is None else noise.agreement
        print(f"| {noise.candidates} | {agreement} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
