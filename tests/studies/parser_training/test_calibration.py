"""Calibration of a distribution against NumPy, and of a parser with random weights; its decodings."""

import json
import random

import numpy as np
import pytest
import torch
from made_up_parses import random_tree, to_band
from made_up_treebank import made_up_treebank

from datamodules.discourse.distributions import tree_ldd
from datamodules.discourse.parses import nodes_of
from experiments.studies.parser_training import decodings
from experiments.studies.parser_training.calibration import Forecasts, main
from experiments.studies.parser_training.decodings import decoded_trees
from experiments.studies.parser_training.ldd_calibration import KINDS, LDDCalibration
from lightning_modules.discourse_parser.parser import DiscourseParser
from precis.discourse.score_parser import gold_documents, parsed, request_of


def made_up(size: int, relations: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A random dense LDD whose directions sum to at most 1, many values near zero, and that of a random tree."""
    p = torch.rand(size, size, relations, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 6
    p = p / p.sum(-1, keepdim=True).clamp(min=1)
    gold = tree_ldd(random_tree(size, relations, random.Random(seed)), size, relations, band=size - 1)
    offset = torch.arange(size) - torch.arange(size)[:, None] + size - 1
    return p, gold[torch.arange(size)[:, None], offset].double()


def cells_of(p: torch.Tensor, gold: torch.Tensor, kind: str, width: int | None = None) -> np.ndarray:
    """Return probability and gold value of all cells, [C, 2]."""
    distance = (torch.arange(len(p)) - torch.arange(len(p))[:, None]).abs()
    pairs = torch.stack([p, gold], -1)[(distance > 0) & (distance <= (width or len(p)))]
    return (pairs.flatten(0, 1) if kind == "labelled" else pairs.sum(1)).numpy()


def calibration_error(cells: np.ndarray, bins: int) -> float:
    bin_of = np.minimum(cells[:, 0] * bins, bins - 1).astype(int)
    return np.abs(np.bincount(bin_of, cells @ [1, -1])).sum() / len(cells)


@pytest.mark.parametrize("bins", [1, 10, 15])
@pytest.mark.parametrize("width", [None, 3])
def test_equals_numpy_and_parts_merge(bins, width):
    metric, merged = LDDCalibration(bins), LDDCalibration(bins)
    documents = [made_up(size, 4, size) for size in (2, 7, 12)]
    for p, gold in documents:
        pair, part = (p, gold) if width is None else (to_band(p, width), to_band(gold, width)), LDDCalibration(bins)
        for each in (metric, part):
            each.update(*pair, banded=width is not None)
        for name in ("levels", "squares", "pairs"):
            setattr(merged, name, getattr(merged, name) + getattr(part, name))
    scores = metric.compute()
    torch.testing.assert_close(merged.compute(), scores, rtol=0, atol=1e-12)
    for kind in KINDS:
        cells = np.concatenate([cells_of(p, gold, kind, width) for p, gold in documents])
        probable = cells[cells[:, 0] >= 0.01]
        assert scores[f"{kind}/ece"].item() == pytest.approx(calibration_error(cells, bins), abs=1e-12)
        assert scores[f"{kind}/ece_probable"].item() == pytest.approx(calibration_error(probable, bins), abs=1e-12)
        brier = ((cells @ [1, -1]) ** 2).mean() * (4 if kind == "labelled" else 1)
        assert scores[f"{kind}/brier"].item() == pytest.approx(brier, abs=1e-12)
        assert metric.reliability(kind)[:, 0].sum() == len(cells)
        assert metric.reliability(kind, 0.01, mass=True)[:, 0].sum() == len(probable)
    squares, brier = metric.per_document(), scores["labelled/brier"].item()
    assert squares.shape == (3, 3) and (squares[:, 0].sum() / squares[:, 2].sum()).item() == pytest.approx(brier)
    assert width is not None or squares[:, 2].tolist() == [2, 42, 132]


def test_bins_of_like_number():
    generator = torch.Generator().manual_seed(3)
    p = torch.rand(40, 40, 1, generator=generator, dtype=torch.float64) ** 3
    gold = (torch.rand(40, 40, 1, generator=generator) < 0.3).double()
    metric = LDDCalibration(8)
    metric.update(p, gold, banded=False)
    cells = np.array(sorted(cells_of(p, gold, "labelled").tolist()))
    many = len(cells) // 8
    expected = np.abs(np.add.reduceat(cells @ [1, -1], range(0, len(cells), many))).sum() / len(cells)
    # levels of p are finite: a bin's ends may be some cells off
    assert metric.compute()["labelled/ece_mass"].item() == pytest.approx(expected, abs=2e-3)
    table = metric.reliability("labelled", mass=True)
    assert ((table[:, 0] - many).abs() <= 12).all() and (table[1:, 1] > table[:-1, 1]).all()


def test_equal_values_stay_in_one_bin():
    metric, half = LDDCalibration(10), torch.full((5, 5, 1), 0.5)
    gold = torch.zeros(5, 5, 1)
    gold[:2] = 1  # 8 of 20 pairs
    metric.update(half, gold, banded=False)
    scores = metric.compute()
    for name in ("ece", "ece_mass", "ece_probable", "ece_mass_probable"):
        assert scores[f"labelled/{name}"].item() == pytest.approx(0.1)
    assert scores["labelled/brier"].item() == pytest.approx(0.25)
    assert (metric.reliability("labelled", mass=True)[:, 0] > 0).sum() == 1


@pytest.fixture(scope="module")
def treebank(tmp_path_factory) -> str:
    return str(made_up_treebank(tmp_path_factory.mktemp("treebank") / "trees.jsonl"))


@pytest.fixture
def gold(treebank):
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

    assert least <= forecasts.epsilon <= most
    best, constant, prior = score(forecasts.smoothed), score(forecasts.constant), forecasts.prior.float()
    for step in range(51):
        assert best <= score(lambda n, e=step / 50: (1 - e) * forecasts.best(n) + e * prior) + 1e-6
    for shift in (-0.01, 0.01):
        assert constant < score(lambda n, shift=shift: (forecasts.constant(n) + shift).clamp(0, 1))
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
