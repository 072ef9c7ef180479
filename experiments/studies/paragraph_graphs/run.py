"""Choose the turn of a meeting that answers a query, with and without a graph of similar turns:

    python -m experiments.studies.paragraph_graphs.run qmsum/train_goldspan.jsonl.gz qmsum/val_goldspan.jsonl.gz

The documents are those of `MeetingTurns`: a query, turns that answer it, and turns that answer other queries.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from datamodules.documents import Document, UserError
from datamodules.graphs import PermutedSimilarity, Similarity
from datamodules.graphs.graph import ParagraphGraph
from datamodules.graphs.paragraphs import ParagraphRule
from experiments.studies.controls.tasks import MeetingTurns
from experiments.studies.markdown_table import table
from precis.statistics.significance import format_p, paired_difference

FOLDS = 10
RIDGE = 1e-3  # weight of the squared norm of the logit's weights, in nats per document
GRAPHS: dict[str, ParagraphGraph | None] = {
    "none": None,
    "permuted": PermutedSimilarity(scaled=True),
    "similarity": Similarity(scaled=True),
}


class Queries(NamedTuple):
    """N queries with T turns each.

    Attributes:
        inputs: by graph, the F inputs of each turn, standardized, [N, T, F].
        closest: index of the turn that is closest to the answer, [N].
        folds: fold of each query, the same for all queries about a meeting, [N].
    """

    inputs: dict[str, Tensor]
    closest: Tensor
    folds: Tensor


def graph_inputs(weights: Tensor) -> Tensor:
    """Return what a graph says about each turn, [T, 3], from its weights with the query as the first node, [T+1, T+1].

    They are the turn's weight to the query, its mean weight to other turns, and the same mean weighted by how close
    those are to the query, which is what a second layer of attention over paragraphs can read.
    """
    to_query = weights[0, 1:]  # [T]
    among_turns = weights[1:, 1:].clone().fill_diagonal_(0)  # [T, T]
    return torch.stack([to_query, among_turns.mean(1), among_turns @ to_query / len(to_query)], 1)


def length_inputs(turns: Sequence[str]) -> Tensor:
    """Return the logarithm of each turn's length in words, and its square, [T, 2]."""
    log_length = torch.tensor([len(turn.split()) for turn in turns]).double().log()  # [T]
    return torch.stack([log_length, log_length.square()], 1)


def read_queries(corpus: MeetingTurns) -> Queries:
    """Return the queries of both splits; meetings are assigned to the folds in turn."""
    inputs: dict[str, list[Tensor]] = {name: [] for name in GRAPHS}
    closest, meetings = [], []
    paragraphs_of = ParagraphRule(max_paragraphs=1 + 2 * corpus.turns)
    for split in corpus.splits():
        for record in corpus.records(split):
            turns = [text for (text,) in record.parts[1:]]
            closest.append(turns.index(record.references[0][0]))
            meetings.append(record.id.split("#")[0])
            paragraphs = paragraphs_of(Document(record.id, record.parts, record.references))
            for name, graph in GRAPHS.items():
                row = length_inputs(turns)
                if graph is not None:
                    weights = torch.as_tensor(graph.weights(paragraphs)).double()  # [T + 1, T + 1]
                    row = torch.cat([row, graph_inputs(weights)], 1)
                inputs[name].append(row)
    fold_of = {meeting: number % FOLDS for number, meeting in enumerate(sorted(set(meetings)))}
    if len(fold_of) < FOLDS:
        raise UserError(f"{len(fold_of)} meetings have queries with enough turns; {FOLDS} folds need as many")
    folds = torch.tensor([fold_of[meeting] for meeting in meetings])
    return Queries({name: standardized(rows) for name, rows in inputs.items()}, torch.tensor(closest), folds)


def standardized(rows: Sequence[Tensor]) -> Tensor:
    """Return inputs with mean 0 and standard deviation 1 over all turns, [N, T, F]."""
    inputs = torch.stack(list(rows))
    return (inputs - inputs.mean((0, 1))) / inputs.std((0, 1)).clamp_min(1e-9)


def fit(inputs: Tensor, closest: Tensor) -> Tensor:
    """Return the weights of the conditional logit softmax(inputs @ weights), [F]."""
    weights = torch.zeros(inputs.shape[-1], dtype=inputs.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(inputs @ weights, closest) + RIDGE * weights.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return weights.detach()


def cross_validate(inputs: Tensor, queries: Queries) -> np.ndarray:
    """Return, for each query, its negative log-likelihood in nats and whether the right turn is chosen in %, [N, 2]."""
    scores = torch.empty(len(queries.closest), 2, dtype=inputs.dtype)
    for fold in range(FOLDS):
        held_out = queries.folds == fold  # [N]
        weights = fit(inputs[~held_out], queries.closest[~held_out])
        logits, closest = inputs[held_out] @ weights, queries.closest[held_out]  # [n, T], [n]
        nats = torch.nn.functional.cross_entropy(logits, closest, reduction="none")
        scores[held_out] = torch.stack([nats, 100.0 * (logits.argmax(1) == closest)], 1)
    return scores.numpy()


def report(scores: dict[str, np.ndarray]) -> str:
    """Return a table of each graph's scores, [N, 2] each, and of the differences to the graph before it."""
    rows, before = [], None
    for name, values in scores.items():
        nats, right = values.mean(0)
        row = [name, f"{nats:.3f}", f"{right:.1f}"]
        if before is not None:
            mean, low, high, p, detectable = (numbers[1] for numbers in paired_difference(values[None], before[None]))
            row += [f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]", f"{detectable:.1f}", format_p(p)]
        rows.append(row + [""] * (6 - len(row)))
        before = values
    return table(["graph", "nats per query", "right turn, %", "to the row above", "detectable", "p"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path, help="training queries of QMSum with gold spans")
    parser.add_argument("val", type=Path, help="validation queries")
    options = parser.parse_args(arguments)
    try:
        queries = read_queries(MeetingTurns(options.train, options.val))
    except (UserError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    print(f"{len(queries.closest)} queries\n")
    print(report({name: cross_validate(inputs, queries) for name, inputs in queries.inputs.items()}))


if __name__ == "__main__":
    main()
