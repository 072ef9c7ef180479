"""The page of `precis compare --html`, by its text and in a real browser."""

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from conftest import read_lines, write
from run_folders import make_run
from test_compare import ROUGE, SCORES, rows_of

HOSTILE = '</script><script>document.title="taken"</script><b id=bold>&amp;'


@pytest.fixture
def page(tmp_path, precis) -> Path:
    curve = {"val/rouge1": [1.0, 5.0, 7.5], "train/loss": [3.0, 2.0, 1.5]}
    rows = [rows_of(run) for run in range(4)]
    rows[0][0] |= {"summary": [HOSTILE], "references": [[HOSTILE]]}
    rows[1][0]["references"] = rows[2][0]["references"] = rows[3][0]["references"] = [[HOSTILE]]
    rows[3][5] |= {"words": ["run", "3", "says", "5"], "copied": [True, True, False, True]}
    runs = [
        make_run(tmp_path / "a1", rows[0], seed=1, curve=curve, coverage=False),
        make_run(tmp_path / "a2", rows[1], seed=2, curve=curve, coverage=False),
        make_run(tmp_path / "b1", rows[2], seed=1, curve=curve),
        make_run(tmp_path / "c1", rows[3], seed=1, pointer=False),
    ]
    path = tmp_path / "page.html"
    precis("compare", *runs, ROUGE, "--html", path, "--baseline", runs[0]).succeeded()
    return path


def test_the_page_fetches_nothing(page):
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"""\b(src|href)\s*=\s*["']?(?!["'#]|data:)\S""", text)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttp|import\(", text)
    assert text.count("</script>") == 2


@pytest.mark.integration
def test_a_real_browser_shows_table_curves_and_documents(page, tmp_path, browse):
    # What a reader would do, after the page's own script: search for a document, move on with a key.
    acts = """<script>
    const list = document.getElementById("document-list");
    const text = document.getElementById("document-text");
    const before = document.querySelector("#document > h3").textContent;
    document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "j", bubbles: true}));
    const after = document.querySelector("#document > h3").textContent;
    const search = (words) => { text.value = words; text.dispatchEvent(new Event("input")); };
    search("ID=BOLD");
    const reference = document.querySelector(".reference p").textContent;
    search("");
    // Two systems neither of which is the baseline.
    const choose = (id, value) => {
      document.getElementById(id).value = value;
      document.getElementById(id).dispatchEvent(new Event("input"));
    };
    choose("document-system", "1");
    choose("document-other", "2");
    const farthest = list.children[0].textContent;
    search("says 5");
    const bold = document.getElementById("bold") !== null;
    const found = list.children.length;
    document.body.dataset.acts = JSON.stringify({moved: before !== after, found, reference, bold, farthest});
    document.getElementById("distribution-kind").value = "differences";
    document.getElementById("distribution-kind").dispatchEvent(new Event("input"));
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
    assert acts == {"moved": True, "found": 1, "reference": HOSTILE, "bold": False}
    assert "<mark>run 3</mark> says <mark>5</mark>" in done.stdout
    assert done.stdout.count("<rect") < dom.count("<rect")  # the baseline has no difference to itself


@pytest.mark.integration
def test_the_page_has_the_documents_of_the_run(run_folder, tmp_path, precis, corpus_files):
    assert precis("test", "--run", run_folder).status == 0
    shown = tmp_path / "page.html"
    precis("compare", run_folder, ROUGE, "--html", shown).succeeded()
    data = json.loads(re.search(r'id="data">(.*?)</script>', shown.read_text(encoding="utf-8"), re.S)[1])
    texts = {row["id"]: row["document"] for row in read_lines(corpus_files["test"])}
    assert {row["id"]: row["source"] for row in data["documents"]} == texts
    Path(corpus_files["test"]).rename(tmp_path / "gone")
    try:
        done = precis("compare", run_folder, ROUGE, "--html", shown)
    finally:
        (tmp_path / "gone").rename(corpus_files["test"])
    assert done.status == 0 and "its documents are not shown in the page" in done.err
    assert '"source"' not in shown.read_text(encoding="utf-8")


@pytest.mark.integration
def test_texts_have_the_direction_and_the_spaces_of_their_language(tmp_path, precis, browse):
    arabic, rows = ["هل وصلت الرسالة؟", "نعم."], rows_of(0)
    rows[0] |= {"words": ["今", "天", "。", "好", "ok", "!"], "copied": [True, True, False, False, True, True]}
    rows[0]["references"] = [["今天。", "好。"], arabic]
    runs = [make_run(tmp_path / name, rows, seed=1, coverage=name == "one") for name in ("one", "two")]
    path = tmp_path / "page.html"
    precis("compare", *runs, ROUGE, "--html", path).succeeded()
    dom = browse(path, "--dump-dom").stdout
    assert dom.count('<p dir="auto"><mark>今天</mark>。好<mark>ok !</mark></p>') == 2
    assert '<p dir="auto">今天。好。</p>' in dom and f'<p dir="auto">{" ".join(arabic)}</p>' in dom
