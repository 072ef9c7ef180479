"""`precis score-parser`: from a treebank to tables, over a chart parser with random weights."""

import json
import math
import random
from dataclasses import replace

import pytest
import torch
from conftest import write_lines
from made_up_treebank import made_up_treebank

from datamodules.discourse.parses import nodes_of
from datamodules.discourse.relations import GUM
from datamodules.discourse.trees import Span, Tree
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.metrics.calibration import LDDCalibration
from lightning_modules.metrics.parseval import parseval_counts, parseval_scores
from precis.discourse.parser_scores import PLACES, Forecasts, by_genre, by_place, edu_units, intervals, matches
from precis.discourse.score_parser import gold_documents, name_of, parsed, request_of
from precis.statistics.statistics import resampled_sums

LINES = ["The otter slept", "because it rained.", "A heron left", "when it was late.", "It sang.", "Nobody heard it."]
SMALL = {"members": 2, "hidden_size": 8, "fit_size": 4, "dropout": 0.0}


def nested(start: int, end: int, rng: random.Random) -> list | int:
    """A random tree in fine relations, binary but for some multinuclear nodes of three children."""
    if start == end:
        return start
    if end - start >= 2 and rng.random() < 0.2:
        return ["NN", "joint-list", start, nested(start + 1, end - 1, rng), end]
    split = rng.randrange(start, end)
    label = rng.choice([["NS", "causal-cause"], ["SN", "context-background"], ["NN", "joint-list"]])
    return [*label, nested(start, split, rng), nested(split + 1, end, rng)]


def record(number: int) -> dict:
    """A document of two paragraphs, four sentences and six EDUs; the last one has a single EDU."""
    lines = LINES if number < 5 else LINES[:1]
    edus, text = [], ""
    for line in lines:
        edus.append([len(text), len(text) + len(line)])
        text += line + ("\n" if line == "when it was late." else " ")
    if len(lines) == 1:
        sentences = paragraphs = [edus[0]]
    else:
        sentences = [[edus[0][0], edus[1][1]], [edus[2][0], edus[3][1]], edus[4], edus[5]]
        paragraphs = [[edus[0][0], edus[3][1]], [edus[4][0], edus[5][1]]]
    tree = nested(0, len(lines) - 1, random.Random(number))
    genre = "news" if number % 2 else "fiction"
    return {
        "id": f"d{number}", "text": text, "edus": edus, "sentences": sentences, "paragraphs": paragraphs,
        "tree": tree, "genre": genre,
    }  # fmt: skip


@pytest.fixture(scope="module")
def treebank(tmp_path_factory) -> str:
    return str(write_lines(tmp_path_factory.mktemp("treebank") / "made_up.jsonl", [record(i) for i in range(6)]))


@pytest.fixture(scope="module")
def parser() -> DiscourseParser:
    torch.manual_seed(0)
    return DiscourseParser(**SMALL).eval()


@pytest.fixture(scope="module")
def weights(tmp_path_factory, parser) -> str:
    folder = tmp_path_factory.mktemp("parser") / "random"
    parser.save(folder)
    return str(folder)


def test_the_tree_variant_is_the_trees_own_distribution(treebank, parser):
    """By the pairs' lowest common ancestors, in a loop."""
    documents = gold_documents(treebank, parser.relations)
    parses = parsed(parser, [request_of(document) for document in documents], "")
    forecasts = Forecasts(parses, documents)
    for number, (found, document) in enumerate(zip(parses, documents)):
        for band, tree in ((forecasts.best(number), found.best_tree()), (forecasts.target(number), document.tree)):
            expected = torch.zeros_like(band)
            for a in range(tree.size):
                for b in range(tree.size):
                    holding = [s for s in tree.spans() if s.start <= min(a, b) and max(a, b) <= s.end and a != b]
                    if holding:
                        lowest = min(holding, key=lambda span: span.end - span.start)
                        if lowest.nuclearity[a > lowest.split] == "N":
                            relation = found.relations.index(lowest.relation)
                            expected[a, found.half_width + b - a, relation] = 1
            assert torch.equal(band, expected)


