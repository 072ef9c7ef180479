import json

import pytest

from datamodules.corpora import Files
from datamodules.corpora.corpus import build_documents
from datamodules.documents import UserError
from tests.conftest import write_lines


def corpus_of(tmp_path, share, number=400):
    rows = [{"id": f"d{i}", "document": f"text {i // 2} of a document", "summary": "x"} for i in range(number)]
    return Files(train=str(write_lines(tmp_path / "all.jsonl", rows)), split=share)


def test_documents_are_in_one_split_and_equal_texts_together(tmp_path):
    corpus = corpus_of(tmp_path, 0.25)
    assert corpus.splits() == ["train", "val"]
    train, val = (build_documents(corpus, split, tmp_path / "cache") for split in corpus.splits())
    assert len(train) + len(val) == 400 and not set(train["id"]) & set(val["id"])
    assert 60 <= len(val) <= 140  # 200 different texts: five standard deviations
    assert not {json.dumps(row["parts"]) for row in train} & {json.dumps(row["parts"]) for row in val}
    again = build_documents(corpus_of(tmp_path, 0.25), "val", tmp_path / "other")
    assert again["id"] == val["id"]


def test_a_test_file_beside_a_share_is_read_whole(tmp_path):
    rows = [{"document": f"test text {number}", "summary": "x"} for number in range(40)]
    path = write_lines(tmp_path / "test.jsonl", [*rows, "broken"])
    corpus = Files(train=str(path), test=str(path), split=0.25)
    found = list(corpus.records("test"))
    assert len(found) == 41 and found == list(Files(test=str(path)).records("test"))
    assert corpus.fingerprint("test") == Files(test=str(path)).fingerprint("test")
    assert corpus.fingerprint("train") != corpus.fingerprint("val")


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5])
def test_a_share_outside_zero_and_one_is_refused(tmp_path, share):
    with pytest.raises(UserError, match=r"corpus\.split"):
        corpus_of(tmp_path, share)


def test_a_share_beside_a_file_is_refused():
    with pytest.raises(UserError, match="no file for `val`"):
        Files(train="a.jsonl", val="b.jsonl", split=0.1)
