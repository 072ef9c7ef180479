"""Pages and tables of `precis compare`, and likelihoods by document."""

import csv
import json
import math
import re
import shutil
from html import unescape
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import change_config, write, write_lines
from run_folders import make_run, prediction
from scipy import stats
from test_compare import ROUGE, SCORES, rows_of

from datamodules.corpora import Files
from datamodules.documents import UserError
from precis.evaluation.compare import LATEX_ESCAPES
from precis.evaluation.likelihood import compare, document_nll, main, runs_of
from precis.runs.run_folder import load_run

HOSTILE = '</script><script>document.title="taken"</script><b id=bold>&amp;'


@pytest.fixture
def page(tmp_path, precis) -> Path:
    curve = {"val/rouge1": [1.0, 5.0, 7.5], "train/loss": [3.0, 2.0, 1.5]}
    rows = [rows_of(run) for run in range(4)]
    rows[0][0]["summary"] = [HOSTILE]
    for row in rows:
        row[0]["references"] = [[HOSTILE]]
    rows[3][5] |= {"words": ["今", "天", "。", "好", "ok", "!"], "copied": [True, True, False, False, True, True]}
    runs = [make_run(tmp_path / f"a{n + 1}", rows[n], seed=n + 1, curve=curve, coverage=False) for n in (0, 1)]
    runs.append(make_run(tmp_path / "b1", rows[2], seed=1, curve=curve))
    runs.append(make_run(tmp_path / "c1", rows[3], seed=1, pointer=False))
    path = tmp_path / "page.html"
    precis("compare", *runs, ROUGE, "--html", path, "--baseline", runs[0]).succeeded()
    return path


