from unittest.mock import Mock

import datasets
import huggingface_hub.constants
import pytest
from conftest import write_lines

from datamodules.corpora.corpus import as_document, build_documents
from datamodules.corpora.hub import SOURCES, Hub
from datamodules.documents import BadRecord, Document, UserError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A dataset as `load_dataset` reads it, a file for each split."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub_cache")
    rows = [{"article": f"Text {i}. More.", "highlights": f"Summary {i}.", "n": i} for i in range(10)]
    write_lines(tmp_path / "dataset" / "train.jsonl", rows[:8])
    write_lines(tmp_path / "dataset" / "validation.jsonl", rows[8:])
    return str(tmp_path / "dataset")


def test_a_local_folder_with_slices_and_other_names_of_splits(folder, tmp_path):
    corpus = Hub(folder, document="article", summary="highlights")
    assert corpus.splits() == ["train", "val"]
    dataset = build_documents(corpus, "val", tmp_path / "cache", require_references=True)
    expected = [Document(f"val-{i}", [[f"Text {8 + i}.", "More."]], [[f"Summary {8 + i}."]]) for i in range(2)]
    assert [as_document(row) for row in dataset] == expected
    corpus = Hub(folder, train="train[:75%]", val="train[75%:]", test="validation", document="article", id="n")
    assert corpus.splits() == ["train", "val", "test"]
    assert [record.id for split in corpus.splits() for record in corpus.records(split)] == [str(i) for i in range(10)]


def test_what_cannot_be_had_is_one_clear_line(folder, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for name in ("cnn_dailymail", "nobody/nothing"):
        with pytest.raises(UserError, match=r"the dataset cannot be loaded \(.*check its name.*the network") as error:
            Hub(name).fingerprint("val")
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="validatoin"):
        list(Hub(folder, val="validatoin").records("val"))
    record = next(Hub(folder, document="text").records("val"))
    problem = f"{folder} validation row 0: it has no field 'text' (there are: article, highlights, n)"
    assert isinstance(record, BadRecord) and str(record).startswith(problem)


TOKENS = "One two . \n three ."
ROWS = {  # a row with the columns of each dataset, and the parts and references that it holds
    "cnn_dailymail": ({"article": "A. B.", "highlights": "S .\nT .", "id": "x"}, ["A. B."], [["S .", "T ."]]),
    "xsum": ({"document": "A.\nB.", "summary": "S.", "id": "1"}, ["A.", "B."], ["S."]),
    "multi_news": ({"document": "A. \nB. ||||| C.", "summary": "S."}, ["A. \nB. ", " C."], ["S."]),
    "multi_xscience": ({"abstract": "Own. Too.", "related_work": "S.", "ref_abstract": {"abstract": ["First."]}},
                       ["Own. Too.", "First."], ["S."]),
    "scitldr": ({"source": ["A.", "B."], "paper_id": "p", "target": ["S", "T"]}, [["A.", "B."]], ["S", "T"]),
    "aeslc": ({"email_body": "Hi,\nhere it is.", "subject_line": "Draft"}, ["Hi,", "here it is."], ["Draft"]),
    **dict.fromkeys(("arxiv", "pubmed"), ({"article": TOKENS, "abstract": "s ."}, [TOKENS], ["s ."])),
    "booksum": ({"bid": 1, "chapter": "A\nB\n\nC", "summary_text": "S.", "summary": "{}"}, ["A\nB", "C"], ["S."]),
    **dict.fromkeys(("elife", "plos"), ({"article": "A.\nB.", "summary": "S.", "year": "2020"}, ["A.", "B."], ["S."])),
    "multi_lexsum": ({"id": "c", "sources": ["A.", "B."], "summary/long": "L.", "summary/short": None,
                      "summary/tiny": "T."}, ["A.", "B."], ["L."]),
    "billsum": ({"text": "A.\n\nB.", "summary": "S.", "title": "T"}, ["A.", "B."], ["S."]),
    "gov_report": ({"report": "A.\n\nB.", "summary": "S."}, ["A.", "B."], ["S."]),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_ready_field_maps(name, monkeypatch):
    row, parts, references = ROWS[name]
    load_dataset = Mock(return_value=datasets.Dataset.from_list([row]))
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    corpus = Hub(name)
    assert corpus.splits() == ["train", "val", "test"]
    (record,) = corpus.records("val")
    assert (record.parts, record.references) == (parts, references)
    path, *_ = load_dataset.call_args.args
    assert path.count("/") == 1 and load_dataset.call_args.kwargs["split"] in ("validation", "train[95%:]")


def test_a_stream_has_the_same_documents(folder, tmp_path):
    names = {"document": "article", "summary": "highlights"}
    whole, stream = Hub(folder, **names), Hub(folder, stream=True, **names)
    for split in whole.splits():
        assert list(stream.records(split)) == list(whole.records(split))
    short = Hub(folder, stream=True, max_records=1, **names)
    for limited in (short, Hub(folder, max_records=1, **names)):
        assert list(limited.records("train")) == list(whole.records("train"))[:1]
    corpora = [whole, stream, short, Hub(folder, paragraphs="line", **names), Hub(folder, **names)]
    assert len({corpus.fingerprint(split) for corpus in corpora for split in whole.splits()}) == 8
    assert len(build_documents(short, "train", tmp_path / "cache")) == 1
    with pytest.raises(UserError, match="max_records"):
        Hub(folder, max_records=0)
    # an argument with the default of other corpora replaces that of the dataset
    assert Hub("cnn_dailymail").source.fields.summary_sentences == "line"
    assert Hub("cnn_dailymail", summary_sentences="split").source.fields.summary_sentences == "split"
