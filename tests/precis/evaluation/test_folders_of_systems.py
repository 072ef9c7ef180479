"""`precis evaluate` on folders of systems and on the layouts of SummEval and RealSumm."""

import json
import pickle

import numpy as np
import pytest
from conftest import write_lines

from precis.evaluation.folders import system_files
from precis.evaluation.layouts import realsumm_rows

WORDS = ["the", "heron", "visits", "an", "old", "mill", "before", "rain", "and", "guards", "it", "at", "night"]
DIMENSIONS = ("coherence", "consistency", "fluency", "relevance")


def outputs(systems=4, documents=5):
    """Summaries of increasing length, with a judgement by three people each: {system: {document: (text, grades)}}."""
    rng, table = np.random.default_rng(3), {}
    for system in range(systems):
        rows = {}
        for document in range(documents):
            text = " ".join(rng.permutation(WORDS)[: 3 + 2 * system])
            rows[f"doc-{document}"] = text, [int(grade) for grade in system + rng.integers(1, 3, size=3)]
        table[f"M{system}"] = rows
    return table


def summeval_rows(system, rows):
    return [
        {"id": name, "decoded": text, "references": [" ".join(WORDS), "a heron"], "model_id": system, "filepath": "x",
         "text": "The heron visits the mill.", "turker_annotations": [],
         "expert_annotations": [{key: grade for key in DIMENSIONS} for grade in grades]}
        for name, (text, grades) in rows.items()
    ]  # fmt: skip


def realsumm(table):
    documents = {}
    for place, name in enumerate(next(iter(table.values()))):
        systems = {
            system: {"system_summary": f"<t> {rows[name][0]} </t>\n<t> it rains . </t>",
                     "scores": {"rouge_1_f_score": 0.5, "litepyramid_recall": np.mean(rows[name][1]) / 10}}
            for system, rows in table.items()
        }  # fmt: skip
        reference = f"<t> {' '.join(WORDS)} . </t> <t> it rains . </t>"
        documents[str(place)] = {"doc_id": name, "ref_summ": reference, "system_summaries": systems}
    return documents


@pytest.fixture
def evaluated(precis):
    """Run the command and read its JSON."""

    def run(*arguments):
        done = precis("evaluate", *arguments, "--json", "--resamples", 50, "--correlation_resamples", 50)
        assert done.status == 0, done.err
        return json.loads(done.out)

    return run


def means(result):
    return {(row["system"], row["measure"]): row["mean"] for row in result["scores"]}


def test_a_folder_has_a_file_for_each_system(tmp_path, evaluated, precis):
    folder, table = tmp_path / "systems", outputs()
    for system, rows in table.items():
        records = [{"id": name, "summary": text, "references": [WORDS]} for name, (text, _) in rows.items()]
        write_lines(folder / f"{system}.jsonl", records)
    (folder / "README.md").write_text("about the systems")
    result = evaluated(folder, "--metrics", "rouge,length", "--html", tmp_path / "board.html")
    assert result["systems"] == ["M0", "M1", "M2", "M3"] and result["documents"] == 5
    for system in table:  # the same as of each file alone
        single = evaluated(folder / f"{system}.jsonl", "--metrics", "rouge,length", "--out", tmp_path / "one.jsonl")
        for (_, measure), mean in means(single).items():
            assert means(result)[system, measure] == pytest.approx(mean)
    written = (tmp_path / "systems.scores.jsonl").read_text().splitlines()
    assert len(written) == 20 and json.loads(written[-1])["system"] == "M3"
    done = precis("evaluate", folder, "--metrics", "rouge,length", "--resamples", 50)
    assert "not read: README.md" in done.err
    lines = [line for line in done.out.splitlines() if any(system in line for system in table)]
    assert [line.split()[1] for line in lines] == ["M3", "M2", "M1", "M0"]  # longer summaries have a higher ROUGE