@pytest.mark.parametrize("right, least, most", [(0, 0.5, 1.0), (3, 0.05, 0.95), (6, 0.0, 0.0)])
def test_epsilon_is_the_best_of_a_grid_and_the_prior_the_best_constant(treebank, parser, right, least, most):
    documents = gold_documents(treebank, parser.relations)
    parses = parsed(parser, [request_of(document) for document in documents], "")
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
    assert forecasts.pairs() == (5 * 30, 5 * 30)


# Counts


def test_places_and_genres_sum_to_all_nodes(treebank, parser):
    documents = gold_documents(treebank, parser.relations)
    trees = [found.best_tree() for found in parsed(parser, [request_of(document) for document in documents], "")]
    for tree, document in zip(trees, documents):
        spans = tree.spans(), document.tree.spans()
        assert torch.equal(matches(*spans), parseval_counts(*spans))
    assert sum(row["nodes"] for row in by_place(trees, documents, 10).values()) == 25
    itself = by_place([document.tree for document in documents], documents, 10)
    assert set(itself) <= set(PLACES) and all(row["F"] == (100, 100, 100) for row in itself.values())
    genres = by_genre(trees, documents)
    assert {genre: row["documents"] for genre, row in genres.items()} == {"fiction": 3, "news": 3}


def test_places_by_hand(treebank):
    (document, *_) = gold_documents(treebank, GUM.coarse)
    assert edu_units(document) == ([1, 1, 2, 2, 3, 4], [1, 1, 1, 1, 2, 2])
    spans = [
        Span(0, 3, 5, "NN", "joint"), Span(0, 1, 3, "NS", "causal"), Span(0, 0, 1, "NS", "causal"),
        Span(2, 2, 3, "NS", "mode"), Span(4, 4, 5, "NS", "causal"),
    ]  # fmt: skip
    gold = Tree.from_spans(spans, 6)
    other = Tree.from_spans([*spans[:2], *(s._replace(nuclearity="SN", relation="mode") for s in spans[2:])], 6)
    table = by_place([other], [replace(document, tree=gold)], 10)
    assert {place: row["nodes"] for place, row in table.items()} == dict(zip(PLACES, (2, 2, 1)))
    values = {place: [row[level].mean for level in "SNRF"] for place, row in table.items()}
    assert values == {
        PLACES[0]: [100, 0, 50, 0], PLACES[1]: [100, 50, 50, 50], PLACES[2]: [100, 100, 100, 100]
    }  # fmt: skip


def test_intervals_are_quantiles_of_resampled_scores():
    rng = random.Random(0)
    counts = torch.tensor([[rng.randrange(9) for _ in range(4)] + [10, 12] for _ in range(12)])
    found = intervals(counts, parseval_scores, 500)
    for column, interval in enumerate(found):
        sums = resampled_sums(counts.double().numpy(), 500, 0)
        drawn = sorted(200 * row[column] / (row[4] + row[5]) for row in sums)
        assert interval.mean == pytest.approx(200 * counts[:, column].sum().item() / (12 * 22))
        assert drawn[11] <= interval.low <= drawn[13] and drawn[486] <= interval.high <= drawn[488]
    assert all(math.isnan(value) for value in intervals(torch.zeros(3, 6), parseval_scores, 10)[0])


# The command


def test_scores_of_a_parser(precis, treebank, weights, tmp_path):
    out = tmp_path / "scores"
    done = precis("score-parser", treebank, "--parser", weights, "--out", out, "--resamples", 50)
    assert done.status == 0, done.err
    for text in ("original Parseval, gold EDUs | right-branching", "RST-Parseval, end to end", "EDU F1", "smoothed |"):
        assert text in done.out
    assert (out / "scores.md").read_text().strip() == done.out.strip()
    result = json.loads((out / "scores.json").read_text())
    assert result["documents"] == 6 and result["edus"] == 31 and result["calibration"]["pairs"] == 150
    assert set(result["gold_edus"]) == {"random", "right-branching"}
    scores = {name: row["labelled/brier"]["value"] for name, row in result["calibration"]["systems"].items()}
    assert scores["1-best tree, smoothed"] <= min(scores["1-best tree"], scores["prior of the relations"]) + 1e-6
    segmentation = result["end_to_end"]["segmentation_f1"]
    assert 0 < segmentation["low"] <= segmentation["value"] <= segmentation["high"] <= 100
    bins = result["calibration"]["systems"]["LDD"]["summed/reliability"]
    assert sum(count for count, _, _ in bins) == 150


