"""Byte order marks, line ends of Windows, zero-width characters and marks of datasets in text files."""

import gzip
import io
import json
import logging
import os
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
from conftest import write_lines

from datamodules.corpora import Files, ParallelText, TextFolders
from datamodules.corpora.corpus import as_document, build_documents, read_manifest
from datamodules.corpora.fields import clean
from datamodules.corpora.texts import Texts
from datamodules.discourse.treebanks import read_treebank
from datamodules.documents import Document, UserError
from datamodules.text.vocabulary import Vocabulary
from datamodules.text.word_vectors import read_word_vectors
from precis.files.texts import collect_texts

BOM = "\ufeff".encode()
ZERO_WIDTH = "\u200b\u2060\u200d\ufeff \u00ad"
TEXT = "It rained.\n\u200b\nWe stayed."
EMPTY = "\t_" * 7  # columns of CoNLL-U
PARTS = [["It rained."], ["We stayed."]]


def windows(text: str) -> bytes:
    return BOM + text.replace("\n", "\r\n").encode()


def documents(corpus, tmp_path, **options):
    return [as_document(row) for row in build_documents(corpus, "test", tmp_path / "cache", **options)]


def test_every_reader_of_documents(tmp_path, monkeypatch):
    line = json.dumps({"id": 1.0, "document": TEXT, "summary": "Rain."}) + "\n"
    (tmp_path / "a.jsonl").write_bytes(windows(line) + BOM + b"\r\n" + windows(line.replace("1.0", "2")))
    (tmp_path / "a.csv").write_bytes(windows(f'id,document,summary\n1,"{TEXT}",Rain.\n'))
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(windows(f'id\tdocument\tsummary\n1\t"{TEXT}"\tRain.\n')))
    for name in ("a.jsonl", "a.csv", "a.tsv.gz"):
        found = documents(Files(test=str(tmp_path / name)), tmp_path)
        assert [document.id for document in found] == (["1", "2"] if name == "a.jsonl" else ["1"])
        assert all(document.parts == PARTS and document.references == [["Rain."]] for document in found)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_bytes(windows(TEXT))
    (tmp_path / "b.source").write_bytes(windows("It rained.\n"))
    (tmp_path / "b.target").write_bytes(windows("Rain.\n"))
    assert documents(TextFolders(test=str(folder)), tmp_path)[0].parts == PARTS
    (parallel,) = documents(ParallelText(test=str(tmp_path / "b")), tmp_path)
    assert (parallel.parts, parallel.references) == ([["It rained."]], [["Rain."]])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(windows(TEXT))))
    for inputs in ([str(folder / "a.txt")], [str(folder)], []):
        assert collect_texts(inputs)[0][1] == TEXT


def test_every_reader_of_treebanks_and_words(tmp_path):
    rs3 = """<rst>
      <body><segment id="1">It rained,</segment> <segment id="2" parent="1" relname="cause">so we</segment></body>
    </rst>"""
    dis = """( Root (span 1 2)
      ( Nucleus (leaf 1) (rel2par span) (text _!It rained,_!) )
      ( Satellite (leaf 2) (rel2par cause) (text _!so we_!) ) )
    """
    words = [("1", "It rained,", "Discourse=ROOT:1:0"), ("2", "so we", "Discourse=cause:2->1:1")]
    conllu = "# newdoc id = a\n" + "".join(f"{n}\t{word}{EMPTY}\t{misc}\n" for n, word, misc in words) + "\n"
    jsonl = '{"id": "a", "text": "It rained, so we", "edus": [[0, 10], [11, 16]], "tree_nary": ["NS", "cause", 0, 1]}\n'
    for suffix, text in {"rs3": rs3, "dis": dis, "conllu": conllu, "jsonl": jsonl}.items():
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(windows(text))
        (document,) = read_treebank(path)
        assert document.edu_texts == ["It rained,", "so we"]
        assert document.tree.spans()[0][3:] == ("NS", "cause")
    Vocabulary(["rain"]).save(tmp_path)
    path = tmp_path / "vocabulary.json"
    path.write_bytes(windows(path.read_text()))
    assert Vocabulary.load(tmp_path).words[-1] == "rain"
    (tmp_path / "vectors.txt").write_bytes(windows("rain 1 2\n"))
    assert read_word_vectors(tmp_path / "vectors.txt", ["rain"], 2)[1].tolist() == [[1.0, 2.0]]


def test_documents_of_zero_width_characters_are_empty(tmp_path):
    with pytest.raises(UserError, match=r"'a'.*the document is empty"):
        documents(Texts([("a", f"{ZERO_WIDTH}\n\n{ZERO_WIDTH}")]), tmp_path)
    (tmp_path / "a.txt").write_text(ZERO_WIDTH)
    with pytest.raises(UserError, match="no text in it"):
        collect_texts([str(tmp_path / "a.txt")])


def test_names_of_files_that_are_no_utf8(tmp_path):
    name = os.fsdecode(b"caf\xe9.txt")
    (tmp_path / name).write_text("It rained.")
    for corpus in (Texts(collect_texts([str(tmp_path / name)])), TextFolders(test=str(tmp_path))):
        assert documents(corpus, tmp_path / "cache")[0].id.removesuffix(".txt") == "caf\\xe9"


@pytest.mark.parametrize(("text", "cleaned"), [
    ("<S> we study otters . </S>", "we study otters . "),
    ("It rained. NEWLINE_CHAR NEWLINE_CHAR We stayed.", "It rained.\n\nWe stayed."),
    ("(CNN)It rained.", "It rained."),
    ("LONDON, England (CNN) -- It rained.", "It rained."),
    ("A convolutional neural network (CNN) -- we call it so -- learns.", None),
    ("(CBS) She told (CNN) it rained; a<S, b>S, NEWLINE_CHARS", None),
    ("\ufeffIt\ufeff rained.", "It rained."),
])  # fmt: skip
def test_marks_of_datasets(text, cleaned):
    counts = Counter()
    expected = text if cleaned is None else cleaned
    assert clean([text, [text], None], counts) == [expected, [expected], None]
    assert (counts.total() == 0) == (cleaned is None)


def test_marks_are_counted_and_reported_once_per_split(tmp_path, caplog):
    row = {"article_text": ["It rained.", "We stayed."], "abstract_text": ["<S> it rained </S>", "<S> we stayed </S>"]}
    path = str(write_lines(tmp_path / "a.jsonl", [row]))
    fields = {"document": "article_text", "document_list": "sentences"}
    fields |= {"summary": "abstract_text", "summary_list": "sentences"}
    with caplog.at_level(logging.INFO):
        table = build_documents(Files(test=path, **fields), "test", tmp_path / "cache")
    document = as_document(table[0])
    assert (document.parts, document.references) == ([row["article_text"]], [["it rained", "we stayed"]])
    assert read_manifest(table)["cleaned"] == {"sentence tags <S>": 4}
    assert caplog.text.count("test: cleaned away: 4 sentence tags <S>") == 1


def test_stories_of_cnn_dailymail(tmp_path):
    text = "(CNN) -- It rained.\n\nWe stayed.\n\n@highlight\n\nRain all day\n\n@highlight\n\nNobody left . Not one\n"
    (tmp_path / "0a1b.story").write_text(text)
    references = [["Rain all day", "Nobody left . Not one"]]
    assert documents(TextFolders(test=str(tmp_path)), tmp_path) == [Document("0a1b", PARTS, references)]