def test_records_that_the_suite_writes_beside_outputs_are_no_systems(tmp_path):
    for kind in ("jsonl", "scores.jsonl", "answers.jsonl", "signatures.json", "checkpoint.json", "results.json"):
        (tmp_path / f"lead-3.{kind}").write_text("{}\n")
    assert [path.name for path in system_files(tmp_path, (), plain_text=False)] == ["lead-3.jsonl"]


def test_systems_with_different_documents_are_noted(tmp_path, evaluated):
    table = outputs(2)
    del table["M1"]["doc-4"]
    for system, rows in table.items():
        write_lines(tmp_path / "s" / f"{system}.jsonl", summeval_rows(system, rows))
    (note,) = evaluated(tmp_path / "s", "--metrics", "length")["notes"]
    assert note == "means are over different documents: of 5 documents, M1 4"


def test_summeval_files_and_folders_give_the_same(tmp_path, evaluated):
    table = outputs()
    together = write_lines(tmp_path / "all.jsonl", [r for s, rows in table.items() for r in summeval_rows(s, rows)])
    for system, rows in table.items():
        write_lines(tmp_path / "apart" / f"{system}_outputs.aligned.jsonl", summeval_rows(system, rows))
    result, apart = evaluated(together, "--metrics", "rouge"), evaluated(tmp_path / "apart", "--metrics", "rouge")
    assert result["scores"] == apart["scores"] and result["human"] == apart["human"]
    plain = [
        {"id": name, "system": system, "summary": text, "references": [" ".join(WORDS), "a heron"],
         "grade": float(np.mean(grades))}
        for system, rows in table.items() for name, (text, grades) in rows.items()
    ]  # fmt: skip
    expected = evaluated(write_lines(tmp_path / "plain.jsonl", plain), "--metrics", "rouge", "--human", "grade")
    assert means(result) == means(expected)
    found = [row for row in result["human"] if row["judgement"] == "expert_annotations.coherence"]
    assert [row | {"judgement": "grade"} for row in found] == expected["human"]
    assert {row["judgement"] for row in result["human"]} == {f"expert_annotations.{name}" for name in DIMENSIONS}
    row = next(row for row in found if row["level"] == "system" and row["measure"] == "rouge1")
    low, high = row["intervals"]["kendall"]
    assert -1 <= low <= row["kendall"] <= high <= 1


def test_realsumm_as_json(tmp_path, evaluated):
    table = outputs()
    path = tmp_path / "abs.json"
    path.write_text(json.dumps(realsumm(table), indent=1))
    result = evaluated(path, "--metrics", "rouge,length", "--against", "rouge1")
    plain = [
        {"id": name, "system": system, "summary": [text, "it rains ."],
         "references": [[" ".join(WORDS) + " .", "it rains ."]], "grade": float(np.mean(grades) / 10)}
        for name in table["M0"] for system, rows in table.items() for text, grades in [rows[name]]
    ]  # fmt: skip
    path = write_lines(tmp_path / "plain.jsonl", plain)
    expected = evaluated(path, "--metrics", "rouge,length", "--human", "grade", "--against", "rouge1")
    assert means(result) == means(expected)
    assert [row | {"judgement": "grade"} for row in result["human"]] == expected["human"]
    assert {row["judgement"] for row in result["human"]} == {"litepyramid_recall"}
    tested = {row["measure"] for row in result["human"] if "p" in row}
    assert "rouge1" not in tested and "words" in tested


def test_pickles_are_never_read(tmp_path, precis):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "opened"), "w"))

    (tmp_path / "systems").mkdir()
    path = tmp_path / "systems" / "abs.pkl"
    path.write_bytes(pickle.dumps(Trap()))
    for name in (path, path.parent):
        done = precis("evaluate", name)
        assert done.status == 1 and done.err.count("\n") == 1
        assert "a pickle" in done.err and "abs.pkl > abs.json" in done.err
    assert not (tmp_path / "opened").exists()


