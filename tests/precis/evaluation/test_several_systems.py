"""`precis evaluate` on a file for each system."""

import json

import numpy as np
import pytest
from conftest import write_lines

WORDS = ["the", "heron", "visits", "an", "old", "mill", "before", "rain", "and", "guards", "it", "at", "night"]


def outputs(systems=4, documents=5):
    """Summaries of increasing length: {system: {document: text}}."""
    rng = np.random.default_rng(3)
    return {
        f"M{system}": {f"doc-{n}": " ".join(rng.permutation(WORDS)[: 3 + 2 * system]) for n in range(documents)}
        for system in range(systems)
    }


@pytest.fixture
def evaluated(precis):
    """Run the command and read its JSON."""

    def run(*arguments):
        done = precis("evaluate", *arguments, "--json", "--resamples", 50).succeeded()
        return json.loads(done.out)

    return run


def means(result):
    return {(row["system"], row["measure"]): row["mean"] for row in result["scores"]}


def test_each_file_has_the_outputs_of_a_system(tmp_path, evaluated, precis):
    table, files = outputs(), []
    for system, rows in table.items():
        records = [{"id": name, "summary": text, "references": [WORDS]} for name, text in rows.items()]
        files.append(write_lines(tmp_path / f"{system}.jsonl", records))
    result = evaluated(*files, "--metrics", "rouge,length")
    assert result["systems"] == ["M0", "M1", "M2", "M3"] and result["documents"] == 5
    for path in files:
        written = path.with_suffix(".scores.jsonl").read_text()
        single = evaluated(path, "--metrics", "rouge,length")
        assert path.with_suffix(".scores.jsonl").read_text() == written  # as for each file alone
        for (_, measure), mean in means(single).items():
            assert means(result)[path.stem, measure] == pytest.approx(mean)
    done = precis("evaluate", *files, "--metrics", "rouge,length", "--resamples", 50)
    lines = [line for line in done.out.splitlines() if any(f" {system} " in line for system in table)]
    assert [line.split()[1] for line in lines] == ["M3", "M2", "M1", "M0"]  # longer summaries have a higher ROUGE
    compared = precis("compare", *files, "--metric=rouge1", "--json")
    assert compared.status == 0 and "not recorded" not in compared.out, compared.err


def test_systems_with_different_documents_are_noted(tmp_path, evaluated):
    table, files = outputs(2), []
    del table["M1"]["doc-4"]
    for system, rows in table.items():
        records = [{"id": name, "decoded": text, "references": ["a"], "model": system} for name, text in rows.items()]
        files.append(write_lines(tmp_path / f"{system}.jsonl", records))
    fields = ("--fields.summary=decoded", "--fields.system=model")
    (note,) = evaluated(*files, *fields, "--metrics", "length")["notes"]
    assert note == "means are over different documents: of 5 documents, M1 4"


GOOD = {"id": "a", "summary": "x", "references": "y"}
BAD = {
    "same system twice": (
        {"A.jsonl": GOOD | {"system": "A"}, "B.jsonl": GOOD | {"system": "A"}}, [], ["B.jsonl:1", "A.jsonl:1"],
    ),
    "documents in one file": ({"A.jsonl": GOOD | {"document": "z"}, "B.jsonl": GOOD}, [], ["B.jsonl:1", "no document"]),
    "scores of several files": ({"A.jsonl": GOOD, "B.jsonl": GOOD}, ["--out=scores.jsonl"], ["--out names one file"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_one_line_and_nothing_is_written(kind, tmp_path, precis):
    rows, options, parts = BAD[kind]
    files = [write_lines(tmp_path / name, [row]) for name, row in rows.items()]
    done = precis("evaluate", *files, *options)
    assert done.status == 1 and done.err.count("\n") == 1, done.err
    assert all(part in done.err for part in parts), done.err
    assert sorted(tmp_path.iterdir()) == files
