"""Folds of treebanks: a parser's recipe in cross-validation, against another one, and its class temperature."""

import json
import shutil
from dataclasses import replace
from itertools import permutations

import pytest
import torch
from conftest import write, write_lines
from made_up_treebank import made_up_row

from datamodules.discourse.distributions import tree_ldd
from datamodules.discourse.features import ParserBatch
from datamodules.discourse.parses import nodes_of
from experiments.studies.parser_training import class_temperature, cross_validation
from experiments.studies.parser_training.class_temperature import squared_errors
from experiments.studies.parser_training.cross_validation import SCORES, differences, log_likelihood, score_fold
from experiments.studies.parser_training.folds import FoldData
from lightning_modules.discourse_parser.parser import DiscourseParser, layout_of
from lightning_modules.discourse_parser.span_scorer import Units, node_scores
from lightning_modules.metrics.parseval import Parseval
from precis.discourse.score_parser import request_of
from tests.lightning_modules.discourse_parser.brute_trees import trees

pytestmark = pytest.mark.integration

TINY = {"hidden_size": 8, "fit_size": 2}


@pytest.fixture(scope="module")
def treebanks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("treebank")
    rows = [made_up_row(number, 3 + number % 3) for number in range(7)]
    return [write_lines(folder / "a.jsonl", rows[:4]), write_lines(folder / "b.jsonl", rows[4:])]


def model_and_fold(treebanks, fold: int, **options) -> tuple[DiscourseParser, FoldData]:
    torch.manual_seed(0)
    return DiscourseParser(**TINY, **options).eval(), FoldData(fold, 2, treebanks)


def recipe(path, precision="bf16-mixed", gradient_clip_val=None, **options):
    config = {
        "model": {"class_path": "lightning_modules.DiscourseParser", "init_args": TINY | options},
        "data": {"class_path": "datamodules.TreebankData", "init_args": {"train": "x", "val": "y", "batch_size": 4}},
        "trainer": {"max_epochs": 1, "precision": precision, "gradient_clip_val": gradient_clip_val},
        "seed_everything": 1,
    }
    return str(write(path, config))


def node_columns(nodes):
    return [torch.zeros(len(nodes), dtype=torch.long), *torch.tensor(nodes).unbind(1)]


def errors_by_loop(model, parse, tree, half_width: int) -> tuple[float, int]:
    """Return the squared errors of a parse at pairs at most a distance apart, and the number of these pairs."""
    gold = tree_ldd(nodes_of(tree, model.relations), parse.size, len(model.relations))
    total, pairs = 0.0, 0
    for a, b in permutations(range(parse.size), 2):
        if abs(a - b) <= half_width:
            errors = parse.band(half_width)[a, half_width + b - a] - gold[a, parse.size - 1 + b - a]
            total, pairs = total + errors.square().sum().item(), pairs + 1
    return total, pairs


@torch.no_grad()
def test_the_log_likelihood_equals_a_sum_over_all_trees(treebanks):
    model, data = model_and_fold(treebanks, 0, members=2, class_temperature=0.7)
    encoded = [data.encode(document, None) for document in data.documents("held_out")]
    text = next(text for text in encoded if 3 <= text.size < 8)
    batch = ParserBatch.of([text])
    layout = layout_of(batch)
    gold = [tuple(node[:3]) for node in text.nodes.tolist()]
    probability = 0.0
    for scorer in model.scorers:
        tables = scorer.tables(model.vectors(batch), layout)
        potentials = scorer.potentials(tables, layout, Units.edus(layout))
        weights = {
            frozenset(nodes): node_scores(potentials, *node_columns(nodes)).sum().double().exp()
            for nodes in trees(0, text.size - 1)
        }
        labels = (scorer.class_logits(tables, layout, *node_columns(gold)) / 0.7).softmax(-1)
        of_gold = labels[torch.arange(len(gold)), text.nodes[:, 3]].double().prod()
        probability += weights[frozenset(gold)] / sum(weights.values()) * of_gold / 2
    assert log_likelihood(model, batch) == pytest.approx(probability.log().item(), rel=1e-4)


def test_sums_give_the_scores_of_the_metrics(treebanks):
    """Parseval and Brier score equal those of the parses; a difference of two equal recipes is 0."""
    model, data = model_and_fold(treebanks, 1)
    fold = score_fold(model, data)
    parseval, squares = Parseval(), []
    documents = data.documents("held_out")
    assert fold["ids"] == [document.id for document in documents]
    for document in documents:
        tree = document.tree.binary()
        parse = model.parse(request_of(document))
        parseval.update(parse.best_tree().spans(), tree.spans())
        squares.append(errors_by_loop(model, parse, tree, parse.half_width))
    sums = torch.tensor(fold["sums"], dtype=torch.float64)
    scores = dict(zip(SCORES, cross_validation.scores_of(sums.sum(0)).tolist()))
    for level in "SNRF":
        assert scores[level] == pytest.approx(parseval.compute()[f"original_parseval/{level}"].item())
    errors, pairs = map(sum, zip(*squares))
    assert pairs == sum(len(d.edus) * (len(d.edus) - 1) for d in documents)
    assert scores["brier"] == pytest.approx(errors / pairs, rel=1e-4)
    assert not differences(torch.cat([sums, sums], 1)).any()


