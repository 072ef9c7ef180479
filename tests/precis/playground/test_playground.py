import html
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import SIZES, change_config
from run_folders import write_run

import precis as api
from datamodules.documents import UserError
from precis.playground import demo_command as command
from precis.playground.playground import MACROS, Playground, copied_summary, picture

pytestmark = pytest.mark.integration

TEXT = "Boru is a heron from the old mill. Every morning it watches the river.\n\nNobody else does it."
REFERENCE = "the heron watches the river ."


@pytest.fixture(scope="module")
def folders(tmp_path_factory, corpus_files, trained, extractive):
    root = tmp_path_factory.mktemp("models")
    others = [write_run(root / name, name, corpus_files) for name in ("agents-m7", "graphsum", "rstformer")]
    return list(map(str, (trained, extractive, *others)))


@pytest.fixture(scope="module")
def playground(folders):
    return Playground(folders, max_characters=600)


def test_documents_for_validation_are_used_and_words_colour_what_they_attended_to(folders, tmp_path, capfd):
    test, run = "data.init_args.corpus.init_args.test", shutil.copytree(folders[0], tmp_path / Path(folders[0]).name)
    change_config(run / "config.yaml", {test: None})
    assert len(Playground([str(run)]).documents) == SIZES["val"]
    assert "its val split" in capfd.readouterr().err
    assert Playground([str(run)], split="test").documents == {}
    change_config(run / "config.yaml", {test: "/nowhere.jsonl"})
    playground = Playground([str(run), folders[0]])  # two runs of one name are told apart
    assert list(playground.runs) == [str(run), folders[0]] and playground.documents == {}
    assert "no documents of its corpus can be picked" in capfd.readouterr().err
    attention = np.array([[0.0, 0.5, 0.25], [1.0, 0.0, 0.0]])
    page = copied_summary("c", ["a", "<b>", "c"], ["<b>", "x"], [True, False], attention)
    rules = dict(re.findall(r"#c:has\(\.w(\d:hover\) \.s\d) \{ background: rgba\(255, 140, 0, ([\d.]+)\)", page))
    colours = {key: float(value) for key, value in rules.items()}
    assert colours == {"0:hover) .s1": 1.0, "0:hover) .s2": 0.5, "1:hover) .s0": 1.0}
    assert page.count("<mark>") == 1 and "<mark>&lt;b&gt;</mark>" in page and "<b>" not in page
    assert 'title="&lt;b&gt; 0.50, c 0.25"' in page
    image = '<svg width="1" height="1"></svg>'
    for page in (MACROS.card("<i>", "<u>", []), MACROS.error_box("<script>"), picture('"><script>', image)):
        assert not re.search(r"<(i|u|script)>", page)


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"<style>.*?</style>", "", page, flags=re.S)))


def test_each_model_shows_what_belongs_to_it(playground, folders):
    names, record = list(playground.runs), {"document": TEXT, "summary": REFERENCE}
    page = playground.summarize(TEXT, REFERENCE, names, 2)
    cards = dict(zip(names, page.split('<section class="precis-card">')[1:], strict=True))
    for name, folder in zip(names, folders):
        expected = api.load(folder).summarize(record, **({} if name == "bertsum" else {"beam_size": 2}))
        words = " ".join(expected.words) if expected.copied is not None else expected.text
        assert words in text_of(cards[name]), name
        assert f"<td>{expected.scores['rouge1']:.1f}</td>" in cards[name]
        if expected.copied is not None:
            assert cards[name].count("<mark") == sum(expected.copied)
        if name == "bertsum":
            assert cards[name].count("<mark>") == len(expected.positions)
            assert all(f"<td>{score:.3f}</td>" in cards[name] for score in expected.sentence_scores)
    assert ":hover" in cards["tiny"] and "agent 1" not in cards["tiny"] and "agent 1" in cards["agents-m7"]
    assert "RST tree of the document" in cards["rstformer"] and "relations that weigh most" in cards["rstformer"]
    assert "paragraph graph (similarity)" in cards["graphsum"]
    assert not re.search(r"""(?:src|href)=["']?http|url\(|@import|<script""", page)

    shown = text_of(Playground(["lexrank"]).summarize(TEXT, "苍鹭看河。", ["lexrank"], 2))
    assert "watches the river" in shown and "a reference has no word in language 'en', and scores 0" in shown
    # errors are shown in the page
    for text, reference, names, message in (
        (" ", "", ["tiny"], "There is no text"),
        ("a heron " * 100, "", ["tiny"], "The text has 800 characters; give at most 600"),
    ):
        page = playground.summarize(text, reference, names, 2)
        assert 'role="alert"' in page and message in text_of(page)
    assert all(playground.pick(next(iter(playground.documents))))  # text and reference of a document of the corpus


@pytest.fixture(scope="module")
def address(playground):
    pytest.importorskip("gradio")
    command.check_installed()
    page = command.build(playground)
    yield command.serve(page, "127.0.0.1", 0, block=False)
    page.close()


def test_a_taken_port_and_missing_gradio_are_named(address, playground, monkeypatch, trained, precis):
    for port in (int(address.rstrip("/").rpartition(":")[2]), 99999):
        with pytest.raises(UserError, match=f"port {port} on 127.0.0.1 cannot be used; give another --port, or 0"):
            command.serve(command.build(playground), "127.0.0.1", port, block=False)
    monkeypatch.setitem(sys.modules, "gradio", None)
    precis("demo", trained).failed_in_one_line("pip install 'precis-suite[demo]'")


@pytest.fixture
def page():
    """A page of a real browser; skips where there is none that can start."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("google-chrome") or pytest.skip("no chromium or chrome on PATH")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(240_000)
        yield page
        browser.close()


@pytest.mark.timeout(600)
def test_the_page_works_in_a_browser_and_fetches_nothing_from_elsewhere(address, page, playground):
    requested = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(address)
    # It opens with a document and its summaries
    page.wait_for_selector(".precis-card >> nth=4")
    assert page.input_value("#text textarea") == playground.pick(next(iter(playground.documents)))[0]
    page.fill("#text textarea", TEXT)
    page.fill("#reference textarea", REFERENCE)
    page.click("#summarize")
    page.wait_for_function("document.querySelector('.precis-card .source')?.innerText.includes('old mill')")
    assert page.locator(".precis-card").count() == len(playground.runs) == 5
    expected = playground.summarize(TEXT, REFERENCE, ["tiny"], 4)
    shown = page.locator(".precis-card >> nth=0").inner_text()
    assert "".join(shown.split()) == "".join(text_of(expected).split())  # the browser lays out blank space
    source = page.locator(".precis-card >> nth=0 >> .source span")
    colours = "spans => spans.map(span => getComputedStyle(span).backgroundColor)"
    assert set(source.evaluate_all(colours)) == {"rgba(0, 0, 0, 0)"}
    page.locator(".precis-card >> nth=0 >> .w0").hover()
    assert any(colour.startswith("rgb") and "255, 140, 0" in colour for colour in source.evaluate_all(colours))
    # Markup in the text stays text
    page.fill("#text textarea", f"<img src=x onerror=\"document.title='taken'\"><b class=hostile>bold</b> {TEXT}")
    page.click("#summarize")
    page.wait_for_function("document.querySelector('.precis-card .source')?.innerText.includes('hostile')")
    assert page.title() != "taken" and page.locator(".hostile").count() == 0
    outside = [url for url in requested if not url.startswith((address, "data:", "blob:"))]
    assert len(requested) > 5 and not outside
    assert "default-src 'self'" in page.request.get(address).headers["content-security-policy"]
