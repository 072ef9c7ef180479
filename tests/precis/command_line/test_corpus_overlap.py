from itertools import product

from datasets import Dataset

from datamodules.corpora import Files
from datamodules.corpora.corpus import build_documents
from datamodules.corpora.near_copies import shingles
from precis.command_line.corpus_overlap import NEAR, find_overlaps
from tests.conftest import write_lines

TEXT = "the otter guards the old mill by the river every morning before the rain sets in over the quiet valley again"
RECORDS = {
    "train": {"a": TEXT + " " + TEXT.replace("otter", "lynx"), "b": "a heron paints the harbour"},
    "val": {"c": "A heron  paints the HARBOUR", "d": "nobody repairs the tower"},
    "test": {"e": TEXT + " " + TEXT.replace("otter", "lynx") + " today", "f": "a stoat visits the library"},
}


def tables(tmp_path):
    files = {}
    for split, texts in RECORDS.items():
        rows = [{"id": id, "document": text, "summary": "x"} for id, text in texts.items()]
        files[split] = str(write_lines(tmp_path / f"{split}.jsonl", rows))
    return {split: build_documents(Files(**files), split, tmp_path / "cache") for split in files}


def test_equal_texts_are_found_apart_from_case_and_space(tmp_path):
    (overlap,) = find_overlaps(tables(tmp_path), "exact")
    assert overlap == ("val", "c", "train", "b", "exact")
    assert find_overlaps(tables(tmp_path), "off") == []


def test_near_duplicates_equal_those_of_the_exact_similarity(tmp_path):
    found = {(overlap.id, overlap.other_id) for overlap in find_overlaps(tables(tmp_path), "near")}
    expected = set()
    for (earlier, later) in (("train", "val"), ("train", "test"), ("val", "test")):
        for (id, text), (other, former) in product(RECORDS[later].items(), RECORDS[earlier].items()):
            ours, theirs = shingles(text), shingles(former)
            if len(ours & theirs) / len(ours | theirs) >= NEAR:
                expected.add((id, other))
    assert found == expected == {("c", "b"), ("e", "a")}


def test_the_command_counts_them(tmp_path, precis):
    tables(tmp_path)
    files = [f"--corpus.{split}={tmp_path / split}.jsonl" for split in RECORDS]
    done = precis("corpus", "--corpus=Files", *files, "--examples=0", f"--cache_dir={tmp_path / 'cache'}")
    assert done.status == 0, done.err
    assert "val c equals train b" in done.out


def test_the_partner_is_the_first_equal_document_of_an_earlier_split():
    texts = {"train": [TEXT + " today", TEXT, TEXT], "val": [TEXT, TEXT.upper(), TEXT + " today"], "test": [TEXT] * 2}
    rows = {
        split: [{"id": f"{split}-{number}", "parts": [[text]], "references": []} for number, text in enumerate(splits)]
        for split, splits in texts.items()
    }
    found = find_overlaps({split: Dataset.from_list(table) for split, table in rows.items()}, "near")
    assert [(overlap.id, overlap.other_id, overlap.kind) for overlap in found] == [
        ("val-0", "train-1", "exact"),
        ("val-1", "train-1", "exact"),
        ("val-2", "train-0", "exact"),
        ("test-0", "train-1", "exact"),
        ("test-1", "train-1", "exact"),
    ]
