import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import write_lines
from run_folders import SIGNATURES, make_run, prediction, write_sweep_folder
from scipy import stats

from precis.evaluation.compared_systems import RunRecord, read_all, rescore
from precis.statistics.significance import mean_difference, system_interval

SCORES = np.random.default_rng(0).uniform(10, 60, size=(4, 12, 2))  # runs, documents, measures
ROUGE = "--metric=rouge1,rouge2"


def rows_of(run: int, documents=range(12)) -> list[dict]:
    scores = [dict(zip(("rouge1", "rouge2"), values)) for values in SCORES[run].tolist()]
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
    done = precis("compare", *arguments, "--json").succeeded()
    return json.loads(done.out)


def test_seeds_are_averaged_and_statistics_equal_those_of_direct_calls(runs, precis):
    found = compared(precis, *runs, ROUGE)
    first, second = found["systems"]
    assert [system["name"] for system in found["systems"]] == ["coverage=false", "coverage=true"]
    assert [run["seed"] for run in first["runs"]] == [1, 2, 3] and len(second["runs"]) == 1
    assert found["documents"] == 12 and found["baseline"] == "coverage=false"
    assert found["differences"] == {"model.init_args.coverage": [False, True]}
    assert any("fewer than three seeds: coverage=true 1" in note for note in found["notes"])

    averaged, by_hand = SCORES[:3].mean(0), system_interval(SCORES[:3])
    difference = mean_difference(SCORES[3:], SCORES[:3])
    for column, name in enumerate(("rouge1", "rouge2")):
        cell = first["scores"][name]
        assert cell["mean"] == pytest.approx(averaged[:, column].mean())
        assert (cell["low"], cell["high"]) == pytest.approx((by_hand.low[column], by_hand.high[column]))
        by_run = [SCORES[run, :, column].mean() for run in range(3)]
        variance = sum((value - sum(by_run) / 3) ** 2 for value in by_run) / 2
        assert cell["spread"] == pytest.approx(variance**0.5)
        assert cell["difference"] is cell["p"] is None and second["scores"][name]["spread"] is None
        other = second["scores"][name]
        assert other["difference"] == pytest.approx((SCORES[3] - averaged).mean(0)[column])
        assert other["difference_low"] == pytest.approx(difference.low[column])
        assert other["difference_high"] == pytest.approx(difference.high[column])
        assert other["p"] == pytest.approx(difference.p[column]) and not other["significant"]  # a single seed


def shifted(rows: list[dict], gain: float) -> list[dict]:
    """The same outputs with another ROUGE-1."""
    return [row | {"scores": row["scores"] | {"rouge1": row["scores"]["rouge1"] + gain}} for row in rows]


def seeds_of(folder: Path, name: str, gains: list[float], **changes) -> list[Path]:
    """Return a run for each seed of a system, with the scores of the first run plus a gain."""
    return [
        make_run(folder / f"{name}{seed}", shifted(rows_of(0), gain), seed=seed, **changes)
        for seed, gain in enumerate(gains, 1)
    ]


def test_seed_level_p_values_are_welchs_and_stars_are_after_holms_correction(tmp_path, precis):
    gains = {"base": [0.0, 0.4, -0.7], "a": [1.0, 1.2, 1.9], "b": [0.4, 0.6, 1.1]}
    runs = []
    for size, name in enumerate(gains):
        runs += seeds_of(tmp_path, name, gains[name], vocab_size=40 + size)
    result = compared(precis, *runs, "--metric=rouge1")
    assert not any("fewer" in note for note in result["notes"])
    found = result["systems"][1:]
    p_values = [stats.ttest_ind(gains[name], gains["base"], equal_var=False).pvalue for name in ("a", "b")]
    assert [system["scores"]["rouge1"]["p"] for system in found] == pytest.approx(p_values)
    assert p_values[0] < 0.05 < 2 * p_values[0]  # significant alone, and not as one of two
    alone = compared(precis, *runs[:6], "--metric=rouge1")["systems"][1]["scores"]["rouge1"]
    assert alone["significant"] and not found[0]["scores"]["rouge1"]["significant"]


