"""Inputs in the layouts of other tools, and what stands in text files beside the text: byte order marks, line ends of
Windows, zero-width characters and marks of datasets.
"""

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
        ('[{"src": ["a"], "tgt": [["a"]]}]', "field 'src'"),
        ('[{"tgt": [["a"]]}]', "no field 'src'"),
    ):
        path = write(tmp_path / "broken.json", content)
        with pytest.raises(UserError) as error:
            documents(Files(train=str(path), **TOKENS), tmp_path, "train")
        assert message in str(error.value) and str(path) in str(error.value)


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
    assert [document.id for document in documents(corpus, tmp_path, "train", on_bad_record="skip")] == [
        "train-1",
        "train-3",
    ]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Two documents, one a page, and three references."""
    news = tmp_path / "news"
    for name in ("documents", "references"):
        (news / name).mkdir(parents=True)
    write(news / "documents" / "calm.txt", "It was quiet. Nobody came.\n\nThe end.")
    write(news / "documents" / "storm.html", PAGE)
    write(news / "references" / "calm.txt", "Quiet.")
    write(news / "references" / "storm.1.txt", "A storm.")
    write(news / "references" / "storm.2.txt", "The harbour was closed.")
    return news


def test_a_folder_of_texts_and_pages_with_references(folder, tmp_path):
    pytest.importorskip("trafilatura")
    calm, storm = documents(TextFolders(test=str(folder)), tmp_path)
    assert calm == Document("calm", [["It was quiet.", "Nobody came."], ["The end."]], [["Quiet."]])
    assert storm.references == [["A storm."], ["The harbour was closed."]]
    assert "Ships waited outside" in storm.text and "Sports" not in storm.text and "Imprint" not in storm.text
    assert len(storm.parts) >= 2


def test_what_does_not_belong_is_one_line(folder, tmp_path):
    (folder / "references" / "rain.txt").write_text("Rain.", encoding="utf-8")
    with pytest.raises(UserError, match=r"rain\.txt: no document has this name"):
        documents(TextFolders(test=str(folder)), tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        documents(TextFolders(test=str(folder / "missing")), tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no \.txt or \.html file"):
        documents(TextFolders(test=str(tmp_path / "empty")), tmp_path)


@pytest.mark.integration
def test_a_page_is_summarized_as_its_article(run_folder, tmp_path, precis):
    pytest.importorskip("trafilatura")
    write(tmp_path / "page.html", PAGE)
    done = precis("summarize", "--checkpoint", run_folder, tmp_path / "page.html")
    assert done.status == 0 and done.out.strip()
    write(tmp_path / "empty.html", "<html></html>")
    done = precis("summarize", "--checkpoint", run_folder, tmp_path / "empty.html")
    assert done.status == 1 and "no article" in done.err and done.err.count("\n") == 1


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
    (folder / "a.txt").write_bytes(windows(TEXT))
    (tmp_path / "b.source").write_bytes(windows("It rained.\n"))
    (tmp_path / "b.target").write_bytes(windows("Rain.\n"))
    assert documents(TextFolders(test=str(folder)), tmp_path)[0].parts == PARTS
    (parallel,) = documents(ParallelText(test=str(tmp_path / "b")), tmp_path)
    assert (parallel.parts, parallel.references) == ([["It rained."]], [["Rain."]])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(windows(TEXT))))
    for inputs in ([str(folder / "a.txt")], [str(folder)], []):
        assert collect_texts(inputs)[0][1] == TEXT


def test_files_of_words_and_vectors(tmp_path):
    Vocabulary(["rain"]).save(tmp_path)
    path = tmp_path / "vocabulary.json"
    path.write_bytes(windows(path.read_text()))
    assert Vocabulary.load(tmp_path).words[-1] == "rain"
    (tmp_path / "vectors.txt").write_bytes(windows("rain 1 2\n"))
    assert read_word_vectors(tmp_path / "vectors.txt", ["rain"], 2)[1].tolist() == [[1.0, 2.0]]


def test_documents_of_zero_width_characters_are_empty_and_names_of_files_may_be_no_utf8(tmp_path):
    with pytest.raises(UserError, match=r"'a'.*the document is empty"):
        documents(Texts([("a", f"{ZERO_WIDTH}\n\n{ZERO_WIDTH}")]), tmp_path)
    (tmp_path / "a.txt").write_text(ZERO_WIDTH)
    with pytest.raises(UserError, match="no text in it"):
        collect_texts([str(tmp_path / "a.txt")])
    name = os.fsdecode(b"caf\xe9.txt")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).write_text("It rained.")
    for corpus in (Texts(collect_texts([str(folder / name)])), TextFolders(test=str(folder))):
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
