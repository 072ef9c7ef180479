import gzip
import json
import re

import pytest
from conftest import write_lines

from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.treebanks import TreebankError, read_treebank
from datamodules.discourse.trees import Span, Tree
from datamodules.documents import UserError

RECORD = {
    "id": "doc",
    "genre": "news",
    "license": "CC BY 4.0",
    "text": "It rained, so we left. The end.",
    "edus": [[0, 10], [11, 22], [23, 31]],
    "sentences": [[0, 22], [23, 31]],
    "paragraphs": [[0, 31]],
    "tree": ["NN", "list", ["SN", "cause", 0, 1], 2],
}
DOCUMENT = TreebankDocument(
    id="doc",
    text=RECORD["text"],
    edus=[(0, 10), (11, 22), (23, 31)],
    sentences=[(0, 22), (23, 31)],
    paragraphs=[(0, 31)],
    tree=Tree.from_spans([Span(0, 1, 2, "NN", "list"), Span(0, 0, 1, "SN", "cause")], 3),
    genre="news",
    licence="CC BY 4.0",
)


def test_a_record(tmp_path):
    assert read_treebank(write_lines(tmp_path / "a.jsonl", [RECORD, ""])) == [DOCUMENT]
    assert DOCUMENT.edu_texts == ["It rained,", "so we left.", "The end."]
    bare = {"id": "doc", "text": "a", "edus": [[0, 1]]}
    (tmp_path / "b.json").write_text(json.dumps(bare))
    assert read_treebank(tmp_path / "b.json") == [TreebankDocument("doc", "a", [(0, 1)])]
    nary = RECORD | {"tree": ["NN", "list", 0, ["NN", "list", 1, 2]], "tree_nary": ["NN", "list", 0, 1, 2]}
    assert read_treebank(write_lines(tmp_path / "c.jsonl", [nary]))[0].tree.nested() == nary["tree_nary"]


@pytest.mark.parametrize("change, said", [
    ({"edus": [[0, 10], [9, 22], [23, 31]]}, "edus[1] is characters 9 to 22, which overlaps"),
    ({"edus": [[0, 10], [23, 31]]}, "'so we left.' (characters 10 to 23) belongs to no EDU; one is"),
    ({"edus": [[0, 10], [11, 22]], "tree": None}, "'The end.' (characters 22 to 31) belongs to no EDU"),
    ({"edus": [[0, 10], [11, 22], [23, 40]]}, "outside the text of 31 characters"),
    ({"edus": [[0, 10], [11, 22], [23, 23]]}, "which is empty or outside"),
    ({"edus": [[0, 10], [11, "22"]]}, "`edus` is not a list of [start, end]"),
    ({"edus": []}, "there is no EDU"),
    ({"edus": [[0, 31]]}, "the tree has 3 EDUs, the text has 1"),
    ({"sentences": [[0, 22], [20, 31]]}, "sentences[1] is characters 20 to 31, which overlaps"),
    ({"tree": ["NN", "list", 0, 2]}, "not a tree: EDU 2 where EDU 1"),
    ({"text": None}, "`text` is not a string"),
])  # fmt: skip
def test_invalid_documents_are_refused(tmp_path, change, said):
    path = write_lines(tmp_path / "a.jsonl", ["", {**RECORD, **change}])
    with pytest.raises(TreebankError, match=re.escape(said)) as caught:
        read_treebank(path)
    assert isinstance(caught.value, UserError)
    assert str(caught.value).startswith(f"{path}:2: doc: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("name, content, said", [
    ("a.jsonl", b"{", "a.jsonl:1: not JSON"),
    ("a.jsonl", b"[]", "a.jsonl:1: not a document"),
    ("a.json", b'[{"id": 3}]', "a.json, record 0: not a document"),
    ("a.jsonl", b"[" * 100_000, "a.jsonl:1: not JSON (nested too deeply)"),
    ("a.jsonl", b"\xff", "not UTF-8 at byte 0"),
    ("a.jsonl.gz", b"no gzip", "cannot be read"),
    ("a.jsonl.gz", gzip.compress(b"{}" * 99, mtime=0)[:-9], "cannot be read"),
    ("a.txt", b"text", "not a treebank; known are .jsonl"),
])  # fmt: skip
def test_what_cannot_be_read(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TreebankError, match=re.escape(said)):
        read_treebank(tmp_path / name)


def test_nothing_there_and_an_id_twice(tmp_path):
    with pytest.raises(TreebankError, match="no such file"):
        read_treebank(tmp_path / "absent.dis")
    with pytest.raises(TreebankError, match="no treebank file in this folder"):
        read_treebank(tmp_path)
    write_lines(tmp_path / "a.jsonl", [RECORD])
    write_lines(tmp_path / "b.jsonl", [RECORD])
    with pytest.raises(TreebankError, match=r"b.jsonl: doc is in .*a.jsonl already"):
        read_treebank(tmp_path)
