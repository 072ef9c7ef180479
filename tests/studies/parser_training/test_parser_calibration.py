"""Calibration of a parser's distribution, and its decodings, over a chart parser with random weights."""

import json

import pytest
import torch
from made_up_treebank import made_up_treebank

from datamodules.discourse.distributions import tree_ldd
from datamodules.discourse.parses import nodes_of
from experiments.studies.parser_training import decodings
from experiments.studies.parser_training.calibration import Forecasts, main
from experiments.studies.parser_training.decodings import decoded_trees
from experiments.studies.parser_training.ldd_calibration import LDDCalibration
from lightning_modules.discourse_parser.parser import DiscourseParser
from precis.discourse.score_parser import gold_documents, parsed, request_of


@pytest.fixture(scope="module")
def treebank(tmp_path_factory) -> str:
    return str(made_up_treebank(tmp_path_factory.mktemp("treebank") / "trees.jsonl", documents=6))


@pytest.fixture
def gold(treebank):
    """Documents with gold trees, and their parses by random weights."""
    torch.manual_seed(0)
    parser = DiscourseParser(members=2, hidden_size=8, fit_size=4, dropout=0.0).eval()
    documents = gold_documents(treebank, parser.relations)
    return documents, parsed(parser, [request_of(document) for document in documents], "")


def test_the_tree_variant_is_the_trees_own_distribution(gold):
    documents, parses = gold
    forecasts = Forecasts(parses, documents)
    for number, (found, document) in enumerate(zip(parses, documents)):
        for band, tree in ((forecasts.best(number), found.best_tree()), (forecasts.target(number), document.tree)):
            nodes = nodes_of(tree, found.relations)
            assert torch.equal(band, tree_ldd(nodes, tree.size, len(found.relations), band=found.half_width))


@pytest.mark.parametrize("right, least, most", [(0, 0.5, 1.0), (3, 0.05, 0.95), (6, 0.0, 0.0)])
def test_epsilon_is_the_best_of_a_grid_and_the_prior_the_best_constant(gold, right, least, most):
    documents, parses = gold
    for found, document in list(zip(parses, documents))[:right]:
        found.tree = nodes_of(document.tree, found.relations)
    forecasts = Forecasts(parses, documents)

    def score(values) -> float:
        metric = LDDCalibration()
        for number in range(len(documents)):
            metric.update(values(number), forecasts.target(number))
        return metric.compute()["labelled/brier"].item()

    def mixed(epsilon: float) -> float:
        return score(lambda n: (1 - epsilon) * forecasts.best(n) + epsilon * forecasts.prior.float())

    assert least <= forecasts.epsilon <= most
    best, constant = score(forecasts.smoothed), score(forecasts.constant)
    assert best <= min(mixed(step / 50) for step in range(51)) + 1e-6
    for shift in (-0.01, 0.01):
        assert constant < score(lambda n: (forecasts.constant(n) + shift).clamp(0, 1))  # noqa: B023
    pairs = sum(found.size * (found.size - 1) for found in parses)
    assert forecasts.pairs() == (pairs, pairs)


def test_the_right_branching_parser_is_its_own_baseline(treebank, tmp_path, capsys):
    options = ["--out", str(tmp_path / "scores.json"), "--resamples", "20", "--rows", "nucleus", "--band", "2"]
    main([treebank, "--parser", "right_branching", *options])
    printed = capsys.readouterr().out
    assert "further apart than --band" in printed and "| 1-best tree, smoothed | " in printed
    result = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    for other in ("1-best tree", "right-branching"):
        for name in ("labelled/ece", "summed/ece_mass", "labelled/brier"):
            assert result["systems"][other][name] == result["systems"]["LDD"][name]
    bins = result["systems"]["LDD"]["summed/reliability"]
    assert sum(count for count, _, _ in bins) == result["pairs"] and result["pairs_too_far_apart"] > 0


def test_decodings_of_one_scorer_and_of_several(treebank, tmp_path, capsys):
    torch.manual_seed(0)
    small = {"hidden_size": 8, "fit_size": 2}
    parser = DiscourseParser(**small, members=2).eval()
    documents = gold_documents(treebank, parser.relations)
    before = parser.reader
    trees = decoded_trees(parser, documents)
    assert list(trees) == ["mbr", "mbr_spans", "scorer 1 of 2, mbr", "scorer 1 of 2, cky"] and parser.reader is before
    alone = DiscourseParser(**small, members=1, decoding="cky").eval()
    found = decoded_trees(alone, documents)
    own = [one.best_tree() for one in parsed(alone, [request_of(document) for document in documents], "")]
    assert found["cky"] == own and len(found["mbr"]) == 6
    assert len(nodes_of(found["mbr"][0], alone.relations)) == len(documents[0].edus) - 1
    parser.save(tmp_path / "parser")
    decodings.main([treebank, "--parser", str(tmp_path / "parser")])
    assert "| scorer 1 of 2, cky | " in capsys.readouterr().out
