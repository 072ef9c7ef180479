"""Planted trees, from which targets follow and without which they cannot be predicted, and parsers that know them."""

import random
from collections import Counter
from itertools import product

import pytest
import torch

from datamodules.corpora.corpus import make_document
from datamodules.corpora.files import Files
from datamodules.corpora.texts import Records
from datamodules.discourse.distributions import tree_ldd
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import Document
from experiments.studies.controls.tasks.oracle_parser import OracleParser
from experiments.studies.controls.tasks.planted_parser import PlantedParser
from experiments.studies.controls.tasks.planted_trees import RELATIONS, PlantedTrees, planted_tree, target_of
from tests.conftest import write_lines

ANIMALS = ["otter", "heron", "badger", "lynx", "marten", "stoat", "vole", "beaver", "falcon", "osprey", "owl", "wren"]


def documents_of(task: str, count: int) -> list[Document]:
    sentences = [f"{stem} sleeps near the mill." for stem in ANIMALS]
    corpus = Records([{"id": "all", "document": [sentences], "summary": "x"}])
    planted = PlantedTrees(task=task, sentences=7, pool=12, train=count, held_out=20, corpus=corpus)
    return [make_document(record) for record in planted.records("train")]


def nodes_by_span(nodes: list[list[int]]):
    return {(start, end): (split, nuclearity, relation) for start, split, end, nuclearity, relation in nodes}


def head(nodes, start=0, end=6):
    """The most nuclear leaf of a span, by recursion."""
    if start == end:
        return start
    split, nuclearity, _ = nodes[start, end]
    return head(nodes, split + 1, end) if nuclearity == 1 else head(nodes, start, split)


@pytest.mark.parametrize("task", ["nucleus", "relation"])
def test_references_follow_from_the_planted_tree(task):
    for document in documents_of(task, 300):
        (sentences,) = document.parts
        assert len(set(sentences)) == 7
        nodes = nodes_by_span(planted_tree(sentences, task).nodes.tolist())
        target = target_of(document)
        if task == "nucleus":
            assert head(nodes, 0, 6) == target
            continue
        ((start, end),) = [span for span, (_, _, relation) in nodes.items() if RELATIONS[relation] == "cause"]
        split, nuclearity, _ = nodes[start, end]
        assert (start, split, target) == (target, target, start) if nuclearity == 1 else split + 1 == end == target
    # text and position say nothing: targets are uniform over positions and over sentences
    documents = documents_of(task, 2000)
    places = Counter(target_of(document) for document in documents)
    assert sum((places[n] - 2000 / 7) ** 2 / (2000 / 7) for n in range(7)) < 22.5  # chi-square, p = 0.001
    chosen = Counter(document.references[0][0] for document in documents)
    assert sum((count - 2000 / 12) ** 2 / (2000 / 12) for count in chosen.values()) < 31.3 and len(chosen) == 12


def parses_of(candidates: int, count: int, **options):
    """Return documents, their planted trees, candidates with their probabilities, and the parser's parses."""
    parser = PlantedParser("nucleus", candidates, **options)
    for document in documents_of("nucleus", count):
        sentences = list(document.parts[0])
        planted = planted_tree(sentences, "nucleus").nodes.tolist()
        trees, weights = parser.distribution(sentences)
        parse = parser.predict_step([ParseRequest.of(document)])[0]
        yield document, planted, [tree.tolist() for tree in trees], weights, parse


@pytest.mark.parametrize("candidates", [1, 3])
def test_the_distribution_is_the_mixture_of_trees_of_which_a_certain_parser_gives_one(candidates):
    for document, planted, trees, weights, parse in parses_of(candidates, count=10):
        expected = torch.zeros(7, 7, 3)
        for tree, weight in zip(trees, weights):
            for start, split, end, nuclearity, relation in tree:
                for a, b in product(range(start, split + 1), range(split + 1, end + 1)):
                    expected[a, b, relation] += weight * (nuclearity in (0, 2))
                    expected[b, a, relation] += weight * (nuclearity in (1, 2))
        torch.testing.assert_close(parse.dense(), expected, atol=0.005, rtol=0)
        torch.testing.assert_close(parse.gamma, expected.sum((1, 2)) / 7, atol=1e-4, rtol=0)
        if candidates == 1:
            assert parse.tree.tolist() == planted and torch.equal(parse.band(6), tree_ldd(parse.tree, 7, 3))
            # the row of the target alone holds every other sentence
            full = (parse.dense().sum(-1) > 0.99).sum(1)
            assert full.argmax() == target_of(document) and full[target_of(document)] == 6 == parse.size - 1


@pytest.mark.parametrize("options", [{}, {"agreement": 0.7, "concentration": 8.0}])
def test_an_uncertain_parser_is_calibrated(options):
    """The mean of the best tree's probability is how often it is the planted one; both to four standard errors."""
    right, said, variance = 0, 0.0, 0.0
    for _, planted, trees, weights, parse in parses_of(4, count=300, **options):
        assert sum(weights) == pytest.approx(1) and len(trees) == 4
        right += parse.tree.tolist() == planted
        said, variance = said + max(weights), variance + max(weights) * (1 - max(weights))
    assert abs(right - said) < 4 * variance**0.5


@pytest.mark.parametrize("agreement", [0.0, 0.7])
def test_candidates_share_their_target_as_often_as_is_said(agreement):
    """Two candidates have the same target with g^2 + (1 - g)^2 / 6, whether or not one of them is the planted tree."""
    with_planted, with_other, count = 0, 0, 400
    for document, planted, trees, _, _ in parses_of(3, count=count, agreement=agreement):
        heads = [head(nodes_by_span(nodes), 0, 6) for nodes in trees]
        target = heads.pop(trees.index(planted))
        assert target == target_of(document)
        with_planted, with_other = with_planted + (target == heads[0]), with_other + (heads[0] == heads[1])
    expected = agreement**2 + (1 - agreement) ** 2 / 6
    margin = 4 * (expected * (1 - expected) / count) ** 0.5
    assert abs(with_planted / count - expected) <= margin and abs(with_other / count - expected) <= margin


def test_the_sentence_closest_to_the_reference_is_the_nucleus_of_all_others(tmp_path):
    sentences = ["Snow fell in the north.", "The harbour was closed.", "Ferries waited.", "Nobody was hurt.", "Rain."]
    orders = [random.Random(number).sample(sentences, 5) for number in range(5)]
    summary = "Closed was the harbour again."
    rows = [{"id": str(n), "document": order, "summary": summary} for n, order in enumerate(orders)]
    corpus = Files(train=str(write_lines(tmp_path / "train.jsonl", rows)), document_list="sentences")
    requests = [ParseRequest.of(make_document(record)) for record in corpus.records("train")]
    for request, parse in zip(requests, OracleParser(corpus).predict_step(requests)):
        texts = [request.text[start:end] for start, end in parse.edus.tolist()]
        harbour, elaboration = texts.index("The harbour was closed."), parse.relations.index("elaboration")
        expected = torch.zeros(5, 5, len(parse.relations))
        expected[harbour, :, elaboration] = torch.arange(5) != harbour
        assert torch.equal(parse.dense(), expected)
        assert torch.equal(parse.band(4), tree_ldd(parse.tree, 5, len(parse.relations), parse.rows))
        torch.testing.assert_close(parse.gamma, expected.sum((1, 2)) / 5)
