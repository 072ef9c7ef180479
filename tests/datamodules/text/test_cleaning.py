import json
import logging
from collections import Counter

import pytest

from datamodules.corpora import Files, TextFolders
from datamodules.corpora.corpus import as_document, build_documents, read_manifest
from datamodules.text.cleaning import clean


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("<S> we study otters . </S>", "we study otters . "),
        ("It rained. NEWLINE_CHAR NEWLINE_CHAR We stayed.", "It rained.\n\nWe stayed."),
        ("(CNN)It rained.", "It rained."),
        ("LONDON, England (CNN) -- It rained.", "It rained."),
        ("A convolutional neural network (CNN) -- we call it so -- learns.", None),
        ("(CBS) She told (CNN) it rained; a<S, b>S, NEWLINE_CHARS", None),
        ("\ufeffIt\ufeff rained.", "It rained."),
    ],
)
def test_marks_of_datasets(text, cleaned):
    counts = Counter()
    expected = text if cleaned is None else cleaned
    assert clean([text, [text], None], counts) == [expected, [expected], None]
    assert (counts.total() == 0) == (cleaned is None)


def test_marks_are_counted_and_reported_once_per_split(tmp_path, caplog):
    row = {"article_text": ["It rained.", "We stayed."], "abstract_text": ["<S> it rained </S>", "<S> we stayed </S>"]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    fields = {"document": "article_text", "document_list": "sentences"}
    fields |= {"summary": "abstract_text", "summary_list": "sentences"}
    with caplog.at_level(logging.INFO):
        table = build_documents(Files(test=str(tmp_path / "a.jsonl"), **fields), "test", tmp_path / "cache")
    document = as_document(table[0])
    assert (document.parts, document.references) == ([row["article_text"]], [["it rained", "we stayed"]])
    assert read_manifest(table)["cleaned"] == {"sentence tags <S>": 4}
    assert caplog.text.count("test: cleaned away: 4 sentence tags <S>") == 1


def test_stories_of_cnn_dailymail(tmp_path):
    text = "(CNN) -- It rained.\n\nWe stayed.\n\n@highlight\n\nRain all day\n\n@highlight\n\nNobody left . Not one\n"
    (tmp_path / "0a1b.story").write_text(text)
    table = build_documents(TextFolders(test=str(tmp_path)), "test", tmp_path / "cache")
    document = as_document(table[0])
    assert (document.id, document.parts) == ("0a1b", [["It rained."], ["We stayed."]])
    assert document.references == [["Rain all day", "Nobody left . Not one"]]