def test_the_page_fetches_nothing(page):
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"""\b(src|href)\s*=\s*["']?(?!["'#]|data:)\S""", text)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttp|import\(", text) and text.count("</script>") == 2


@pytest.mark.integration
def test_a_real_browser_shows_table_curves_and_documents(page, tmp_path, browse):
    # What a reader would do, after the page's own script: search for a document, move on with a key.
    acts = """<script>
    const list = document.getElementById("document-list");
    const heading = () => document.querySelector("#document > h3").textContent;
    const before = heading();
    document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "j", bubbles: true}));
    const moved = before !== heading();
    const choose = (id, value) => {
      document.getElementById(id).value = value;
      document.getElementById(id).dispatchEvent(new Event("input"));
    };
    choose("document-text", "ID=BOLD");
    const reference = document.querySelector(".reference p").textContent;
    choose("document-text", "");
    choose("document-system", "1");  // two systems neither of which is the baseline
    choose("document-other", "2");
    const farthest = list.children[0].textContent;
    choose("document-text", "says 5");
    const [bold, hues] = [at("bold") !== null, new Set(Array.from({length: 16}, (_, n) => colour(n))).size];
    document.body.dataset.acts = JSON.stringify({moved, found: list.children.length, reference, bold, farthest, hues});
    choose("distribution-kind", "differences");
    </script></body>"""
    acted = write(tmp_path / "acted.html", page.read_text(encoding="utf-8").replace("</body>", acts))
    plain = browse(page, "--dump-dom")
    dom, done = plain.stdout, browse(acted, "--dump-dom")
    assert "CONSOLE" not in plain.stderr + done.stderr
    table = re.search(r'<table id="score-table">(.*?)</table>', dom, re.S)[1]
    assert table.count("<tr>") == 4 and table.count('class="number"') == 3 * 3
    averaged = (SCORES[0] + SCORES[1]).mean(0) / 2
    assert f"<strong>{averaged[0]:.2f} ± " in table and f"<strong>{SCORES[3, :, 1].mean():.2f}</strong>" in table
    plot = re.search(r'<div id="curve-plot">(.*?)</div>', dom, re.S)[1]
    assert plot.count("<path") == 3 and "coverage=true pointer=true, seed 1" in plot
    assert '<option value="train/loss">' in dom and dom.count("<rect") > 3
    assert "<title>Précis" in dom and "<title>Précis" in done.stdout
    assert dom.count('class="text output"') == 3 and dom.count('class="text reference"') == 1
    assert dom.count('role="option"') == 12 and dom.count('aria-selected="true"') == 1
    acts = json.loads(unescape(re.search(r'data-acts="([^"]*)"', done.stdout)[1]))
    minus = SCORES[2, :, 0] - SCORES[3, :, 0]
    place = int(np.abs(minus).argmax())
    value, name = acts.pop("farthest").split()
    assert name == f"doc-{place}" and float(value.replace("−", "-")) == pytest.approx(minus[place], abs=0.011)
    assert acts == {"moved": True, "found": 1, "reference": HOSTILE, "bold": False, "hues": 16}
    assert '<p dir="auto"><mark>今天</mark>。好<mark>ok !</mark></p>' in done.stdout
    assert done.stdout.count("<rect") < dom.count("<rect")  # the baseline has no difference to itself


@pytest.mark.integration
def test_the_page_has_the_documents_of_the_run(run_folder, tmp_path, precis, documents):
    assert precis("test", "--run", run_folder).status == 0
    shown = tmp_path / "page.html"
    precis("compare", run_folder, ROUGE, "--html", shown).succeeded()
    data = json.loads(re.search(r'id="data">(.*?)</script>', shown.read_text(encoding="utf-8"), re.S)[1])
    assert {row["id"]: row["source"] for row in data["documents"]} == {row["id"]: row["document"] for row in documents}
    change_config(run_folder / "config.yaml", {"data.init_args.corpus.init_args.test": str(tmp_path / "gone.jsonl")})
    notes = precis("compare", run_folder, ROUGE, "--html", shown).succeeded().err
    assert "documents are not shown in the page" in notes and '"source"' not in shown.read_text(encoding="utf-8")


GRID = np.random.default_rng(1).uniform(10, 60, size=(2, 2, 2, 8))  # pointer, width, seeds, documents
MEASURES = "--metric=rouge1,length"


@pytest.fixture
def grid(tmp_path) -> list[Path]:
    runs = []
    for pointer, width, seed in product((0, 1), (0, 1), (1, 2)):
        scores = GRID[pointer, width, seed - 1]
        rows = [prediction(number, "a b c", {"rouge1": score}) for number, score in enumerate(scores.tolist())]
        curve = {"val/rouge1": [1.0, 2.0 + pointer], "train/loss": [3.0, 2.0]}
        folder = tmp_path / f"p{pointer}w{width}s{seed}"
        runs.append(make_run(folder, rows, seed=seed, curve=curve, pointer=bool(pointer), hidden_size=8 << width))
    return runs


def test_csv_has_every_number_and_latex_marks_the_best_mean_and_interprets_no_name(grid, tmp_path, precis):
    done = precis("compare", *grid, MEASURES, "--json", "--csv", tmp_path / "table.csv").succeeded()
    systems = {system["name"]: system for system in json.loads(done.out)["systems"]}
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text(encoding="utf-8").splitlines()))
    places = [(row["hidden_size"], row["pointer"], row["seeds"]) for row in rows]  # grouped by the axes
    assert places == [("8", "false", "2"), ("8", "true", "2"), ("16", "false", "2"), ("16", "true", "2")]
    for row, (width, pointer) in zip(rows, product((0, 1), (0, 1))):
        assert float(row["rouge1_mean"]) == pytest.approx(GRID[pointer, width].mean())
        for measure, cell in systems[row["system"]]["scores"].items():
            for key, value in cell.items():
                text = "" if value is None else str(value)
                assert row.get(f"{measure}_{key}", text) == text
    commands = r"\\(textbackslash|textasciitilde|textasciicircum)\{\}|\\[&%$#_{}]"
    for name in ("a_b", "50 %", "x & y", r"\input{x}", "$a^2$", "~#{}"):
        assert not re.search(r"[\\&%$#_{}~^]", re.sub(commands, "", name.translate(LATEX_ESCAPES))), name
    precis("compare", *grid, MEASURES, "--latex", tmp_path / "table.tex")
    text = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert text.startswith("% ") and "95 % intervals" in text and r"hidden\_size" in text
    assert text.count(r"\midrule") == 2 and text.count(" \\\\\n") == 5
    body = [line.split(" & ") for line in text.splitlines() if line.endswith(r"\\")][1:]
    assert [line[0] for line in body] == ["8", "", "16", ""]
    means = GRID.mean((2, 3))
    assert [line[3].startswith(r"\textbf{") for line in body] == [mean == means.max() for mean in means.T.flat]
    assert rf"{means[0, 0]:.2f}\pm {GRID[0, 0].mean(1).std(ddof=1):.2f}" in body[0][3]
    assert text.count(r"\textbf{") == 1 and text.count("{") == text.count("}")