def test_the_command_continues_compares_and_refuses(treebanks, tmp_path, capsys):
    one, other = recipe(tmp_path / "one.yaml"), recipe(tmp_path / "other.yaml", dropout=0.1)
    paths = [str(path) for path in treebanks]

    def run(recipe_path: str, paths: list[str], out: str, *options: str) -> dict:
        cross_validation.main([recipe_path, *paths, "--out", str(tmp_path / out), "--folds", "2", *options])
        return json.loads(capsys.readouterr().out)

    first = run(one, paths, "one")
    assert first["documents"] == 7 and set(first["scores"]) == set(SCORES)
    # a run that was killed after the first fold trains the second one alone
    weights = [tmp_path / "one" / f"fold-{fold}" / "model.safetensors" for fold in range(2)]
    before = weights[0].stat().st_mtime_ns
    (tmp_path / "one" / "fold-1.json").unlink()
    shutil.rmtree(weights[1].parent)
    assert run(one, paths, "one") == first and weights[0].stat().st_mtime_ns == before
    second = run(other, paths, "other", "--baseline", str(tmp_path / "one"))
    for score in SCORES:
        expected = second["scores"][score]["value"] - first["scores"][score]["value"]
        assert second["difference"][score]["value"] == pytest.approx(expected)
        assert second["baseline"][score] == first["scores"][score]
    for arguments, message in (
        ((other, paths, "one"), "folds with another 'model'; choose another folder"),
        ((one, paths[:1] * 2, "twice"), "the document 'made-up-0' is not the first with this id"),
    ):
        with pytest.raises(SystemExit, match=message):
            run(*arguments)


def test_folds_hold_out_each_training_document_once(treebanks):
    options = {"treebanks": treebanks, "licences": ["CC BY 4.0"]}
    folds = [FoldData(fold, 2, **options) for fold in range(2)]
    parts = [[{document.id for document in data.documents(split)} for split in ("train", "held_out")] for data in folds]
    for rest, held_out in parts:
        assert rest and held_out and not rest & held_out
        assert rest | held_out == {f"made-up-{n}" for n in (1, 2, 4, 5)}  # the others may not be used
    assert parts[0][1] == parts[1][0] and parts[1][1] == parts[0][0]


def test_the_command_fits_scores_and_uses_trained_folds_again(treebanks, tmp_path, capsys):
    path, out = recipe(tmp_path / "recipe.yaml", precision="32-true", gradient_clip_val=1.0), tmp_path / "folds"
    arguments = [path, str(treebanks[0].parent), "--out", str(out), "--folds", "2", "--grid", "0.6"]
    class_temperature.main(arguments)
    result = json.loads(capsys.readouterr().out)
    assert result == json.loads((out / "temperature.json").read_text())
    scores, numbers = result["scores"], (result["documents"], result["epochs"], len(result["of_other_folds"]))
    assert set(scores) == {"0.6", "1.0"} and scores[str(result["temperature"])] == min(scores.values())
    assert numbers == (7, 1, 2)
    # the weights alone decide, and a parser that takes the temperature parses with it
    weights = sorted(out.glob("*/model.safetensors"))
    before = [file.stat().st_mtime_ns for file in weights]
    class_temperature.main(arguments)
    assert json.loads(capsys.readouterr().out) == result
    assert [file.stat().st_mtime_ns for file in weights] == before and len(weights) == 2
    one, other = (DiscourseParser.load(out / "fold-0", class_temperature=value) for value in (1.0, 0.5))
    assert one.fingerprint != other.fingerprint
    other.save(tmp_path / "saved")
    assert DiscourseParser.load(tmp_path / "saved").reader.temperature == 0.5


def test_squared_errors_equal_those_of_the_parses_that_the_parser_gives(treebanks):
    model, data = model_and_fold(treebanks, 0, members=2)
    document = data.documents("held_out")[0]
    document = replace(document, tree=document.tree.binary())
    *errors, pairs = squared_errors(model, document, [0.5, 1.0], max_half_width=2).tolist()
    assert errors[0] != errors[1]
    for error, temperature in zip(errors, (0.5, 1.0), strict=True):
        model.reader.temperature, model.band = temperature, 2
        total, expected_pairs = errors_by_loop(model, model.parse(request_of(document)), document.tree, 2)
        assert error == pytest.approx(total, rel=0.02)  # parses are kept in one byte a value
        assert pairs == expected_pairs
