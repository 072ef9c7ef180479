"""The parser that knows the references."""

import random

import pytest
import torch

from datamodules.corpora.corpus import make_document
from datamodules.corpora.files import Files
from datamodules.discourse.parses import ParseRequest
from experiments.studies.controls.tasks.oracle_parser import OracleParser, nuclear_tree
from tests.conftest import write_lines

SENTENCES = ["Snow fell in the north.", "The harbour was closed.", "Ferries waited for hours.", "Nobody was hurt."]


def corpus_of(folder, count):
    """Documents with the sentences above and a number, in random order; the reference is nearly the second one."""
    rows = []
    for number in range(count):
        sentences = [*SENTENCES, f"This is report {number}."]
        random.Random(number).shuffle(sentences)
        rows.append({"id": str(number), "document": sentences, "summary": "Closed was the harbour again."})
    return Files(train=str(write_lines(folder / "train.jsonl", rows)), document_list="sentences")


def requests_of(corpus):
    return [ParseRequest.of(make_document(record)) for record in corpus.records("train")]


def test_the_sentence_closest_to_the_reference_is_the_nucleus_of_all_others(tmp_path):
    corpus = corpus_of(tmp_path, 5)
    parser = OracleParser(corpus)
    for request, parse in zip(requests_of(corpus), parser.predict_step(requests_of(corpus))):
        texts = [request.text[start:end] for start, end in parse.edus.tolist()]
        harbour = texts.index("The harbour was closed.")
        elaboration = parse.relations.index("elaboration")
        expected = torch.zeros(5, 5, len(parse.relations))
        expected[harbour, :, elaboration] = 1
        expected[harbour, harbour] = 0
        assert torch.equal(parse.dense(), expected) and torch.equal(parse.band(4), parse.band(4, "one_best"))
        torch.testing.assert_close(parse.gamma, expected.sum((1, 2)) / 5)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_nuclear_tree_joins_neighbouring_spans_and_its_nucleus_is_never_a_satellite(size):
    for nucleus in range(size):
        first, last = nucleus, nucleus
        for start, split, end, nuclearity, relation in nuclear_tree(size, nucleus, 3).tolist():
            left, right = (start, split), (split + 1, end)
            assert (left, right)[nuclearity] == (first, last) and nuclearity in (0, 1) and relation == 3
            first, last = start, end
        assert (first, last) == (0, size - 1)
