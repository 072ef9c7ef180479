"""Index files of MatchSum as a scorer of sentences."""

import pytest
from conftest import write_lines

from datamodules.corpora.files import Files
from datamodules.documents import Document, UserError
from datamodules.matchsum import MatchSumData
from datamodules.sentence_index import SentenceIndex

SENTENCES = ["one bird sang .", "two cats sat .", "three dogs ran .", "four fish swam ."]
DOCUMENT = Document("train-1", [SENTENCES], [["two cats sat ."]])


def test_scores_fall_along_the_list(tmp_path):
    path = write_lines(tmp_path / "index.jsonl", [{"sent_id": [2, 0, 3]}, {"id": "mine", "sent_id": []}])
    scorer = SentenceIndex({"train": str(path)})
    (first, second) = scorer.sentence_scores([DOCUMENT, Document("mine", [["a"]])])
    assert sorted(range(4), key=lambda index: -first[index]) == [2, 0, 3, 1] and first[1] == 0
    assert second == [0.0]


def test_candidates_are_formed_from_the_indexed_sentences(tmp_path):
    rows = [{"text": SENTENCES, "summary": ["two cats sat ."]}]
    data = write_lines(tmp_path / "train.jsonl", rows)
    index = write_lines(tmp_path / "index.jsonl", [{"sent_id": [3, 1, 0]}])
    corpus = Files(train=str(data), document="text", document_list="sentences", summary_list="sentences")
    scorer = SentenceIndex({"train": str(index)})
    module = MatchSumData(corpus, scorer, 300, None, keep=2, sizes=[1, 2], cache_dir=tmp_path / "cache")
    module.prepare_splits(["train"])
    (row,) = module.features("train")
    batch = module.collate([row])
    assert sorted(map(tuple, batch.choices[0])) == [(1,), (1, 3), (3,)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"sent_id": [9]}, "sentence 9 of document 'train-1', which has 4"),
        ({"sent_id": "0"}, "index.jsonl:1: sent_id is not a list of indices"),
        ({"id": "other", "sent_id": [0]}, "'train-1' has no line"),
        ("{", "broken JSON"),
    ],
)
def test_a_bad_index_is_one_line(row, message, tmp_path):
    path = write_lines(tmp_path / "index.jsonl", [row])
    with pytest.raises(UserError, match=message):
        list(SentenceIndex({"train": str(path)}).sentence_scores([DOCUMENT]))


def test_the_fingerprint_follows_the_content(tmp_path):
    path = write_lines(tmp_path / "index.jsonl", [{"sent_id": [0]}])
    before = SentenceIndex({"train": str(path)}).fingerprint
    assert SentenceIndex({"train": str(path)}).fingerprint == before != SentenceIndex({"val": str(path)}).fingerprint
    write_lines(path, [{"sent_id": [1]}])
    assert SentenceIndex({"train": str(path)}).fingerprint != before
    with pytest.raises(UserError, match="no such file"):
        _ = SentenceIndex({"train": str(tmp_path / "missing.jsonl")}).fingerprint
