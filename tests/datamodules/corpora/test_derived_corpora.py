"""Corpora over another corpus, of its own sentences or in folds, and over texts."""

import pytest
from conftest import write_lines

from datamodules.corpora import Files, Folds, OwnSentences, Texts
from datamodules.corpora.corpus import as_document, build_documents
from datamodules.documents import BadRecord, Document, UserError

FIRST = "The cat sat on the mat. A dog ran by.\n\nThe cat and the dog sat on the mat. It rained."
TEXTS = [("a", FIRST), ("b", "Only one sentence here.")]


def documents(tmp_path, **options):
    corpus = OwnSentences(Texts(TEXTS), **options)
    return [as_document(row) for row in build_documents(corpus, "test", tmp_path, require_references=True)]


def test_lead_is_the_first_sentence_and_the_principal_one_shares_most_words(tmp_path):
    first, second = documents(tmp_path)
    assert first.references == [["The cat sat on the mat."]]
    assert first.text == FIRST  # parts, sentences and their order are those of the corpus
    assert second.references == [["Only one sentence here."]]
    # "the cat (and the dog) sat on the mat" meets both others; "it rained" and "a dog ran by" hardly anything
    assert documents(tmp_path, selection="ind-orig")[0].references == [["The cat and the dog sat on the mat."]]


def test_random_draws_are_of_the_document(tmp_path):
    many = [(str(i), " ".join(f"Word {j} is here." for j in range(10))) for i in range(30)]
    corpus, later = OwnSentences(Texts(many), "random"), OwnSentences(Texts(many[7:]), "random")
    drawn = {record.id: record.references for record in corpus.records("test")}
    assert all(drawn[record.id] == record.references for record in later.records("test"))
    assert len({references[0][0] for references in drawn.values()}) > 5


def test_bad_records_and_empty_documents_pass(tmp_path):
    class Broken(Texts):
        def records(self, split):
            yield BadRecord("line 1", "broken", "fix it")
            yield from super().records(split)

    broken = OwnSentences(Broken([("a", " \n "), ("b", "It rains.")]))
    assert broken.splits() == ["test"]
    with pytest.warns(UserWarning, match="line 1: broken"):
        rows = build_documents(broken, "test", tmp_path, on_bad_record="skip", require_references=True)
    assert rows["id"] == ["b"]


@pytest.mark.parametrize(("options", "words"), [({"selection": "best"}, "ind-orig"), ({"number": 0}, "at least 1")])
def test_wrong_arguments(options, words):
    with pytest.raises(ValueError, match=words):
        OwnSentences(Texts(TEXTS), **options)


@pytest.fixture
def numbers(tmp_path) -> Files:
    """Records 0 to 10 as training documents, of which record 4 is damaged; `val` fails when it is read."""
    rows = [{"id": str(number), "document": f"Text {number}.", "summary": "x"} for number in range(11)]
    path = write_lines(tmp_path / "train.jsonl", [*rows[:4], "damaged", *rows[5:]])
    return Files(train=str(path), val=str(tmp_path / "nowhere.jsonl"))


def ids(corpus, split):
    return [getattr(record, "id", "damaged") for record in corpus.records(split)]


def test_each_record_is_held_out_once(numbers):
    corpora = [Folds(numbers, fold, folds=3) for fold in range(3)]
    assert [ids(corpus, "val") for corpus in corpora] == [
        ["0", "3", "6", "9"], ["1", "damaged", "7", "10"], ["2", "5", "8"],
    ]  # fmt: skip
    everything = sorted(ids(numbers, "train"))
    for corpus in corpora:
        assert corpus.splits() == ["train", "val"]
        assert sorted(ids(corpus, "train") + ids(corpus, "val")) == everything
    made = [*corpora[:2], Folds(numbers, 0, folds=4)]
    prints = {corpus.fingerprint(split) for corpus in made for split in ("train", "val")}
    assert len(prints) == 6


def test_texts_become_documents_without_references(tmp_path):
    corpus = Texts([("a.txt", "First. Second.\n\nThird."), ("b.txt", "Only.")])
    assert corpus.splits() == ["test"]
    assert [as_document(row) for row in build_documents(corpus, "test", tmp_path)] == [
        Document("a.txt", [["First.", "Second."], ["Third."]], []),
        Document("b.txt", [["Only."]], []),
    ]
    with pytest.raises(UserError, match=r"text 'stdin': the document is empty"):
        build_documents(Texts([("stdin", " \n")]), "test", tmp_path)