@pytest.mark.parametrize("documents", [12, 24])
def test_files_of_outputs_have_no_seeds_and_need_twenty_documents(documents, tmp_path, precis):
    for name, gain in {"lead": 0.0, "other": 2.0}.items():
        scores = [{"rouge1": score + gain} for score in np.resize(SCORES[0, :, 0], documents).tolist()]
        write_lines(tmp_path / f"{name}.jsonl", [prediction(n, "text", row) for n, row in enumerate(scores)])
    files = [tmp_path / "lead.jsonl", tmp_path / "other.jsonl"]
    result = compared(precis, *files, "--metric=rouge1")
    other = result["systems"][1]["scores"]["rouge1"]
    assert other["p"] == 0.0 and other["significant"] == (documents == 24)  # each document gains as much
    assert any("too few documents (12)" in note for note in result["notes"]) == (documents == 12)
    if documents == 12:
        seeds = seeds_of(tmp_path, "model", [2.9, 3.0, 3.2])
        result = compared(precis, *files, *seeds, "--metric=rouge1")
        model = result["systems"][2]["scores"]["rouge1"]
        assert model["p"] == pytest.approx(stats.ttest_1samp([2.9, 3.0, 3.2], 0).pvalue) and model["significant"]
        assert any("do not depend on a seed: lead, other" in note for note in result["notes"])


