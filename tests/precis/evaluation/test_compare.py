import hashlib
import json
import os
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
from conftest import change_config, write_lines
from nltk.tokenize import RegexpTokenizer
from rouge_score.rouge_scorer import RougeScorer
from run_folders import SIGNATURES, make_run, prediction, write_sweep_folder
from scipy import stats

from precis.statistics.significance import mean_difference, system_interval

SCORES = np.random.default_rng(0).uniform(10, 60, size=(4, 12, 2))  # runs, documents, measures
ROUGE = "--metric=rouge1,rouge2"


def rows_of(run: int, documents=range(12), gain: float = 0.0) -> list[dict]:
    scores = [{"rouge1": rouge1 + gain, "rouge2": rouge2} for rouge1, rouge2 in SCORES[run].tolist()]
    return [prediction(number, f"run {run} says {number}", scores[number]) for number in documents]


@pytest.fixture
def runs(tmp_path) -> list[Path]:
    """Three seeds of one system, the third's documents in another order, and one run of another."""
    return [
        make_run(tmp_path / "a1", rows_of(0), seed=1, coverage=False),
        make_run(tmp_path / "a2", rows_of(1), seed=2, coverage=False),
        make_run(tmp_path / "a3", rows_of(2, reversed(range(12))), seed=3, coverage=False),
        make_run(tmp_path / "b1", rows_of(3), seed=1),
    ]


def compared(precis, *arguments) -> dict:
    return json.loads(precis("compare", *arguments, "--json").succeeded().out)


def noted(result: dict, text: str) -> bool:
    return any(text in note for note in result["notes"])


def test_seeds_are_averaged_and_statistics_equal_those_of_direct_calls(runs, precis):
    result = compared(precis, *runs, ROUGE)
    first, second = result["systems"]
    assert [first["name"], second["name"]] == ["coverage=false", "coverage=true"]
    assert [run["seed"] for run in first["runs"]] == [1, 2, 3] and len(second["runs"]) == 1
    assert result["documents"] == 12 and result["baseline"] == "coverage=false"
    assert result["differences"] == {"model.init_args.coverage": [False, True]}
    assert noted(result, "fewer than three seeds: coverage=true 1")
    averaged, interval = SCORES[:3].mean(0), system_interval(SCORES[:3])
    difference = mean_difference(SCORES[3:], SCORES[:3])
    for column, name in enumerate(("rouge1", "rouge2")):
        cell, other = first["scores"][name], second["scores"][name]
        expected = {"mean": averaged[:, column].mean(), "low": interval.low[column], "high": interval.high[column]}
        expected["spread"] = np.std(SCORES[:3, :, column].mean(1), ddof=1)
        assert {key: cell[key] for key in expected} == pytest.approx(expected)
        expected = {"difference": (SCORES[3] - averaged).mean(0)[column], "p": difference.p[column]}
        expected |= {"difference_low": difference.low[column], "difference_high": difference.high[column]}
        assert {key: other[key] for key in expected} == pytest.approx(expected)
        assert cell["difference"] is cell["p"] is other["spread"] is None and not other["significant"]  # a single seed

    turned = compared(precis, *runs, ROUGE, "--baseline", runs[3])
    difference = turned["systems"][0]["scores"]["rouge1"]["difference"]
    assert turned["baseline"] == "coverage=true"
    assert difference == pytest.approx(-second["scores"]["rouge1"]["difference"])
    assert compared(precis, *runs, ROUGE, "--baseline", "coverage=true")["baseline"] == "coverage=true"


def seeds_of(folder: Path, name: str, gains: list[float], **changes) -> list[Path]:
    """Return a run for each seed of a system, with the scores of the first run plus a gain."""
    outputs = [rows_of(0, gain=gain) for gain in gains]
    return [make_run(folder / f"{name}{seed}", output, seed=seed, **changes) for seed, output in enumerate(outputs, 1)]


