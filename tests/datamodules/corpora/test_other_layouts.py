"""Layouts of other tools, and what stands in files beside text: byte order marks, line ends, marks of datasets."""

import gzip
import io
import json
import logging
import os
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import write, write_lines

from datamodules.corpora import Files, ParallelText, TextFolders
from datamodules.corpora.corpus import as_document, build_documents, read_manifest
from datamodules.corpora.fields import clean
from datamodules.corpora.texts import Texts
from datamodules.documents import Document, UserError
from datamodules.text.vocabulary import Vocabulary
from datamodules.text.word_vectors import read_word_vectors
from precis.files.texts import collect_texts

STORM = {"src": [["the", "storm", "came"], ["boats", "sank"]], "tgt": [["a", "storm"], ["it", "rained"]]}
PRESUMM = [STORM, {"src": [["it", "was", "quiet"]], "tgt": [["quiet"]]}]
TOKENS = {"document": "src", "document_list": "tokens", "summary": "tgt", "summary_list": "tokens"}
PAGE = """<html><head><title>T</title></head><body><nav><a href="/">Home</a> <a href="/b">Sports</a></nav><article>
<h1>Storm</h1><p>The harbour was closed on Monday because of a storm that came from the west and lasted for hours.</p>
<p>Ships waited outside until the evening, and the ferries did not run at all on that day.</p></article>
<footer>Imprint and cookies</footer></body></html>"""


def documents(corpus, tmp_path, split="test", **options):
    return [as_document(row) for row in build_documents(corpus, split, tmp_path / "cache", **options)]


def test_the_json_of_presumm_is_read_sentence_by_sentence(tmp_path):
    for indent in (None, 1):
        path = write(tmp_path / "cnndm.train.0.json", json.dumps(PRESUMM, indent=indent))
        first, second = documents(Files(train=str(path), **TOKENS), tmp_path, "train")
        assert first == Document("cnndm-1", [["the storm came", "boats sank"]], [["a storm", "it rained"]])
        assert second == Document("cnndm-2", [["it was quiet"]], [["quiet"]])
    for content, message in (
        ('[{"src": [["a"]], "tgt": [["a"]]}', "broken JSON"),
        ('[["a"]]', ":1: a JSON list, not an object"),
        ('[{"src": ["a"], "tgt": [["a"]]}]', ".*field 'src'"),
    ):
        path = write(tmp_path / "broken.json", content)
        with pytest.raises(UserError, match=f"{path}.*{message}"):
            documents(Files(train=str(path), **TOKENS), tmp_path, "train")


def test_lines_of_two_files_are_pairs(tmp_path):
    write(tmp_path / "train.source", "The storm came. Boats sank.\nQuiet.\n")
    write(tmp_path / "train.target", "A storm. Rain.\n\n")
    first, second = documents(ParallelText(train=str(tmp_path / "train")), tmp_path, "train")
    assert first == Document("train-1", [["The storm came.", "Boats sank."]], [["A storm.", "Rain."]])
    assert second == Document("train-2", [["Quiet."]], [])
    # other suffixes and marks of sentences
    write(tmp_path / "test.src", "one<q>two words\n")
    corpus = ParallelText(test=str(tmp_path / "test"), source=".src", target=None, separator="<q>")
    assert documents(corpus, tmp_path) == [Document("test-1", [["one", "two words"]], [])]