def test_the_command_that_converts_a_pickle_works(tmp_path, precis, monkeypatch):
    import subprocess

    monkeypatch.chdir(tmp_path)
    (tmp_path / "abs.pkl").write_bytes(pickle.dumps({"1": {"doc_id": "1", "system_summaries": {}}}))
    command = precis("evaluate", "abs.pkl").err.partition("convert it: ")[2]
    subprocess.run(command, shell=True, check=True)
    assert json.loads((tmp_path / "abs.json").read_text())["1"]["doc_id"] == "1"


GOOD = {"id": "a", "summary": "x", "references": "y"}
BAD = {
    "empty folder": ({"notes.md": "x"}, ["no file with summaries in this folder"]),
    "same system twice": (
        {"A.jsonl": json.dumps(GOOD | {"system": "A"}), "B.jsonl": json.dumps(GOOD | {"system": "A"})},
        ["B.jsonl:1", "A.jsonl:1"],
    ),
    "realsumm without outputs": (
        {"a.json": '{"d1": {"system_summaries": {"s": {"scores": {}}}}}'},
        ["a.json: document 'd1'", "system 's' has no 'system_summary'"],
    ),
    "broken realsumm": ({"a.json": '{"d1": {"system_summaries": '}, ["a.json: broken JSON"]),
    "an annotator lacks a grade": (
        {"a.jsonl": json.dumps({**GOOD, "expert_annotations": [{"fluency": 1}, {}]})},
        ["a.jsonl:1", "'expert_annotations.fluency' is missing"],
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_folders_are_one_line_and_nothing_is_written(kind, tmp_path, precis):
    files, parts = BAD[kind]
    folder = tmp_path / "systems"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    done = precis("evaluate", folder, "--html", tmp_path / "board.html")
    assert done.status == 1 and done.err.count("\n") == 1, done.err
    assert all(part in done.err for part in parts), done.err
    assert [path.name for path in tmp_path.iterdir()] == ["systems"]


def test_a_measure_to_test_against_must_be_there(tmp_path, precis):
    rows = [row for system, rows in outputs().items() for row in summeval_rows(system, rows)]
    path = write_lines(tmp_path / "all.jsonl", rows)
    done = precis("evaluate", path, "--metrics", "length", "--against", "rouge1", "--resamples", 50)
    assert done.status == 1 and "--against rouge1: no such measure; there are words" in done.err


def test_the_page_shows_every_number_and_escapes_names(tmp_path, evaluated, browse):
    table = {f"<b>{name}</b>": rows for name, rows in outputs().items()}
    rows = [row for system, rows in table.items() for row in summeval_rows(system, rows)]
    page = tmp_path / "board.html"
    result = evaluated(write_lines(tmp_path / "all.jsonl", rows), "--metrics", "rouge", "--html", page)
    shown = browse(page, "--dump-dom").stdout
    assert "<b>M0</b>" not in shown and "&lt;b&gt;M0&lt;/b&gt;" in shown
    for row in result["scores"]:
        assert f"<strong>{row['mean']:.2f}</strong>" in shown
    # a click on a measure's name sorts by it
    click = "document.querySelector('#scores th button').click();"
    script = f"<script>{click * 2}</script>"
    page.write_text(page.read_text().replace("</body>", script + "</body>"))
    body = browse(page, "--dump-dom").stdout.partition("<tbody>")[2].partition("</tbody>")[0]
    assert [body.find(f"M{system}") for system in range(4)] == sorted(body.find(f"M{system}") for system in range(4))


def test_sentences_of_realsumm_without_a_closing_mark_are_kept(tmp_path):
    output = {"system_summary": "<t> it rains . <t> we stay . </t> <t> a heron ."}
    documents = {"0": {"doc_id": "a", "ref_summ": "no marks", "system_summaries": {"bart": output}}}
    (tmp_path / "all.json").write_text(json.dumps(documents))
    ((_, row),) = realsumm_rows(tmp_path / "all.json")
    assert row["summary"] == ["it rains .", "we stay .", "a heron ."] and row["references"] == "no marks"
