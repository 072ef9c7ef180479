import pytest

from datamodules.corpora.corpus import as_document, build_documents
from datamodules.corpora.texts import Texts
from datamodules.documents import Document, UserError


def test_texts_become_documents_without_references(tmp_path):
    corpus = Texts([("a.txt", "First. Second.\n\nThird."), ("b.txt", "Only.")])
    assert corpus.splits() == ["test"]
    assert [as_document(row) for row in build_documents(corpus, "test", tmp_path)] == [
        Document("a.txt", [["First.", "Second."], ["Third."]], []),
        Document("b.txt", [["Only."]], []),
    ]


def test_an_empty_text_is_named(tmp_path):
    with pytest.raises(UserError, match=r"text 'stdin': the document is empty"):
        build_documents(Texts([("stdin", " \n")]), "test", tmp_path)