def test_lines_that_do_not_fit_are_one_message(tmp_path):
    (tmp_path / "train.source").write_bytes(b"a\nb\n")
    for target, message in ((None, "no such file"), (b"a\n", "before line 2"), (b"a\nb\nc\n", "before line 3")):
        if target is not None:
            (tmp_path / "train.target").write_bytes(target)
        with pytest.raises(UserError, match=message):
            documents(ParallelText(train=str(tmp_path / "train")), tmp_path, "train")
        assert not list(tmp_path.glob("cache/*/documents.arrow"))
    (tmp_path / "train.source").write_bytes(b"a\n\xff\nc\n")
    (tmp_path / "train.target").write_bytes(b"a\nb\nc\n")
    corpus = ParallelText(train=str(tmp_path / "train"))
    with pytest.raises(UserError, match=r"train\.source:2: not UTF-8"):
        documents(corpus, tmp_path, "train")
    rows = documents(corpus, tmp_path, "train", on_bad_record="skip")
    assert [document.id for document in rows] == ["train-1", "train-3"]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Two documents, one a page, and three references."""
    news = tmp_path / "news"
    documents = {"calm.txt": "It was quiet. Nobody came.\n\nThe end.", "storm.html": PAGE}
    references = {"calm.txt": "Quiet.", "storm.1.txt": "A storm.", "storm.2.txt": "The harbour was closed."}
    for name, texts in (("documents", documents), ("references", references)):
        (news / name).mkdir(parents=True)
        for file, text in texts.items():
            write(news / name / file, text)
    return news


def test_a_folder_of_texts_and_pages_with_references(folder, tmp_path):
    pytest.importorskip("trafilatura")
    calm, storm = documents(TextFolders(test=str(folder)), tmp_path)
    assert calm == Document("calm", [["It was quiet.", "Nobody came."], ["The end."]], [["Quiet."]])
    assert storm.references == [["A storm."], ["The harbour was closed."]]
    assert "Ships waited outside" in storm.text and "Sports" not in storm.text and "Imprint" not in storm.text
    assert len(storm.parts) >= 2
    # `precis summarize` reads the same article
    ((name, text),) = collect_texts([str(folder / "documents" / "storm.html")])
    assert name == "storm.html" and documents(Texts([(name, text)]), tmp_path)[0].parts == storm.parts
    with pytest.raises(UserError, match="no article was found"):
        collect_texts([str(write(tmp_path / "empty.html", "<html></html>"))])


def test_what_does_not_belong_is_one_line(folder, tmp_path):
    write(folder / "references" / "rain.txt", "Rain.")
    (tmp_path / "empty").mkdir()
    for path, message in (
        (folder, r"rain\.txt: no document has this name"),
        (folder / "missing", "no such folder"),
        (tmp_path / "empty", r"no \.txt or \.html file"),
    ):
        with pytest.raises(UserError, match=message):
            documents(TextFolders(test=str(path)), tmp_path)


BOM = "\ufeff".encode()
ZERO_WIDTH = "\u200b\u2060\u200d\ufeff \u00ad"
TEXT = "It rained.\n\u200b\nWe stayed."
PARTS = [["It rained."], ["We stayed."]]


def windows(text: str) -> bytes:
    return BOM + text.replace("\n", "\r\n").encode()


def test_every_reader_of_documents(tmp_path, monkeypatch):
    line = json.dumps({"id": 1.0, "document": TEXT, "summary": "Rain."}) + "\n"
    (tmp_path / "a.jsonl").write_bytes(windows(line) + BOM + b"\r\n" + windows(line.replace("1.0", "2")))
    (tmp_path / "a.csv").write_bytes(windows(f'id,document,summary\n1,"{TEXT}",Rain.\n'))
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(windows(f'id\tdocument\tsummary\n1\t"{TEXT}"\tRain.\n')))
    for name in ("a.jsonl", "a.csv", "a.tsv.gz"):
        rows = documents(Files(test=str(tmp_path / name)), tmp_path)
        assert [document.id for document in rows] == (["1", "2"] if name == "a.jsonl" else ["1"])
        assert all(document.parts == PARTS and document.references == [["Rain."]] for document in rows)
    folder = tmp_path / "folder"
    folder.mkdir()
    contents = {"folder/a.txt": TEXT, "b.source": "It rained.\n", "b.target": "Rain.\n", "vectors.txt": "rain 1 2\n"}
    for name, text in contents.items():
        (tmp_path / name).write_bytes(windows(text))
    assert documents(TextFolders(test=str(folder)), tmp_path)[0].parts == PARTS
    (parallel,) = documents(ParallelText(test=str(tmp_path / "b")), tmp_path)
    assert (parallel.parts, parallel.references) == ([["It rained."]], [["Rain."]])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(windows(TEXT))))
    for inputs in ([str(folder / "a.txt")], [str(folder)], []):
        assert collect_texts(inputs)[0][1] == TEXT
    (folder / "B.TXT").write_text(TEXT)
    assert [name for name, _ in collect_texts([str(folder)])] == ["B.TXT", "a.txt"]
    assert collect_texts(["雨。花。"]) == [("text", "雨。花。")]
    # and of words and vectors
    Vocabulary(["rain"]).save(tmp_path)
    path = tmp_path / "vocabulary.json"
    path.write_bytes(windows(path.read_text()))
    assert Vocabulary.load(tmp_path).words[-1] == "rain"
    assert read_word_vectors(tmp_path / "vectors.txt", ["rain"], 2)[1].tolist() == [[1.0, 2.0]]


def test_documents_of_zero_width_characters_are_empty_and_names_of_files_may_be_no_utf8(tmp_path):
    with pytest.raises(UserError, match=r"'a'.*the document is empty"):
        documents(Texts([("a", f"{ZERO_WIDTH}\n\n{ZERO_WIDTH}")]), tmp_path)
    path = write(tmp_path / "a.txt", ZERO_WIDTH)
    with pytest.raises(UserError, match="no text in it"):
        collect_texts([str(path)])
    path = path.rename(tmp_path / os.fsdecode(b"caf\xe9.txt"))
    path.write_text("It rained.")
    for corpus in (Texts(collect_texts([str(path)])), TextFolders(test=str(tmp_path))):
        assert documents(corpus, tmp_path)[0].id.removesuffix(".txt") == "caf\\xe9"


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
    assert as_document(table[0]) == Document("a-1", [row["article_text"]], [["it rained", "we stayed"]])
    assert read_manifest(table)["cleaned"] == {"sentence tags <S>": 4}
    assert caplog.text.count("test: cleaned away: 4 sentence tags <S>") == 1


def test_stories_of_cnn_dailymail(tmp_path):
    text = "(CNN) -- It rained.\n\nWe stayed.\n\n@highlight\n\nRain all day\n\n@highlight\n\nNobody left . Not one\n"
    write(tmp_path / "0a1b.story", text)
    (tmp_path / "references").mkdir()
    write(tmp_path / "references" / "0a1b.txt", "Rain fell.")
    references = [["Rain all day", "Nobody left . Not one"], ["Rain fell."]]
    assert documents(TextFolders(test=str(tmp_path)), tmp_path) == [Document("0a1b", PARTS, references)]
