"""Last lines of the commands: the score beside lead-1, and the next command."""

import json

import pytest
from conftest import read_lines

from datamodules.documents import Document
from lightning_modules.metrics.lead import lead_scores
from lightning_modules.metrics.rouge import rouge_scores


@pytest.fixture(scope="module")
def leads(documents) -> dict[str, float]:
    """ROUGE of the first sentences of the test split, document by document."""
    scores = [
        rouge_scores([row["document"].split(". ")[0] + "."], [[row["summary"]]], ("rouge1", "rouge2", "rougeLsum"))
        for row in documents
    ]
    return {name: 100 * sum(score[name].fmeasure for score in scores) / len(scores) for name in scores[0]}


def test_documents_without_a_reference_do_not_count():
    documents = [Document("a", [["A cat sat.", "It left."]], [["a cat"]]), Document("b", [["A dog ran."]], [])]
    assert lead_scores(documents)["rouge1"] == pytest.approx(80) and lead_scores(documents[1:]) == {}


@pytest.mark.integration
def test_training_and_tests_end_with_the_score_beside_lead_1(tiny_config, leads, tmp_path, precis, caplog):
    run = tmp_path / "run"
    assert precis("fit", "--config", tiny_config, "--run_dir", run, "--trainer.max_steps", 8).status == 0
    assert "trained for 8 steps; best validation ROUGE-1 " in caplog.text
    assert "the first sentence of each document (lead-1) has " in caplog.text
    assert f"next: precis test --run {run}" in caplog.text
    caplog.clear()
    assert precis("test", "--run", run).status == 0
    assert "trained for 7 steps" in caplog.text or "trained for 8 steps" in caplog.text
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    assert results["lead1"] == pytest.approx(leads)
    line = f"test: ROUGE-1 {results['scores']['test/rouge1']:.2f}; the first sentence of each document (lead-1) has"
    assert f"{line} {leads['rouge1']:.2f}\nnext: precis report {run}" in caplog.text
    # what the test has recorded stands below the tables of later commands
    recorded = f"lead-1, the first sentence of each document: rouge1 {leads['rouge1']:.2f}"
    predictions = run / "predictions.jsonl"
    done = precis("evaluate", predictions, "--metrics", "rouge")
    assert recorded in done.out
    assert done.out.splitlines()[-1] == f"next: precis compare {predictions} --html page.html"
    done = precis("compare", run)
    assert recorded in done.out and done.out.splitlines()[-1] == f"next: precis compare {run} --html page.html"
    caplog.clear()
    assert precis("validate", "--run", run).status == 0
    assert "val: ROUGE-1 " in caplog.text and f"next: precis test --run {run}" in caplog.text


def test_compare_scores_what_nobody_scored(corpus_files, source, tmp_path, precis):
    files = [tmp_path / "lead.jsonl", tmp_path / "random.jsonl"]
    for path in files:
        assert precis("baseline", path.stem, *source, "--out", path, "--k", 1).status == 0
    done = precis("compare", *files, "--json")
    assert done.status == 0 and done.err.count("scored with ROUGE, since it had no scores") == 2, done.err
    compared = json.loads(done.out)["systems"]
    for path, system in zip(files, compared):
        assert precis("evaluate", path, "--metrics", "rouge").status == 0
        values = [row["scores"]["rougeLsum"] for row in read_lines(path.with_name(f"{path.stem}.scores.jsonl"))]
        assert system["scores"]["rougeLsum"]["mean"] == pytest.approx(sum(values) / len(values))
    again = precis("compare", *files, "--json")
    assert again.err == "" and json.loads(again.out)["systems"] == compared