def test_descriptive_measures_carry_no_star(tmp_path, precis, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    runs = []
    for size, text in enumerate(("a b c", "a b c d e f")):
        rows = [prediction(number, text, {"rouge1": 1.0}) for number in range(12)]
        runs += [make_run(tmp_path / f"{size}-{seed}", rows, seed=seed, vocab_size=40 + size) for seed in (1, 2, 3)]
    cell = compared(precis, *runs, "--metric=rouge1,length")["systems"][1]["scores"]["length"]
    assert cell["difference"] == 3.0 and cell["p"] < 0.05 and not cell["significant"]
    out = precis("compare", *runs, "--metric=rouge1,length").out
    assert "after Holm's correction for 1 comparison" in " ".join(out.split())  # descriptive measures do not count
    assert " <0.0001" in out and "length: no direction is better, so there is no *" in out and "] *" not in out


def test_the_baseline_can_be_any_run_and_scores_change_their_sign(runs, precis):
    one, other = compared(precis, *runs, ROUGE), compared(precis, *runs, ROUGE, "--baseline", runs[3])
    assert other["baseline"] == "coverage=true"
    given, turned = one["systems"][1]["scores"]["rouge1"], other["systems"][0]["scores"]["rouge1"]
    assert turned["difference"] == pytest.approx(-given["difference"])
    assert compared(precis, *runs, ROUGE, "--baseline", "coverage=true")["baseline"] == "coverage=true"


def test_a_sweep_folder_stands_for_its_runs(tmp_path, precis):
    points = {"attention seed=1": rows_of(0), "attention seed=2": rows_of(1), "pointer seed=1": rows_of(2)}
    folder = write_sweep_folder(tmp_path / "sweep", points, missing="pointer seed=2")
    done = precis("compare", folder, ROUGE, "--json")
    assert "1 of 4 points have no predictions yet" in done.err
    systems = json.loads(done.out)["systems"]
    assert [(system["name"], len(system["runs"])) for system in systems] == [("attention", 2), ("pointer", 1)]
    again = compared(precis, folder, folder / "attention-seed-1", ROUGE)  # given twice, taken once
    assert [len(system["runs"]) for system in again["systems"]] == [2, 1]


def test_runs_of_the_same_config_and_seed_are_no_seeds_of_one_system(tmp_path, precis):
    runs = [make_run(tmp_path / "before", rows_of(0)), make_run(tmp_path / "after", rows_of(1))]
    assert [system["name"] for system in compared(precis, *runs, ROUGE)["systems"]] == ["before", "after"]


def test_a_file_of_predictions_is_a_system_with_the_scores_that_evaluate_wrote(tmp_path, precis):
    run, rows = make_run(tmp_path / "run", rows_of(0)), rows_of(1)
    lead = write_lines(tmp_path / "lead.jsonl", [row | {"scores": {}} for row in rows])
    precis("compare", run, lead, "--metric=bertscore").refused("no scores for 'bertscore'")
    write_lines(tmp_path / "lead.scores.jsonl", [{"id": row["id"], "scores": row["scores"]} for row in rows])
    digest = {"sha256": hashlib.sha256(lead.read_bytes()).hexdigest()}
    (tmp_path / "lead.scores.signatures.json").write_text(json.dumps(digest), encoding="utf-8")
    found = compared(precis, run, lead, ROUGE)
    assert [system["name"] for system in found["systems"]] == ["run", "lead"]
    assert found["systems"][1]["scores"]["rouge1"]["mean"] == pytest.approx(SCORES[1, :, 0].mean())
    assert any("lead.jsonl" in note and "not recorded" in note for note in found["notes"])


def test_scores_of_evaluate_are_those_of_the_predictions_beside_them(tmp_path, precis):
    files = {name: tmp_path / f"{name}.jsonl" for name in ("worse", "better", "lead")}
    for name, text in (("worse", "nothing of it"), ("better", "reference"), ("lead", "reference")):
        write_lines(files[name], [prediction(number, text, {}) for number in range(24)])
    for name in ("better", "lead"):
        assert precis("evaluate", files[name], "--metrics=rouge", "--resamples=50").status == 0
    before = compared(precis, files["lead"], files["better"], "--metric=rouge1")["systems"]
    assert before[1]["scores"]["rouge1"]["difference"] == 0
    files["better"].write_bytes(files["worse"].read_bytes())
    os.utime(files["better"], (1, 1))  # older than the scores, as `cp -p` and `rsync -a` leave it
    done = precis("compare", files["lead"], files["better"], "--metric=rouge1")
    assert done.status == 0 and "better.jsonl: scored with ROUGE, since it had no scores" in done.err
    after = compared(precis, files["lead"], files["better"], "--metric=rouge1")["systems"]
    rouge1 = after[1]["scores"]["rouge1"]  # of the other file, the one word of two is in the reference
    assert rouge1["mean"] == 0 and rouge1["difference"] == pytest.approx(-200 / 3)
    remedy = f"run `precis evaluate {files['better']}` again"
    assert f"better.scores.jsonl: scores of other predictions, ignored; {remedy}" in done.err
    run = make_run(tmp_path / "run", rows_of(0))
    scored = files["lead"].read_bytes().replace(b'"scores": {}', b'"scores": {"rouge1": 1}')
    (run / "predictions.jsonl").write_bytes(scored)
    notes = compared(precis, files["lead"], run, "--metric=rouge1")["notes"]
    assert any(note.startswith(f"it is not recorded how the scores of {run} were computed") for note in notes)


def split_of(run: Path, split: str, rows: list[dict] | None = None) -> Path:
    """Return a run folder with additional predictions of a split."""
    path = run / ("predictions.jsonl" if split == "test" else f"predictions.{split}.jsonl")
    if rows is not None:
        write_lines(path, rows)
        path.with_suffix(".signatures.json").write_text(json.dumps(SIGNATURES), encoding="utf-8")
    results = {"split": split, "scores": {}}
    name = "results.json" if split == "test" else f"results.{split}.json"
    (run / name).write_text(json.dumps(results), encoding="utf-8")
    return path


def test_validation_is_compared_where_it_is_asked_for_or_all_there_is(runs, precis):
    assert compared(precis, *runs, ROUGE)["split"] is None
    assert "of a split that was not recorded" in " ".join(precis("compare", *runs, ROUGE).out.split())
    for run in runs:
        split_of(run, "test")
        split_of(run, "val", [row | {"scores": {"rouge1": 7.0, "rouge2": 7.0}} for row in rows_of(0)])
    assert compared(precis, *runs, ROUGE)["split"] == "test"
    assert "12 documents of the test split" in " ".join(precis("compare", *runs, ROUGE).out.split())
    found = compared(precis, *runs, ROUGE, "--split", "val")
    assert found["split"] == "val" and found["systems"][0]["scores"]["rouge1"]["mean"] == 7.0
    files = [run / "predictions.val.jsonl" for run in runs]
    named = compared(precis, *files, ROUGE)  # files of run folders are their runs
    assert [len(system["runs"]) for system in named["systems"]] == [3, 1] and named["split"] == "val"
    for run in runs:
        (run / "predictions.jsonl").unlink()
    assert compared(precis, *runs, ROUGE)["split"] == "val"


def test_two_splits_are_not_mixed(runs, precis):
    split_of(runs[0], "test")
    validated = split_of(runs[1], "val", rows_of(1))
    problem = ["a1 holds predictions of the test split", "predictions.val.jsonl of the val split; compare one split"]
    precis("compare", runs[0], validated, ROUGE).refused(*problem)
    problem = "a1/predictions.val.jsonl: not found; run `precis validate --run"
    precis("compare", *runs, ROUGE, "--split=val").refused(problem)


def test_ids_with_line_separators_are_one_record(tmp_path, precis):
    rows = rows_of(0)
    for number, row in enumerate(rows):
        row["id"] = row["summary"][0] = f"a\u2028b\u2029c\x85d{number}"
    run = make_run(tmp_path / "run", rows)
    out = tmp_path / "run" / "predictions.jsonl"
    assert "\u2028" in out.read_text(encoding="utf-8")
    assert precis("evaluate", out, "--metrics=rouge", "--resamples=50").status == 0
    assert compared(precis, run, "--metric=rouge1,rougeL")["documents"] == 12


def test_a_broken_file_of_a_run_is_named(tmp_path, precis):
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
    run = make_run(tmp_path / "run", rows_of(0))
    unpredicted = make_run(tmp_path / "unpredicted", rows_of(0))
    (unpredicted / "predictions.jsonl").unlink()
    fewer = make_run(tmp_path / "fewer", rows_of(0, range(11)))
    other = make_run(tmp_path / "other", [{**row, "references": [["another"]]} for row in rows_of(0)])
    unstemmed = {name: text.replace("stem:porter", "stem:none") for name, text in SIGNATURES.items()}
    unlike = make_run(tmp_path / "unlike", rows_of(0), seed=2, signatures=unstemmed)
    torn = make_run(tmp_path / "torn", rows_of(0))
    (torn / "predictions.jsonl").write_text('{"id": "doc-0", "summ', encoding="utf-8")
    twice = make_run(tmp_path / "twice", [*rows_of(0), *rows_of(0)])
    page = tmp_path / "page.html"
    for arguments, said in (
        ([unpredicted], f"predictions.jsonl: not found; run `precis test --run {unpredicted}` first"),
        ([run, fewer], f"fewer: no predictions of 1 document of {run}, such as 'doc-11'; they cannot"),
        ([run, other], "document 'doc-0' has other references than in"),
        ([run, unlike], "unlike: rouge1 was computed as rouge1|stem:none"),
        ([torn], "predictions.jsonl:1: no record"),
        ([twice], "predictions.jsonl:13: id 'doc-0' occurs twice"),
        ([run, "--metric=bleu"], "no scores for 'bleu'; all runs have rouge1, rouge2, length"),
        ([run, "--baseline", fewer], "none of the runs that are compared"),
    ):
        precis("compare", ROUGE, *arguments, "--html", page).failed_in_one_line(said)
        assert not page.exists()


def test_other_versions_and_unknown_ways_are_noted(tmp_path, precis):
    newer = {name: text.replace("precis:0.1.0", "precis:0.2.0") for name, text in SIGNATURES.items()}
    runs = [make_run(tmp_path / "one", rows_of(0)), make_run(tmp_path / "two", rows_of(1), seed=2, signatures=newer)]
    runs.append(make_run(tmp_path / "three", rows_of(2), seed=3, signatures=None))
    notes = compared(precis, *runs, ROUGE)["notes"]
    assert any("rouge1 was computed by several versions of the suite: 0.1.0, 0.2.0" in note for note in notes)
    assert any(str(runs[2]) in note and "not recorded" in note for note in notes)


def test_equal_references_may_be_divided_into_different_sentences(tmp_path, precis):
    runs = {}
    for name, references in (("line", [["a b.", "c d."]]), ("split", [["a b. c d."]]), ("other", [["a b. c e."]])):
        rows = [row | {"references": references} for row in rows_of(0)]
        runs[name] = make_run(tmp_path / name, rows, vocab_size=40 + len(runs))
        config = runs[name] / "config.yaml"
        corpus = {"class_path": "datamodules.corpora.Files", "init_args": {"summary_sentences": name}}
        settings = yaml.safe_load(config.read_text(encoding="utf-8"))
        settings["data"]["init_args"]["corpus"] = corpus
        config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    found = compared(precis, runs["line"], runs["split"], ROUGE)
    assert len(found["systems"]) == 2 and not any("different sentences" in note for note in found["notes"])
    lsum = make_run(tmp_path / "lsum", [row | {"references": [["a b. c d."]]} for row in rows_of(0)])
    for run in (runs["line"], lsum):
        predictions = (run / "predictions.jsonl").read_text(encoding="utf-8").replace("rouge2", "rougeLsum")
        (run / "predictions.jsonl").write_text(predictions, encoding="utf-8")
    notes = compared(precis, runs["line"], lsum, "--metric=rougeLsum")["notes"]
    assert any("into different sentences, on which rougeLsum depends" in note for note in notes)
    done = precis("compare", runs["split"], runs["other"], ROUGE)
    key = "data.init_args.corpus.init_args.summary_sentences"
    assert done.status == 1 and "document 'doc-0' has other references than in" in done.err
    assert f"(their configs differ in {key})" in done.err


@pytest.mark.filterwarnings("error::UserWarning")
def test_runs_and_predictions_are_scored_in_another_language(tmp_path):
    row = {"id": "a", "summary": ["Лодки утонули."], "references": [["Лодки."]]}
    (unscored,) = read_all([write_lines(tmp_path / "lead.jsonl", [row])], language="ru")
    signatures = {"rouge1": "rouge1|stem:porter|tok:rouge"}
    scored = RunRecord(tmp_path, {}, {}, [row | {"scores": {"rouge1": 0.0}}], signatures)
    rescore(scored, "ru")
    for run in (unscored, scored):
        assert run.measures["rouge1"].tolist() == pytest.approx([200 / 3])
        assert run.signatures["rouge1"].startswith("rouge1|stem:snowball|tok:ru|")
