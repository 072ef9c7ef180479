import json
import math
import random

import pytest
import torch
from conftest import write, write_lines
from made_up_treebank import made_up_row, made_up_treebank

from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.metrics.parseval import parseval_scores
from precis.discourse.score_parser import intervals
from precis.statistics.statistics import resampled_sums


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("parser") / "random"
    torch.manual_seed(0)
    DiscourseParser(members=2, hidden_size=8, fit_size=4, dropout=0.0).eval().save(folder)
    return str(folder)


def test_intervals_are_quantiles_of_resampled_scores():
    rng = random.Random(0)
    counts = torch.tensor([[rng.randrange(9) for _ in range(4)] + [10, 12] for _ in range(12)])
    sums = resampled_sums(counts.double().numpy(), 500, 0)
    for column, interval in enumerate(intervals(counts, parseval_scores, 500)):
        drawn = sorted(200 * row[column] / (row[4] + row[5]) for row in sums)
        assert interval.mean == pytest.approx(200 * counts[:, column].sum().item() / (12 * 22))
        assert drawn[11] <= interval.low <= drawn[13] and drawn[486] <= interval.high <= drawn[488]
    assert all(math.isnan(value) for value in intervals(torch.zeros(3, 6), parseval_scores, 10)[0])


def test_scores_of_a_parser(precis, weights, tmp_path):
    treebank, out = made_up_treebank(tmp_path / "made_up.jsonl"), tmp_path / "scores"
    done = precis("score-parser", treebank, "--parser", weights, "--out", out, "--resamples", 50).succeeded()
    for text in ("original Parseval, gold EDUs | right-branching", "RST-Parseval, end to end", "EDU F1"):
        assert text in done.out
    assert (out / "scores.md").read_text().strip() == done.out.strip()
    result = json.loads((out / "scores.json").read_text())
    assert result["documents"] == 6 and result["edus"] == 48
    assert set(result["gold_edus"]) == {"random", "right-branching"}
    segmentation = result["end_to_end"]["segmentation_f1"]
    assert 0 < segmentation["low"] <= segmentation["value"] <= segmentation["high"] <= 100


@pytest.mark.integration
def test_a_treebank_with_relations_of_its_own(precis, tmp_path):
    """Train, score and parse with relation names that no inventory of the suite has."""
    names = {"causal-cause": "because", "adversative-concession": "yet", "contingency-condition": "if"}
    rows = made_up_treebank(tmp_path / "gum.jsonl").read_text(encoding="utf-8")
    for old, new in {**names, "joint-list": "and"}.items():
        rows = rows.replace(old, new)
    treebank, run = write(tmp_path / "own.jsonl", rows), tmp_path / "run"
    arguments = ["--model=DiscourseParser", "--model.hidden_size=8", "--data=TreebankData", f"--run_dir={run}"]
    arguments += [f"--data.train={treebank}", f"--data.val={treebank}", "--trainer.max_steps=1"]
    arguments += ["--trainer.accelerator=cpu", "--checkpoint.monitor=val/loss", "--checkpoint.mode=min", "--wandb=off"]
    precis("fit", *arguments).refused("is not in the inventory GUM; choose that of its treebank (--model.inv")
    precis("fit", *arguments, "--model.inventory={hypotactic: [because, yet, if], and: []}").succeeded()
    scoring = ["score-parser", treebank, "--parser", run, "--out", tmp_path / "scores", "--resamples", 10]
    precis(*scoring).succeeded()
    assert json.loads((tmp_path / "scores" / "scores.json").read_text(encoding="utf-8"))["relations"] == 2
    text = "The otter swam, because it rained. The heron watched, and nobody else did. Then they left."
    out = precis("parse", "--parser", run, "--show", write(tmp_path / "a.txt", text)).succeeded().out
    assert "hypotactic" in out or " and" in out.replace(text, "")


@pytest.mark.parametrize("change, options, problem", [
    ({"tree": None}, [], "made_up.jsonl: made-up-1 has no tree; a parser is scored on gold trees"),
    ({"tree": ["NS", "odd", 0, 1], "edus": [[0, 15], [16, 34]], "text": "The otter slept because it rained.",
      "sentences": [], "paragraphs": []}, [], "made-up-1, EDUs 0"),
    ({}, ["--parser", "nobody"], "no parser 'nobody'"),
    ({}, ["--out", __file__], "a file; name a folder"),
])  # fmt: skip
def test_wrong_input_in_one_line(precis, tmp_path, change, options, problem):
    row = made_up_row(1, 3) | {"tree_nary": None} | change
    row = {name: value for name, value in row.items() if value is not None}
    path = write_lines(tmp_path / "made_up.jsonl", [made_up_row(0, 3), row])
    precis("score-parser", path, "--parser", "right_branching", *options).failed_in_one_line(problem)
    precis("score-parser", tmp_path / "none.jsonl").failed_in_one_line("no such file or folder")
