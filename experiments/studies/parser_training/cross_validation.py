"""Cross-validate the training recipe of a discourse parser, and compare it with another one:

    python -m experiments.studies.parser_training.cross_validation experiments/configs/discourse_parser/minilm.yaml \\
        gum/train.jsonl.gz gum/val.jsonl.gz --out runs/cv/minilm
    python -m experiments.studies.parser_training.cross_validation \\
        experiments/configs/discourse_parser/finetuned.yaml \\
        gum/train.jsonl.gz gum/val.jsonl.gz --out runs/cv/finetuned --baseline runs/cv/minilm

For each fold of the documents, a parser is trained on the other folds; then it parses the fold with gold EDUs. The
scores are over all documents, with bootstrap intervals; differences to the baseline are over the same documents (a
paired bootstrap). Trained folds and their scores are kept in the folder, so that an interrupted run continues.

Scores: original Parseval (S, N, R, F); Brier score of the labelled discourse distribution (LDD) over the pairs of EDUs
within its band; log-likelihood of the labelled gold tree for each node, in nats.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from datamodules.atomic_write import atomic_write
from datamodules.discourse.distributions import tree_ldd
from datamodules.discourse.features import ParserBatch
from datamodules.discourse.parses import nodes_of
from datamodules.documents import UserError
from datamodules.text.lines import counted
from experiments.studies.parser_training.folds import FoldData, Recipe, add_fold_options, note, read_recipe, train_fold
from experiments.studies.parser_training.ldd_calibration import LDDCalibration
from lightning_modules.discourse_parser.chart import log_partition
from lightning_modules.discourse_parser.parser import DiscourseParser, layout_of
from lightning_modules.discourse_parser.span_scorer import Units, node_scores
from lightning_modules.metrics.parseval import LEVELS, parseval_counts, parseval_scores
from precis.discourse.score_parser import intervals, parsed, request_of, to_json_values
from precis.files.data_files import read_json

SCORES = (*LEVELS, "brier", "log_likelihood")


@torch.no_grad()
def log_likelihood(model: DiscourseParser, batch: ParserBatch) -> float:
    """Return the log-probability of the labelled gold tree of a text under the mixture of scorers, in nats.

    Args:
        model: parser in eval mode.
        batch: one text, with its gold nodes.
    """
    vectors, layout = model.vectors(batch), layout_of(batch)
    document, start, split, end, gold = batch.nodes.unbind(1)
    members = []
    for scorer in model.scorers:
        tables = scorer.tables(vectors, layout)
        potentials = scorer.potentials(tables, layout, Units.edus(layout))
        tree = node_scores(potentials, document, start, split, end).sum() - log_partition(potentials, layout.sizes)[0]
        logits = scorer.class_logits(tables, layout, document, start, split, end) / model.reader.temperature
        members.append(tree + logits.log_softmax(-1).gather(1, gold.unsqueeze(1)).sum())
    return float(torch.stack(members).double().logsumexp(0) - torch.tensor(len(members)).double().log())


def score_fold(model: DiscourseParser, data: FoldData) -> dict[str, list]:
    """Return ids and sums of the held-out documents with at least two EDUs.

    `sums` has, for each document, the six counts of original Parseval, the squared errors of the LDD and its number of
    pairs, and the log-likelihood of the gold tree and its number of nodes.
    """
    documents = [replace(d, tree=d.tree.binary()) for d in data.documents("held_out") if len(d.edus) > 1]
    parses = parsed(model, [request_of(document) for document in documents], "held-out documents")
    calibration, rows = LDDCalibration(), []
    for document, parse in zip(documents, parses):
        nodes = nodes_of(document.tree, model.relations)
        target = tree_ldd(nodes, parse.size, len(model.relations), model.rows, parse.half_width)
        calibration.update(parse.band(parse.half_width), target)
        squares, _, pairs = calibration.per_document()[-1].tolist()
        counts = parseval_counts(parse.best_tree().spans(), document.tree.spans()).tolist()
        likelihood = log_likelihood(model, ParserBatch.of([data.encode(document, model.subwords)]))
        rows.append([*counts, squares, pairs, likelihood, parse.size - 1])
    return {"ids": [document.id for document in documents], "sums": rows}


def scores_of(sums: Tensor) -> Tensor:
    """Return S, N, R, F, Brier score and log-likelihood per node: [..., 10] -> [..., 6]."""
    ratios = sums[..., 6::2] / sums[..., 7::2]
    return torch.cat([parseval_scores(sums[..., :6]), ratios], -1)


def differences(sums: Tensor) -> Tensor:
    """Return the scores of the first ten sums minus those of the last ten: [..., 20] -> [..., 6]."""
    return scores_of(sums[..., :10]) - scores_of(sums[..., 10:])


def check_folder(options: argparse.Namespace, recipe: Recipe) -> None:
    """Record what is cross-validated in the folder.

    Raises:
        UserError: if the folder has the folds of another recipe, treebank, number of folds or seed.
    """
    treebanks = [str(path.resolve()) for path in options.treebanks]
    settings = {**recipe, "treebanks": treebanks, "folds": options.folds, "seed": options.seed}
    # as they are read from the file: dataclasses as objects, paths as texts
    as_json = json.dumps(settings, indent=1, default=lambda value: vars(value) if is_dataclass(value) else str(value))
    settings = json.loads(as_json)
    path = options.out / "settings.json"
    options.out.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        atomic_write(path, as_json + "\n")
    recorded = read_json(path)
    if changed := [key for key in settings if recorded.get(key) != settings[key]]:
        raise UserError(f"{path}: the folder has folds with another {changed[0]!r}; choose another folder")


def folds_of(options: argparse.Namespace, recipe: Recipe) -> dict[str, list[float]]:
    """Return the sums of each document by id; train and score the missing folds."""
    sums: dict[str, list[float]] = {}
    for fold in range(options.folds):
        path = options.out / f"fold-{fold}.json"
        if not path.is_file():
            data = FoldData(fold, options.folds, options.treebanks, **recipe["data"])
            note(f"fold {fold + 1} of {options.folds}: training")
            model = train_fold(recipe, data, options.out / f"fold-{fold}", options.seed)
            note(f"fold {fold + 1} of {options.folds}: parsing held-out documents")
            atomic_write(path, json.dumps(score_fold(model, data)))
        sums |= read_sums(path)
    return sums


def read_sums(path: Path) -> dict[str, list[float]]:
    """Return the sums of a fold by document."""
    scores = read_json(path, ids=list, sums=list)
    return dict(zip(scores["ids"], scores["sums"], strict=True))


def compare(sums: dict[str, list[float]], baseline: Path | None) -> dict[str, Any]:
    """Return the scores with intervals, and the differences to a baseline.

    Args:
        sums: those of each document.
        baseline: folder of another cross-validation over the same documents.

    Raises:
        UserError: if the baseline has other documents.
    """
    table = torch.tensor(list(sums.values()), dtype=torch.float64)
    result: dict[str, Any] = {"documents": len(sums)}
    result["scores"] = dict(zip(SCORES, intervals(table, scores_of)))
    if baseline is None:
        return result
    others: dict[str, list[float]] = {}
    for path in sorted(baseline.glob("fold-*.json")):
        others |= read_sums(path)
    if others.keys() != sums.keys():
        documents = counted(len(others.keys() ^ sums.keys()), "document")
        raise UserError(f"{baseline}: {documents} in only one of both cross-validations")
    paired = torch.cat([table, torch.tensor([others[name] for name in sums], dtype=torch.float64)], 1)
    result["baseline"] = dict(zip(SCORES, intervals(paired[:, 10:], scores_of)))
    result["difference"] = dict(zip(SCORES, intervals(paired, differences)))
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command: print the result as JSON, and write it to `scores.json` in the folder."""
    program = "python -m experiments.studies.parser_training.cross_validation"
    parser = argparse.ArgumentParser(prog=program, allow_abbrev=False)
    add_fold_options(parser, folds=5)
    parser.add_argument("treebanks", type=Path, nargs="+", help="treebanks whose documents are split into folds")
    parser.add_argument("--baseline", type=Path, help="folder of another cross-validation over the same documents")
    options = parser.parse_args(arguments)
    try:
        recipe = read_recipe(options.recipe)
        check_folder(options, recipe)
        result = compare(folds_of(options, recipe), options.baseline)
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    text = json.dumps(to_json_values(result), indent=1)
    (options.out / "scores.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