def test_seed_level_p_values_are_welchs_and_files_of_outputs_have_no_seeds(tmp_path, precis):
    gains = {"base": [0.0, 0.4, -0.7], "a": [1.0, 1.2, 1.9], "b": [0.4, 0.6, 1.1]}
    runs = []
    for size, name in enumerate(gains):
        runs += seeds_of(tmp_path, name, gains[name], vocab_size=40 + size)
    result = compared(precis, *runs, "--metric=rouge1")
    cells = [system["scores"]["rouge1"] for system in result["systems"][1:]]
    p_values = [stats.ttest_ind(gains[name], gains["base"], equal_var=False).pvalue for name in ("a", "b")]
    assert [cell["p"] for cell in cells] == pytest.approx(p_values) and not noted(result, "fewer")
    alone = compared(precis, *runs[:6], "--metric=rouge1")["systems"][1]["scores"]["rouge1"]
    assert p_values[0] < 0.05 < 2 * p_values[0] and alone["significant"] and not cells[0]["significant"]
    files = [tmp_path / "lead.jsonl", tmp_path / "other.jsonl"]
    for documents in (24, 12):
        for path, gain in zip(files, (0.0, 2.0)):
            scores = [{"rouge1": score + gain} for score in np.resize(SCORES[0, :, 0], documents).tolist()]
            write_lines(path, [prediction(n, "text", row) for n, row in enumerate(scores)])
        result = compared(precis, *files, "--metric=rouge1")
        other = result["systems"][1]["scores"]["rouge1"]
        assert other["p"] == 0.0 and other["significant"] == (documents == 24)  # each document gains as much
        assert noted(result, "too few documents (12)") == (documents == 12)
    result = compared(precis, *files, *seeds_of(tmp_path, "model", [2.9, 3.0, 3.2]), "--metric=rouge1")
    model = result["systems"][2]["scores"]["rouge1"]
    assert model["p"] == pytest.approx(stats.ttest_1samp([2.9, 3.0, 3.2], 0).pvalue) and model["significant"]
    assert noted(result, "do not depend on a seed: lead, other")


