import json

import pytest
from conftest import read_lines, write_lines

from lightning_modules.extractive.baselines import BASELINES


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_over_a_corpus(tmp_path, precis, source, corpus_files, name):
    out = tmp_path / "out.jsonl"
    precis("baseline", name, *source, "--out", out, "--k", 1).succeeded()
    documents = read_lines(corpus_files["test"])
    rows = read_lines(out)
    assert [row["id"] for row in rows] == [document["id"] for document in documents]
    for row, document in zip(rows, documents):
        assert len(row["summary"]) == 1 and row["summary"][0] in document["document"]
        assert row["references"] == [[document["summary"]]]
        if name == "lead":
            assert document["document"].startswith(row["summary"][0])


@pytest.mark.integration
def test_over_a_runs_documents_and_evaluated_with_them(tmp_path, precis, corpus_files, trained):
    out = tmp_path / "lead.jsonl"
    assert precis("baseline", "lead", "--run", trained, "--split", "val", "--k", 2, "--out", out).status == 0
    assert [row["id"] for row in read_lines(out)] == [row["id"] for row in read_lines(corpus_files["val"])]
    done = precis("evaluate", out, "--run", trained, "--split", "val", "--json", "--resamples", 50)
    means = {row["measure"]: row["mean"] for row in json.loads(done.out)["scores"]}
    # what is copied is not new, and all of it lies in a fragment of the source
    assert means["novel_1"] == means["novel_sentences"] == 0 and means["coverage"] == 100
    other = precis("evaluate", out, "--run", trained)  # another split's documents
    assert other.status == 1 and "the test split of" in other.err and "lead.jsonl:1" in other.err


def test_options_reach_the_baseline(tmp_path, precis, source):
    def run(*options: object) -> list[list[str]]:
        precis("baseline", *options, *source, "--out", tmp_path / "out.jsonl").succeeded()
        return [row["summary"] for row in read_lines(tmp_path / "out.jsonl")]

    assert run("random", "--k", 1, "--seed", 1) == run("random", "--k", 1, "--seed", 1)
    assert run("random", "--k", 1, "--seed", 1) != run("random", "--k", 1, "--seed", 2)
    assert len(run("lead", "--documents", 3)) == 3
    assert len(run("lexrank", "--threshold", "none", "--k", 1)) == 7


@pytest.mark.parametrize(("arguments", "parts"), [
    (["lead", "--k", "0"], ["at least one sentence"]),
    (["lead", "--seed", "3"], ["lead has no option --seed", "--k"]),
    (["oracle", "--corpus.summary=null"], ["doc-", "oracle needs a reference"]),
])  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_nothing_is_written(tmp_path, precis, source, arguments, parts):
    precis("baseline", *arguments[:1], *source, *arguments[1:], "--out", tmp_path / "out.jsonl").failed_in_one_line(
        *parts
    )
    assert not list(tmp_path.iterdir())


def test_zero_shot_extraction_takes_its_parts_by_flags(tmp_path, precis, source):
    found = []
    given = ["baseline", "zero_shot", *source, "--out", tmp_path / "out.jsonl", "--k", 2]
    for options in ([], ["--scoring", "centrality"], ["--selector", "mmr", "--trade_off", "0.1"]):
        precis(*given, *options).succeeded()
        found.append([row["summary"] for row in read_lines(tmp_path / "out.jsonl")])
    assert all(len(summary) == 2 for rows in found for summary in rows) and found[0] != found[1]
    wrong = precis(*given, "--pooling", "first")
    assert wrong.status == 2 and "pooling" in wrong.err


def test_a_file_stands_for_a_corpus(tmp_path, precis, corpus_files):
    names = {"document": "article", "summary": "highlights", "id": "id"}
    rows = [{new: row[old] for old, new in names.items()} for row in read_lines(corpus_files["test"])]
    file = write_lines(tmp_path / "mine.jsonl", rows)
    out = tmp_path / "out.jsonl"
    for form in (["--corpus", file], [f"--corpus={file}"], ["--corpus", file, "--corpus.document", "article"]):
        precis("baseline", "lead", *form, "--out", out, "--k", 1).succeeded()
        assert [row["id"] for row in read_lines(out)] == [row["id"] for row in rows]
    assert all(row["references"] == [] for row in read_lines(out))  # the last form names the document alone