@pytest.mark.integration
def test_each_document_has_the_likelihood_of_its_tokens(trained, tmp_path, capsys, documents):
    out = tmp_path / "nll.json"
    changes = ["--change", "-", "data.max_target=3"]
    assert main([str(trained), str(trained), "--split", "test", "--out", str(out), *changes]) == 0
    (whole,), (short,) = (list(runs.values()) for runs in json.loads(out.read_text()).values())
    printed, warned = map(str.splitlines, capsys.readouterr())
    assert any(re.search("references differ in tokens .* data.max_target=3", line) for line in warned)
    assert f"{sum(whole.values()) / len(whole):.4f} nats per token, {len(whole)} documents" in printed[0]
    difference = sum(short[id] - whole[id] for id in whole) / len(whole)
    assert f"data.max_target=3: {sum(short.values()) / len(short):.4f} nats" in printed[1]
    assert f"difference {difference:+.4f} [" in printed[1]
    run = load_run(trained, eval_batch_size=len(whole))
    run.data.prepare_splits(["test"])
    (batch,) = run.data.test_dataloader()  # all documents at once, with padding
    with torch.no_grad():
        loss = run.model.loss_terms(batch)["nll"].item()
    assert math.isclose(loss, sum(whole.values()) / len(whole), rel_tol=1e-5)
    assert set(batch.ids) == set(whole) and len(set(whole.values())) > 1
    rows = [documents[0], {"id": "b", "document": "without a reference"}]
    corpus = Files(test=str(write_lines(tmp_path / "test.jsonl", rows)))
    run = load_run(trained, corpus=corpus, eval_batch_size=1, cache_dir=tmp_path)
    assert document_nll(run, "test")[0] == {rows[0]["id"]: whole[rows[0]["id"]]}


def test_the_interval_covers_seeds_that_are_paired_and_the_star_is_after_holms_correction():
    """Runs of one seed differ by d + e with e from the seed alone: its standard error is that of the values of e."""
    rng, gains = np.random.default_rng(0), np.array([0.1, 0.9, 0.5, 0.2, -0.1])
    base = rng.normal(size=(5, 100)) + rng.normal(size=(5, 1))  # seeds differ by more than the systems
    runs = [base, base + rng.normal(0, 0.1, size=(5, 100)) + 1, base + gains[:, None]]
    systems = [[{str(n): value for n, value in enumerate(run)} for run in system] for system in runs]
    lines = compare(systems, ["one", "two", "three"])
    numbers = re.search(r"difference (.*) \[(.*), (.*)\], p (\S*), detectable (.*)", lines[2]).groups()
    test = stats.ttest_1samp(gains, 0)
    detectable = (stats.t.ppf(0.975, 4) + stats.t.ppf(0.8, 4)) * gains.std(ddof=1) / 5**0.5
    expected = [gains.mean(), *test.confidence_interval(), test.pvalue, detectable]
    assert "100 documents, 5 seeds" in lines[2] and list(map(float, numbers)) == pytest.approx(expected, abs=1e-4)
    assert "p <0.0001 *, detectable" in lines[1] and test.pvalue > 0.05
    assert " *" not in compare([runs[:1] for runs in systems[:2]], ["one", "two"])[1]  # of a single seed

    # one run counts for all seeds, and documents are the same
    assert compare([systems[0][:1], systems[1]], ["a", "b"]) == compare([systems[0][:1] * 5, systems[1]], ["a", "b"])
    with pytest.raises(UserError, match="two: scored on other documents than one"):
        compare([[{"a": 1.0, "b": 2.0}], [{"a": 1.0}]], ["one", "two"])


@pytest.mark.integration
def test_runs_of_a_pattern_are_its_seeds(trained, tmp_path, capsys):
    for name, seed in (("own_b", 1), ("own_a", 2), ("other_1", 1), ("other_3", 3)):
        shutil.copytree(trained, tmp_path / name)
        config = tmp_path / name / "config.yaml"
        config.write_text(re.sub(r"seed_everything: \d+", f"seed_everything: {seed}", config.read_text()))
    pattern = str(tmp_path / "own_*")
    assert [path.name for path in runs_of(pattern).values()] == ["own_b", "own_a"]
    assert main([pattern, pattern, "--split", "test"]) == 0
    assert "2 seeds; difference +0.0000 [+0.0000, +0.0000]" in capsys.readouterr().out
    for systems, message in (
        ([pattern, str(tmp_path / "other_*")], "have the seeds 1, 3 and 1, 2; runs are paired by seed"),
        ([str(tmp_path / "o*_[1b]")], "other_1 and own_b have the same seed"),
        ([str(tmp_path / "none_*")], "none_*: no run folder of this name"),
    ):
        assert main(systems) == 1
        assert message in capsys.readouterr().err
