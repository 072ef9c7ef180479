"""Inputs in the layouts of other tools: PreSumm's JSON, parallel text, folders of texts and pages."""

import json
from pathlib import Path

import pytest

from datamodules.corpora.corpus import as_document, build_documents
from datamodules.corpora.files import Files
from datamodules.corpora.texts import ParallelText, TextFolders
from datamodules.documents import Document, UserError

PRESUMM = [
    {"src": [["the", "storm", "came"], ["boats", "sank"]], "tgt": [["a", "storm"], ["it", "rained"]]},
    {"src": [["it", "was", "quiet"]], "tgt": [["quiet"]]},
]
TOKENS = {"document": "src", "document_list": "tokens", "summary": "tgt", "summary_list": "tokens"}
PAGE = """<html><head><title>T</title></head><body><nav><a href="/">Home</a> <a href="/b">Sports</a></nav><article>
<h1>Storm</h1><p>The harbour was closed on Monday because of a storm that came from the west and lasted for hours.</p>
<p>Ships waited outside until the evening, and the ferries did not run at all on that day.</p></article>
<footer>Imprint and cookies</footer></body></html>"""


def documents(corpus, tmp_path, split="train", **options) -> list[Document]:
    return [as_document(row) for row in build_documents(corpus, split, tmp_path / "cache", **options)]


@pytest.mark.parametrize("indent", [None, 1])
def test_the_json_of_presumm_is_read_sentence_by_sentence(indent, tmp_path):
    path = tmp_path / "cnndm.train.0.json"
    path.write_text(json.dumps(PRESUMM, indent=indent), encoding="utf-8")
    first, second = documents(Files(train=str(path), **TOKENS), tmp_path)
    assert first == Document("cnndm-1", [["the storm came", "boats sank"]], [["a storm", "it rained"]])
    assert second == Document("cnndm-2", [["it was quiet"]], [["quiet"]])


@pytest.mark.parametrize(("content", "message"), [
    ('[{"src": [["a"]], "tgt": [["a"]]}', "broken JSON"),
    ('[["a"]]', ":1: a JSON list, not an object"),
    ('[{"src": ["a"], "tgt": [["a"]]}]', "field 'src'"),
    ('[{"tgt": [["a"]]}]', "no field 'src'"),
])  # fmt: skip
def test_a_broken_array_is_one_line(content, message, tmp_path):
    path = tmp_path / "broken.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as error:
        documents(Files(train=str(path), **TOKENS), tmp_path)
    assert message in str(error.value) and str(path) in str(error.value)


def test_lines_of_two_files_are_pairs(tmp_path):
    (tmp_path / "train.source").write_text("The storm came. Boats sank.\nQuiet.\n", encoding="utf-8")
    (tmp_path / "train.target").write_text("A storm. Rain.\n\n", encoding="utf-8")
    first, second = documents(ParallelText(train=str(tmp_path / "train")), tmp_path)
    assert first == Document("train-1", [["The storm came.", "Boats sank."]], [["A storm.", "Rain."]])
    assert second == Document("train-2", [["Quiet."]], [])


def test_other_suffixes_and_marks_of_sentences(tmp_path):
    (tmp_path / "test.src").write_text("one<q>two words\n", encoding="utf-8")
    corpus = ParallelText(test=str(tmp_path / "test"), source=".src", target=None, separator="<q>")
    assert documents(corpus, tmp_path, "test") == [Document("test-1", [["one", "two words"]], [])]


def test_files_that_do_not_fit_are_one_line(tmp_path):
    (tmp_path / "train.source").write_bytes(b"a\nb\n")
    for target, message in ((None, "no such file"), (b"a\n", "before line 2"), (b"a\nb\nc\n", "before line 3")):
        if target is not None:
            (tmp_path / "train.target").write_bytes(target)
        with pytest.raises(UserError, match=message):
            documents(ParallelText(train=str(tmp_path / "train")), tmp_path)
        assert not list(tmp_path.glob("cache/*/documents.arrow"))


def test_a_line_that_is_no_utf8_can_be_skipped(tmp_path):
    (tmp_path / "train.source").write_bytes(b"a\n\xff\nc\n")
    (tmp_path / "train.target").write_bytes(b"a\nb\nc\n")
    corpus = ParallelText(train=str(tmp_path / "train"))
    with pytest.raises(UserError, match=r"train\.source:2: not UTF-8"):
        documents(corpus, tmp_path)
    assert [document.id for document in documents(corpus, tmp_path, on_bad_record="skip")] == ["train-1", "train-3"]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Two documents, one a page, and three references."""
    texts = {
        "documents/calm.txt": "It was quiet. Nobody came.\n\nThe end.",
        "documents/storm.html": PAGE,
        "references/calm.txt": "Quiet.",
        "references/storm.1.txt": "A storm.",
        "references/storm.2.txt": "The harbour was closed.",
    }
    for name, text in texts.items():
        (tmp_path / "news" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "news" / name).write_text(text, encoding="utf-8")
    return tmp_path / "news"


def test_a_folder_of_texts_and_pages_with_references(folder, tmp_path):
    pytest.importorskip("trafilatura")
    calm, storm = documents(TextFolders(test=str(folder)), tmp_path, "test")
    assert calm == Document("calm", [["It was quiet.", "Nobody came."], ["The end."]], [["Quiet."]])
    assert storm.references == [["A storm."], ["The harbour was closed."]]
    assert "Ships waited outside" in storm.text and "Sports" not in storm.text and "Imprint" not in storm.text
    assert len(storm.parts) >= 2


def test_what_does_not_belong_is_one_line(folder, tmp_path):
    (folder / "references" / "rain.txt").write_text("Rain.", encoding="utf-8")
    with pytest.raises(UserError, match=r"rain\.txt: no document has this name"):
        documents(TextFolders(test=str(folder)), tmp_path, "test")
    with pytest.raises(UserError, match="no such folder"):
        documents(TextFolders(test=str(folder / "missing")), tmp_path, "test")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no \.txt or \.html file"):
        documents(TextFolders(test=str(tmp_path / "empty")), tmp_path, "test")


@pytest.mark.integration
def test_a_page_is_summarized_as_its_article(run_folder, tmp_path, precis):
    pytest.importorskip("trafilatura")
    (tmp_path / "page.html").write_text(PAGE, encoding="utf-8")
    done = precis("summarize", "--checkpoint", run_folder, tmp_path / "page.html")
    assert done.status == 0 and done.out.strip()
    (tmp_path / "empty.html").write_text("<html></html>", encoding="utf-8")
    done = precis("summarize", "--checkpoint", run_folder, tmp_path / "empty.html")
    assert done.status == 1 and "no article" in done.err and done.err.count("\n") == 1