def test_descriptive_measures_carry_no_star_and_a_sweep_folder_stands_for_its_runs(tmp_path, precis, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    runs = []
    for size, text in enumerate(("a b c", "a b c d e f")):
        scores = {"rouge1": 1.0, "words": 3.0 * size, "repeated_2": 4.0 * size}  # as those of `precis evaluate`
        rows = [prediction(number, text, scores) for number in range(12)]
        runs += [make_run(tmp_path / f"{size}-{seed}", rows, seed=seed, vocab_size=40 + size) for seed in (1, 2, 3)]
    cell = compared(precis, *runs, "--metric=rouge1,length")["systems"][1]["scores"]["length"]
    assert cell["difference"] == 3.0 and cell["p"] < 0.05 and not cell["significant"]
    out = precis("compare", *runs, "--metric=rouge1,length,words,repeated_2", "--latex", tmp_path / "table").out
    assert (tmp_path / "table").read_text(encoding="utf-8").count(r"\textbf") == 1, "only the best rouge1 is bold"
    assert "after Holm's correction for 1 comparison" in " ".join(out.split())  # descriptive measures do not count
    assert "length, words, repeated_2: no direction is better, so there is no *" in out
    assert " <0.0001" in out and "] *" not in out
    points = {"attention seed=1": rows_of(0), "attention seed=2": rows_of(1), "pointer seed=1": rows_of(2)}
    folder = write_sweep_folder(tmp_path / "sweep", points, missing="pointer seed=2")
    for again in ([], [folder / "attention-seed-1"]):  # named twice, taken once
        done = precis("compare", folder, *again, ROUGE, "--json")
        systems = json.loads(done.out)["systems"]
        assert [(system["name"], len(system["runs"])) for system in systems] == [("attention", 2), ("pointer", 1)]
        assert "1 of 4 points have no predictions yet" in done.err
    # runs of the same config and seed are no seeds of one system
    runs = [make_run(tmp_path / "before", rows_of(0)), make_run(tmp_path / "after", rows_of(1))]
    assert [system["name"] for system in compared(precis, *runs, ROUGE)["systems"]] == ["before", "after"]


def test_scores_of_evaluate_are_those_of_the_predictions_beside_them(tmp_path, precis):
    worse, better, lead = (tmp_path / f"{name}.jsonl" for name in ("worse", "better", "lead"))
    for path, text in ((worse, "nothing of it"), (better, "reference"), (lead, "reference")):
        write_lines(path, [prediction(number, text, {}) for number in range(24)])
    precis("compare", better, lead, "--metric=bertscore").refused("no scores for 'bertscore'")
    unscored = precis("compare", lead, better, "--metric=rouge1,rougeLsum", "--json").succeeded()
    assert unscored.err.count("scored with ROUGE, since it had no scores") == 2
    for path in (better, lead):
        assert precis("evaluate", path, "--metrics=rouge", "--resamples=50").status == 0
    scored = precis("compare", lead, better, "--metric=rouge1,rougeLsum", "--json").succeeded()
    systems = json.loads(scored.out)["systems"]
    assert scored.err == "" and systems == json.loads(unscored.out)["systems"]
    cell = systems[1]["scores"]["rouge1"]  # one word of the two of the reference
    assert [system["name"] for system in systems] == ["lead", "better"]
    assert cell["mean"] == pytest.approx(200 / 3) and cell["difference"] == 0
    better.write_bytes(worse.read_bytes())
    os.utime(better, (1, 1))  # older than the scores, as `cp -p` and `rsync -a` leave it
    done = precis("compare", lead, better, "--metric=rouge1").succeeded()
    assert "better.jsonl: scored with ROUGE, since it had no scores" in done.err
    assert f"scores.jsonl: scores of other predictions, ignored; run `precis evaluate {better}` again" in done.err
    cell = compared(precis, lead, better, "--metric=rouge1")["systems"][1]["scores"]["rouge1"]
    assert cell["mean"] == 0 and cell["difference"] == pytest.approx(-200 / 3)
    run = make_run(tmp_path / "run", rows_of(0))
    (run / "predictions.jsonl").write_bytes(lead.read_bytes().replace(b'"scores": {}', b'"scores": {"rouge1": 1}'))
    write_lines(tmp_path / "lead.scores.signatures.json", [{"sha256": hashlib.sha256(lead.read_bytes()).hexdigest()}])
    notes = compared(precis, lead, run, "--metric=rouge1")["notes"]
    (note,) = (note for note in notes if note.startswith("it is not recorded how the scores of"))
    assert str(run) in note and str(lead) in note


def test_validation_is_compared_where_it_is_asked_for_or_all_there_is(runs, precis):
    assert compared(precis, *runs, ROUGE)["split"] is None
    for run in runs:
        write_lines(run / "results.json", [{"split": "test", "scores": {}}])
        write_lines(run / "results.val.json", [{"split": "val", "scores": {}}])
        write_lines(run / "predictions.val.signatures.json", [SIGNATURES])
        rows = [row | {"scores": {"rouge1": 7.0, "rouge2": 7.0}} for row in rows_of(0)]
        write_lines(run / "predictions.val.jsonl", rows)
    assert compared(precis, *runs, ROUGE)["split"] == "test"
    assert "12 documents of the test split" in " ".join(precis("compare", *runs, ROUGE).out.split())
    result = compared(precis, *runs, ROUGE, "--split", "val")
    assert result["split"] == "val" and result["systems"][0]["scores"]["rouge1"]["mean"] == 7.0
    files = [run / "predictions.val.jsonl" for run in runs]
    named = compared(precis, *files, ROUGE)  # files of run folders are their runs
    assert [len(system["runs"]) for system in named["systems"]] == [3, 1] and named["split"] == "val"
    both = ["a1 holds predictions of the test split", "predictions.val.jsonl of the val split; compare one split"]
    precis("compare", runs[0], files[1], ROUGE).refused(*both)
    for run in runs:
        (run / "predictions.jsonl").unlink()
    assert compared(precis, *runs, ROUGE)["split"] == "val"
    files[0].unlink()
    precis("compare", *runs, ROUGE, "--split=val").refused("a1/predictions.val.jsonl: not found; run `precis validate")


def test_ids_with_line_separators_are_one_record_and_a_broken_file_of_a_run_is_named(tmp_path, precis):
    rows = rows_of(0)
    for number, row in enumerate(rows):
        row["id"] = row["summary"][0] = f"a\u2028b\u2029c\x85d{number}"
    run = make_run(tmp_path / "run", rows)
    assert precis("evaluate", tmp_path / "run" / "predictions.jsonl", "--metrics=rouge", "--resamples=50").status == 0
    assert compared(precis, run, "--metric=rouge1,rougeL")["documents"] == 12
    for number, (name, content) in enumerate((
        ("predictions.jsonl", b"\xff\xfe"),
        ("predictions.jsonl", b'{"id": ["a"], "summary": [], "references": []}\n'),
        ("predictions.signatures.json", b"{"),
        ("results.json", b"nothing"),
        ("metrics.csv", b"\x00\xff\xfe\x01"),
        ("config.yaml", b"a: " + b"[" * 5000),
    )):  # fmt: skip
        run = make_run(tmp_path / f"run{number}", rows_of(0), curve={"val": [1.0]})
        (run / name).write_bytes(content)
        precis("compare", run, ROUGE, "--html", tmp_path / "page.html").failed_in_one_line(f"run{number}/{name}")
        assert not (tmp_path / "page.html").exists()


def test_what_cannot_be_compared_is_named_and_nothing_is_written(tmp_path, precis):
    outputs, page = rows_of(0), tmp_path / "page.html"
    unstemmed = {name: text.replace("stem:porter", "stem:none") for name, text in SIGNATURES.items()}
    run, unpredicted, torn = (make_run(tmp_path / name, outputs) for name in ("run", "unpredicted", "torn"))
    (unpredicted / "predictions.jsonl").unlink()
    (torn / "predictions.jsonl").write_text('{"id": "doc-0", "summ', encoding="utf-8")
    fewer, twice = make_run(tmp_path / "fewer", outputs[:11]), make_run(tmp_path / "twice", outputs * 2)
    unlike = make_run(tmp_path / "unlike", outputs, seed=2, signatures=unstemmed)
    for arguments, message in (
        ([unpredicted], f"predictions.jsonl: not found; run `precis test --run {unpredicted}` first"),
        ([run, fewer], f"fewer: no predictions of 1 document of {run}, such as 'doc-11'; they cannot"),
        ([run, unlike], f"in {run} as rouge1|stem:porter|tok:rouge|split:given|refs:best; compute ROUGE of both again"),
        ([torn], "predictions.jsonl:1: no record"),
        ([twice], "predictions.jsonl:13: id 'doc-0' occurs twice; give a file for each system"),
    ):
        precis("compare", ROUGE, *arguments, "--html", page).failed_in_one_line(message)
        assert not page.exists()


def test_other_versions_unknown_ways_and_references_divided_into_other_sentences_are_noted(tmp_path, precis):
    newer = {name: text.replace("precis:0.1.0", "precis:0.2.0") for name, text in SIGNATURES.items()}
    ways = enumerate((SIGNATURES, newer, None))
    runs = [make_run(tmp_path / f"{n}", rows_of(n), seed=n, signatures=way) for n, way in ways]
    result = compared(precis, *runs, ROUGE)
    assert noted(result, "rouge1 was computed by several versions of the suite: 0.1.0, 0.2.0")
    assert any(str(runs[2]) in note and "not recorded" in note for note in result["notes"])

    runs, key = {}, "data.init_args.corpus.init_args.summary_sentences"
    for name, references in (("line", [["a b.", "c d."]]), ("split", [["a b. c d."]]), ("other", [["a b. c e."]])):
        rows = [row | {"references": references} for row in rows_of(0)]
        runs[name] = make_run(tmp_path / name, rows, vocab_size=40 + len(runs))
        change_config(runs[name] / "config.yaml", {key: name})
    assert not noted(compared(precis, runs["line"], runs["split"], ROUGE), "different sentences")
    done = precis("compare", runs["split"], runs["other"], ROUGE)
    done.refused("document 'doc-0' has other references than in", f"(their configs differ in {key})")
    for run in (runs["line"], runs["split"]):
        predictions = (run / "predictions.jsonl").read_text(encoding="utf-8").replace("rouge2", "rougeLsum")
        (run / "predictions.jsonl").write_text(predictions, encoding="utf-8")
    assert noted(compared(precis, runs["line"], runs["split"], "--metric=rougeLsum"), "on which rougeLsum depends")


@pytest.mark.filterwarnings("error::UserWarning")
def test_rouge_in_another_language_does_not_depend_on_the_form_of_records(tmp_path, precis):
    summary, reference = ["学校が休み。", "今日は雨。"], ["今日は大雨。", "学校が今日は休み。"]
    paths = []
    for number, form in enumerate(("".join, list, "\n".join, lambda texts: normalize("NFD", "".join(texts)))):
        record = {"id": (1, "1", 1.0, "1")[number], "summary": form(summary), "references": [form(reference)]}
        record |= {"scores": {"rouge1": 1.0}} if number else {}
        paths.append(write_lines(tmp_path / f"{number}.jsonl", [record]))
    result = compared(precis, *paths, "--language=ja", "--metric=rouge1,rougeLsum")
    scorer = RougeScorer(["rouge1", "rougeLsum"], tokenizer=RegexpTokenizer(r"\w"))
    for name, score in scorer.score("\n".join(reference), "\n".join(summary)).items():
        means = [system["scores"][name]["mean"] for system in result["systems"]]
        assert means == pytest.approx([100 * score.fmeasure] * 4) and not noted(result, "different sentences")
    write_lines(paths[0], [record | {"references": [""]}])
    precis("compare", paths[0], "--language=de").failed_in_one_line("0.jsonl:1 (id '1'): the reference is empty")
