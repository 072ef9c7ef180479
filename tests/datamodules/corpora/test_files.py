"""Documents from files of every kind: fields, ids, shares, and what is wrong with files."""

import bz2
import gzip
import json
import lzma
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import write_lines
from test_other_layouts import documents

from datamodules.corpora import Files
from datamodules.corpora.corpus import build_documents
from datamodules.documents import BadRecord, Document, UserError

ROWS = [
    {"id": "a", "document": 'First point.\nSecond, with "quotes", a comma.\n\nThird: Ärger?', "summary": "One.\nTwo."},
    {"id": "b", "document": "Another text.", "summary": "Its summary."},
]
FIRST = Document("a", [["First point.", 'Second, with "quotes", a comma.'], ["Third: Ärger?"]], [["One.", "Two."]])
DOCUMENTS = [FIRST, Document("b", [["Another text."]], [["Its summary."]])]


def jsonl(rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def csv_bytes(rows, delimiter=",") -> bytes:
    return pd.DataFrame(rows).to_csv(sep=delimiter, index=False).encode()


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def one(rows, tmp_path, **fields):
    """The only record of a file with one row."""
    (record,) = Files(val=write(tmp_path / "x.jsonl", jsonl([rows])), **fields).records("val")
    return record


@pytest.mark.parametrize(("name", "content"), [
    ("x.jsonl", jsonl(ROWS)),
    ("x.ndjson", b"\xef\xbb\xbf" + jsonl(ROWS)),
    ("x.JSONL.GZ", gzip.compress(jsonl(ROWS), mtime=0)),
    ("x.part.jsonl.bz2", bz2.compress(jsonl(ROWS))),
    ("x.jsonl.zst", pa.compress(jsonl(ROWS), "zstd", asbytes=True)),
    ("x.parquet", pd.DataFrame(ROWS).to_parquet()),
    ("x.csv", csv_bytes(ROWS)),
    ("x.csv", csv_bytes([{name + " ": value for name, value in row.items()} for row in ROWS], ";")),
    ("x.csv", pd.DataFrame([{"a;b;c;d;e": 1} | row for row in ROWS]).to_csv(index=False, quoting=1).encode()),
    ("x.tsv.xz", lzma.compress(csv_bytes(ROWS, "\t"))),
])  # fmt: skip
def test_every_kind_of_file_gives_the_same_documents(tmp_path, name, content):
    assert documents(Files(val=write(tmp_path / name, content)), tmp_path, "val") == DOCUMENTS


def test_patterns_and_lists_of_files_are_read_in_order(tmp_path):
    paths = [write(tmp_path / f"{name}.jsonl", jsonl([{"document": name}])) for name in ("part.2", "part", "more")]
    pattern, listed = Files(train=str(tmp_path / "*.jsonl")), Files(train=sorted(paths))
    assert [record.id for record in pattern.records("train")] == ["more-1", "part-1", "part.2-1"]
    assert list(pattern.records("train")) == list(listed.records("train"))


@pytest.mark.parametrize(("row", "fields", "parts", "references"), [
    ({"document": "a\nb\n \n\nc", "summary": ["s", "t"]}, {"paragraphs": "line"}, ["a", "b", " ", "", "c"], ["s", "t"]),
    ({"document": "a\n\nc", "summary": ["s", "t"]}, {"paragraphs": "none", "summary_list": "sentences"},
     ["a\n\nc"], [["s", "t"]]),
    ({"document": "a||b", "summary": [["s", "t"], ["u"]]}, {"separator": "||"}, ["a", "b"], [["s", "t"], ["u"]]),
    ({"document": ["a", "b"], "summary": "s\nt"}, {"summary_sentences": "line"}, ["a", "b"], [["s", "t"]]),
    ({"document": ["a", "b"], "summary": None}, {"document_list": "sentences"}, [["a", "b"]], []),
    ({"document": [["a", "b"], ["c"]], "summary": "s"}, {"summary": None}, [["a", "b"], ["c"]], []),
    ({"document": "a\nb\n\nc", "summary": "s\nt"}, {"document_sentences": "line"}, [["a", "b"], ["c"]], ["s\nt"]),
    ({"document": ["a", "b", "c"], "summary": "s", "more": ["t"]}, {"skip_parts": 1, "summary": ["summary", "more"]},
     ["b", "c"], ["s", "t"]),
    ({"text": "a", "more": ["t"]}, {"document": "text", "summary": ["title", "more"]}, ["a"], ["t"]),
])  # fmt: skip
def test_field_map(tmp_path, row, fields, parts, references):
    record = one(row, tmp_path, **fields)
    assert (record.parts, record.references) == (parts, references)


def test_ids_come_from_a_field_or_the_line_and_splits_without_references_are_for_prediction(tmp_path):
    row = {"document": "a", "summary": "s", "key": 7}
    assert one(row, tmp_path).id == "x-1" and one(row, tmp_path, id="key").id == "7"
    assert one(row | {"id": "n"}, tmp_path).id == "n"
    assert one(row | {"id": 7.0}, tmp_path).id == "7"  # as pandas writes whole numbers
    assert one(row | {"id": "n"}, tmp_path).where == f"{tmp_path / 'x.jsonl'}:1 (id 'n')"
    # a split without references serves prediction only
    corpus = Files(val=write(tmp_path / "x.jsonl", jsonl([{"id": "n", "document": "A text.", "title": "T"}])))
    assert documents(corpus, tmp_path, "val") == [Document("n", [["A text."]], [])]
    with pytest.raises(UserError, match=r"x.jsonl:1 \(id 'n'\) \(fields: id, document, title\): it has no reference"):
        documents(corpus, tmp_path, "val", require_references=True)


@pytest.mark.parametrize(("row", "fields", "problem"), [
    ({"text": "a", "title": "b"}, {}, r"no field 'document' \(there are: text, title\); name .* `document`"),
    ({"document": "a", "summary": "s"}, {"id": "key"}, r"no field 'key' \(there are: document, summary\)"),
    ({"document": None, "summary": "s"}, {}, "field 'document' is null"),
    ({"document": 3, "summary": "s"}, {}, "field 'document' is of type int, not a string or a list of strings"),
    ({"document": ["a", 3], "summary": "s"}, {}, "field 'document' is of type list"),
    ({"document": "a", "summary": "s", "id": 1.5}, {}, "field 'id' is of type float, not a string or an integer"),
])  # fmt: skip
def test_bad_rows_name_the_field(tmp_path, row, fields, problem):
    assert isinstance(one(row, tmp_path, **fields), BadRecord)
    with pytest.raises(UserError, match=rf"x\.jsonl:1.*{problem}"):
        build_documents(Files(val=str(tmp_path / "x.jsonl"), **fields), "val", tmp_path / "cache")


def test_utf16_is_named_and_texts_longer_than_the_csv_modules_limit_are_read(tmp_path):
    with pytest.raises(UserError, match=r"x.jsonl:1: not UTF-8 \(byte 0xff\); convert the file \(iconv -f utf-16"):
        build_documents(Files(val=write(tmp_path / "x.jsonl", jsonl(ROWS).decode().encode("utf-16"))), "val", tmp_path)
    long = "word " * 50_000
    corpus = Files(val=write(tmp_path / "x.csv", csv_bytes([{"document": long, "summary": "S."}])))
    assert next(corpus.records("val")).parts == [long]


@pytest.mark.parametrize(("name", "content", "problem"), [
    ("x.jsonl", jsonl(ROWS[:1]) + b'{"id": "b", "docu\n' + jsonl(ROWS[1:]), "2: broken JSON"),
    ("x.jsonl", jsonl(ROWS[:1]) + b"[1, 2]\n" + jsonl(ROWS[1:]), "2: a JSON list, not an object"),
    ("x.jsonl", jsonl(ROWS[:1]) + '{"document": "é"}\n'.encode("latin1") + jsonl(ROWS[1:]), "2: .*byte 0xe9"),
    ("x.jsonl", jsonl(ROWS) + b"[" * 100_000 + b"\n", "3: broken JSON"),
    ("x.jsonl", jsonl(ROWS) + b'{"id": ' + b"7" * 5000 + b', "document": "x", "summary": "y"}\n', "3: .*4300 digits"),
    ("x.csv", csv_bytes(ROWS) + "c,é,s\n".encode("latin1"), "8: not UTF-8 .byte 0xe9."),
    ("x.csv", csv_bytes(ROWS) + b"c,too,many,fields\n", "8: 4 fields where the header has 3"),
    ("x.csv", csv_bytes(ROWS) + b'c,"open quote\n', "8: broken CSV"),
])  # fmt: skip
def test_bad_lines_are_named_and_the_others_read(tmp_path, name, content, problem):
    corpus = Files(val=write(tmp_path / name, content))
    with pytest.raises(UserError, match=rf"{name}:{problem}.*(?:skip|one object per line)"):
        build_documents(corpus, "val", tmp_path / "cache")
    with pytest.warns(UserWarning, match="left out 1 bad"):
        assert documents(corpus, tmp_path, "val", on_bad_record="skip") == DOCUMENTS


@pytest.mark.parametrize(("name", "content", "problem"), [
    ("x.jsonl.gz", gzip.compress(jsonl(ROWS) * 99, mtime=0)[:-20], "cannot be read .*; get a complete copy"),
    ("x.jsonl.bz2", bz2.compress(jsonl(ROWS))[:-5], "cannot be read .*; get a complete copy"),
    ("x.jsonl.zst", jsonl(ROWS), "cannot be read .*; get a complete copy"),
    ("x.parquet", jsonl(ROWS), "cannot be read .*; get a complete copy"),
    ("x.csv", "Länge;document;summary\n1;A text.;One.\n".encode("latin1"), r"1: not UTF-8 .* latin1 -t utf-8\)$"),
    ("x.csv", b"summary;document;document \nOne.;A text.;Another.\n", "two columns are named 'document'"),
    *((name, b"", r"unknown type of file; .*\.jsonl") for name in ("x.txt", "x.gz", "x", "x.parquet.gz")),
])  # fmt: skip
def test_broken_files_and_unknown_suffixes_are_one_clear_line(tmp_path, name, content, problem):
    with pytest.raises(UserError, match=f"{name}: ?{problem}") as error:
        list(Files(val=write(tmp_path / name, content)).records("val"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["no.jsonl", "no-*.jsonl", ""])
def test_absent_files(tmp_path, name):
    corpus = Files(val=str(tmp_path / name))
    for use in (lambda split: list(corpus.records(split)), corpus.fingerprint):
        with pytest.raises(UserError, match="no such file; check the path of `val`"):
            use("val")


def test_text_of_parquet_that_is_not_utf8_is_named(tmp_path):
    texts = [b"A text.", "Zürich".encode("latin1"), b"Another text."]
    offsets = pa.array([0, *np.cumsum([len(text) for text in texts])], pa.int32())
    column = pa.StringArray.from_buffers(3, offsets.buffers()[1], pa.py_buffer(b"".join(texts)))
    whole = pa.concat_tables([pa.table({"document": column, "summary": ["One."] * 3})] * 100)
    pq.write_table(whole, tmp_path / "bad.parquet")
    records = list(Files(train=str(tmp_path / "bad.parquet")).records("train"))
    assert [bad.where for bad in records[1::3]] == [f"{tmp_path / 'bad.parquet'}:{row}" for row in range(2, 301, 3)]
    assert all(isinstance(bad, BadRecord) and "not UTF-8 (byte 0xfc)" in bad.problem for bad in records[1::3])
    assert [records[row].parts for row in range(300) if row % 3 != 1] == [["A text."], ["Another text."]] * 100
    pq.write_table(pa.table([texts, texts], ["document", "document"]), tmp_path / "twice.parquet")
    with pytest.raises(UserError, match=r"twice.parquet: two columns have the same name"):
        list(Files(train=str(tmp_path / "twice.parquet")).records("train"))


@pytest.mark.parametrize("kind, suffix, pack", [("csv", ".gz", gzip.compress), ("jsonl", ".bz2", bz2.compress)])
def test_a_line_that_would_fill_the_memory_is_refused(kind, suffix, pack, tmp_path, monkeypatch):
    monkeypatch.setattr("datamodules.corpora.readers.LONGEST_LINE", 1 << 20)
    path = tmp_path / f"bomb.{kind}{suffix}"
    path.write_bytes(pack(b"id,document,summary\n" * (kind != "jsonl") + b"a" * (100 << 20)))
    tracemalloc.start()
    with pytest.raises(UserError, match=rf"bomb.{kind}{suffix}:[12]: a line of more than 1 MiB"):
        list(Files(train=str(path)).records("train"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20  # bytes, of 100 MiB unpacked


def test_parquet_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("datamodules.corpora.readers.LONGEST_LINE", 1 << 20)
    path, long = tmp_path / "bomb.parquet", "a" * (2 << 20)
    noise = np.random.default_rng(0).integers(33, 127, 300_000).astype(np.uint8).tobytes().decode()
    problems = {long: ": unpacks to more than 100 times its size", noise * 4: ":3: a row of more than 1 MiB"}
    for text, problem in problems.items():
        rows = pa.table({"document": ["A text."] * 2 + [text] * 100, "summary": ["One."] * 102})
        pq.write_table(rows, path, compression="zstd", write_statistics=False)  # one long text, in a dictionary
        with pytest.raises(UserError, match=rf"bomb\.parquet{problem}"):
            list(Files(train=str(path)).records("train"))


def test_fingerprint_follows_content_and_arguments_not_time(tmp_path):
    prints = []
    for rows in (ROWS, ROWS, ROWS[:1]):
        path = write(tmp_path / "x.jsonl", jsonl(rows))
        prints.append([Files(val=path, paragraphs=split).fingerprint("val") for split in ("line", "none")])
    assert prints[0] == prints[1] and len({*prints[1], *prints[2]}) == 4


def corpus_of(tmp_path, share):
    rows = [{"id": f"d{i}", "document": f"text {i // 2} of a document", "summary": "x"} for i in range(400)]
    return Files(train=str(write_lines(tmp_path / "all.jsonl", rows)), split=share)


def test_documents_are_in_one_split_and_equal_texts_together(tmp_path):
    corpus = corpus_of(tmp_path, 0.25)
    assert corpus.splits() == ["train", "val"]
    train, val = (build_documents(corpus, split, tmp_path / "cache") for split in corpus.splits())
    assert len(train) + len(val) == 400 and not set(train["id"]) & set(val["id"])
    assert 60 <= len(val) <= 140  # 200 different texts: five standard deviations
    assert not {json.dumps(row["parts"]) for row in train} & {json.dumps(row["parts"]) for row in val}
    assert build_documents(corpus_of(tmp_path, 0.25), "val", tmp_path / "other")["id"] == val["id"]


def test_a_test_file_beside_a_share_is_read_whole_and_a_share_is_a_part(tmp_path):
    rows = [{"document": f"test text {number}", "summary": "x"} for number in range(40)]
    path = str(write_lines(tmp_path / "test.jsonl", [*rows, "broken"]))
    corpus, alone = Files(train=path, test=path, split=0.25), Files(test=path)
    assert len(list(alone.records("test"))) == 41 and list(corpus.records("test")) == list(alone.records("test"))
    assert corpus.fingerprint("test") == alone.fingerprint("test")
    assert corpus.fingerprint("train") != corpus.fingerprint("val")
    for share in (0.0, 1.0):
        with pytest.raises(UserError, match=r"corpus\.split"):
            corpus_of(tmp_path, share)
    with pytest.raises(UserError, match=r"Files val .* corpus\.split 0\.001 leaves none of the 41 records for it"):
        build_documents(Files(train=path, split=0.001), "val", tmp_path)
    with pytest.raises(UserError, match="no file for `val`"):
        Files(train="a.jsonl", val="b.jsonl", split=0.1)
