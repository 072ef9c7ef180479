"""Every page shows texts, ids and titles as text, whatever markup they hold: looked at in a real browser."""

import json
from html.parser import HTMLParser

import pytest
from run_folders import make_run, prediction, write_run

pytestmark = pytest.mark.integration

TAKE = "document.title='taken'"
# A script, event handlers, a style and the ends of elements that a page may have opened.
MARKUP = f'<img src=x onerror="{TAKE}"><svg onload="{TAKE}"></svg><style>p{{color:#123456}}</style><b class=hostile>"'
ENDS = "</script></style></textarea></title>"
TEXT = f"{ENDS}<script>{TAKE}</script>{MARKUP} sank at sea. Nobody had slept.\n\nIt was late."
NAME = f"<img src=x onerror={TAKE}>"  # without a slash, so that a file can have it
SCORES = {"rouge1": 30.0, "rouge2": 10.0, "rougeL": 25.0, "rougeLsum": 25.0}


class Elements(HTMLParser):
    """Event handlers, classes, text of styles and title of a page."""

    def __init__(self, dom: str) -> None:
        super().__init__()
        self.handlers, self.classes, self.styles, self.title, self._tag = [], set(), "", "", ""
        self.feed(dom)

    def handle_starttag(self, tag, attributes):
        self._tag = tag
        self.handlers += [name for name, value in attributes if name.startswith("on") and "taken" in (value or "")]
        self.classes |= {value for name, value in attributes if name == "class"}

    def handle_endtag(self, tag):
        self._tag = ""

    def handle_data(self, data):
        self.styles += data if self._tag == "style" else ""
        self.title += data if self._tag == "title" else ""


@pytest.fixture(scope="module")
def models(tmp_path_factory, corpus_files):
    folder = tmp_path_factory.mktemp("models")
    return {name: write_run(folder / name, name, corpus_files) for name in ("bertsum", "rstformer")}


@pytest.fixture
def pages(tmp_path, models, precis):
    """A page of each command that writes one, for a text full of markup."""
    text, records = tmp_path / f"{NAME}.txt", tmp_path / "records.jsonl"
    text.write_text(TEXT, encoding="utf-8")
    records.write_text(json.dumps({"id": MARKUP, "document": TEXT}) + "\n", encoding="utf-8")
    hostile = {"id": MARKUP, "references": [[TEXT]]}
    rows = [prediction(0, TEXT, SCORES) | hostile, prediction(1, TEXT, SCORES)]
    runs = [make_run(tmp_path / f"{number}{NAME}", rows, seed=number) for number in (1, 2)]
    commands = [
        ["compare", *runs, "--html", tmp_path / "compare.html"],
        ["summarize", "--checkpoint", models["bertsum"], records, "--html", tmp_path / "summarize.html"],
        ["graph", text, "--paragraphs.sentences", 1, "--html", tmp_path / "graph.html"],
        ["attention", models["rstformer"], text, "--out", tmp_path / "attention"],
        ["parse", "--show", text, "--parser", "right_branching", "--svg", tmp_path / "tree.svg"],
    ]
    for command in commands:
        precis(*command).succeeded()
    written = sorted({*tmp_path.glob("*.html"), *tmp_path.glob("*.svg"), *(tmp_path / "attention").glob("*.html")})
    assert len(written) == len(commands)
    return written


def test_markup_in_texts_ids_and_names_is_shown_as_text(pages, browse, tmp_path):
    for page in pages:
        dom = browse(page, "--dump-dom").stdout
        elements = Elements(dom)
        assert "sank" in dom, page
        assert elements.handlers == [] and "hostile" not in elements.classes, page
        assert "#123456" not in elements.styles and elements.title != "taken", page
    # markup that a page does not escape is noticed
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><html><head><title>safe</title></head><body><p>{TEXT}</p></body></html>")
    elements = Elements(browse(page, "--dump-dom").stdout)
    assert len(elements.handlers) == 2 and "hostile" in elements.classes
    assert "#123456" in elements.styles and elements.title == "taken"