def test_names(weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right-branching").mkdir()
    assert name_of("default") == "default" and name_of(weights) == "random"
    assert name_of("right-branching") == "right-branching (parser)"


@pytest.mark.integration
def test_a_treebank_with_relations_of_its_own(precis, tmp_path):
    """Train, score and parse with relation names that no inventory of the suite has."""
    names = {"causal-cause": "because", "adversative-concession": "yet", "contingency-condition": "if"}
    rows = made_up_treebank(tmp_path / "gum.jsonl").read_text(encoding="utf-8")
    for old, new in {**names, "joint-list": "and"}.items():
        rows = rows.replace(old, new)
    own = tmp_path / "own.jsonl"
    own.write_text(rows, encoding="utf-8")
    arguments = ["--model=DiscourseParser", "--model.hidden_size=8", "--data=TreebankData"]
    arguments += [f"--data.train={own}", f"--data.val={own}", "--trainer.max_steps=1", "--trainer.accelerator=cpu"]
    arguments += ["--checkpoint.monitor=val/loss", "--checkpoint.mode=min", "--wandb=off"]
    arguments += [f"--run_dir={tmp_path / 'run'}"]
    done = precis("fit", *arguments)
    assert done.status == 1 and "is not in the inventory GUM; choose that of its treebank (--model.inv" in done.err
    done = precis("fit", *arguments, "--model.inventory={hypotactic: [because, yet, if], and: []}")
    assert done.status == 0, done.err
    done = precis("score-parser", own, "--parser", tmp_path / "run", "--out", tmp_path / "scores", "--resamples", 10)
    assert done.status == 0, done.err
    result = json.loads((tmp_path / "scores" / "scores.json").read_text(encoding="utf-8"))
    assert result["relations"] == 2
    text = "The otter swam, because it rained. The heron watched, and nobody else did. Then they left."
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    done = precis("parse", "--parser", tmp_path / "run", "--show", tmp_path / "a.txt")
    assert done.status == 0 and ("hypotactic" in done.out or " and" in done.out.replace(text, "")), done.err


def test_the_right_branching_parser_is_its_own_baseline(precis, treebank, tmp_path):
    out = tmp_path / "scores"
    options = ("--out", out, "--resamples", 20, "--rows", "nucleus", "--band", 2)
    done = precis("score-parser", treebank, "--parser", "right_branching", *options)
    assert done.status == 0, done.err
    assert "further apart than --band" in done.out
    result = json.loads((out / "scores.json").read_text())
    assert result["gold_edus"]["right_branching"] == result["gold_edus"]["right-branching"]
    assert result["places"]["right_branching"] == result["places"]["right-branching"]
    systems = result["calibration"]["systems"]
    for other in ("1-best tree", "right-branching"):
        for name in ("labelled/ece", "summed/ece_mass", "labelled/brier"):
            assert systems[other][name] == systems["LDD"][name]
    assert result["calibration"]["pairs_too_far_apart"] == 5 * 12


@pytest.mark.parametrize(
    "change, options, problem",
    [
        ({"tree": None}, [], "made_up.jsonl: d1 has no tree; a parser is scored on gold trees"),
        ({"tree": ["NS", "odd", 0, 1], "edus": [[0, 15], [16, 34]], "text": " ".join(LINES[:2])}, [], "d1, EDUs 0"),
        ({}, ["--parser", "nobody"], "no parser 'nobody'"),
        ({}, ["--band", 0], "band must be above 0"),
        ({}, ["--out", __file__], "a file; name a folder"),
    ],
)
def test_wrong_input_in_one_line(precis, tmp_path, change, options, problem):
    row = record(1) | change
    if "text" in change:
        row["sentences"], row["paragraphs"] = [], []
    if row["tree"] is None:
        del row["tree"]
    path = write_lines(tmp_path / "made_up.jsonl", [record(0), row])
    done = precis("score-parser", path, "--parser", "right_branching", *options)
    assert done.status and problem in done.err.splitlines()[-1], done
    done = precis("score-parser", tmp_path / "none.jsonl", "--parser", "right_branching")
    assert done.status == 1 and "no such file or folder" in done.err
