"""The Python package has the same results as the commands; its notebook and page run from top to bottom."""

import ast
import json
import math
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from conftest import read_lines, write
from rouge_score.rouge_scorer import RougeScorer
from run_folders import make_run, prediction

import precis as api
from datamodules.corpora.corpus import as_document
from lightning_modules import DiscourseParser
from lightning_modules.discourse_parser.right_branching import RightBranchingParser
from precis.runs.run_folder import run_documents

TEXTS = ["Boru is a heron from the old mill. Every morning it watches the river.", "Nobody else does it. It rains."]


@pytest.fixture(scope="module")
def run(trained):
    return api.load(trained)


def test_every_public_name_is_there_and_no_other():
    assert all(getattr(api, name) is not None for name in api.__all__)
    with pytest.raises(AttributeError, match="no attribute 'summarise'"):
        api.summarise  # noqa: B018


def test_summaries_equal_those_of_the_command(run, trained, precis, tmp_path):
    paths = [write(tmp_path / f"{number}.txt", text) for number, text in enumerate(TEXTS, start=1)]
    done = precis("summarize", "--checkpoint", trained, *paths, "--json", "true")
    rows = [json.loads(line) for line in done.out.splitlines()]
    summaries = run.summarize(TEXTS)
    for summary, row in zip(summaries, rows, strict=True):
        assert (summary.sentences, summary.words, summary.copied) == (row["summary"], row["words"], row["copied"])
        assert summary.text == " ".join(row["summary"])
        assert summary.copied_words == [word for word, copied in zip(row["words"], row["copied"]) if copied]
    assert [summary.id for summary in summaries] == ["1", "2"]
    alone = run.summarize(as_document({"id": "2", "parts": [[TEXTS[1]]], "references": []}))
    assert alone.text == summaries[1].text and alone.scores == {}

    row = {"id": "mill", "document": TEXTS, "summary": "the heron watches the river ."}
    summary = run.summarize(row)  # with a reference and several parts
    assert summary.id == "mill" and summary.references == [[row["summary"]]]
    assert summary.scores == pytest.approx(api.rouge("\n".join(summary.sentences), row["summary"]))


def test_options_hold_for_one_call_and_wrong_arguments_are_refused(run, trained):
    before, short = run.model.decoding, {"beam_size": 1, "min_length": 0, "max_length": 1}
    assert len(run.summarize(TEXTS[0], **short).words) <= 1
    assert len(api.load(trained, generation=short | {"max_length": 9}).summarize(TEXTS[0], max_length=1).words) <= 1
    assert len(api.load(trained, generation=short).summarize(TEXTS[0]).words) <= 1
    for call, message in (
        (lambda: run.summarize(TEXTS[0], beam=4), "PointerGenerator has no option 'beam' of summaries; it has beam_si"),
        (lambda: run.summarize("  "), "text 1 has no words; leave it out, .* in 'document'"),
        (lambda: run.summarize(TEXTS, max_length=2.5), "decoding.max_length is 2.5; give a whole number"),
        (lambda: run.evaluate(TEXTS, metrics="rouge"), "rouge cannot be computed: there are no references"),
        (lambda: api.load("small").evaluate("test"), "small: it has no documents of its own; give a file"),
        (lambda: api.rouge(["rain", "fell"], "rain"), "2 summaries and 1 reference"),
        (lambda: api.rouge("rain", "rain", rouge_parts="pr"), "rouge_parts is 'pr'; give f or prf"),
        (lambda: api.rouge("rain", " "), "summary 1: a reference is empty"),
        (lambda: api.summarize(TEXTS[0], sentences=0), "sentences: 0 does not conform .* v>0"),
        (lambda: api.summarize(TEXTS[0], words=[4]), "words: int.. argument must be"),
        (lambda: api.parse("It rains.", parser="lef"), "no parser 'lef'"),
    ):
        with pytest.raises(api.UserError, match=message):
            call()
    assert run.model.decoding is before


def test_an_extractive_model_says_what_it_selected(extractive, precis):
    row = json.loads(precis("summarize", "--checkpoint", extractive, TEXTS[0], "--json", "true").out)
    run = api.load(extractive)
    summary = run.summarize(TEXTS[0])
    assert summary.positions == row["positions"] and summary.sentences == row["summary"]
    assert summary.sentence_scores == pytest.approx(row["sentence_scores"], abs=1e-6)
    assert [(index, text) for index, text, _ in summary.selected] == list(zip(row["positions"], row["summary"]))
    assert len(run.summarize(TEXTS[0], k=2).positions) == 2
    light = api.summarize({"document": TEXTS[0], "summary": "A mill."}, "small", sentences=1)  # without Lightning
    assert light.scores == pytest.approx(api.rouge([light.sentences], ["A mill."])) and light.scores["rouge1"] > 0
    for name, whole in (("lexrank", True), ("docstring", False)):  # both exceed two words; only sentences stay whole
        short = api.summarize({"document": TEXTS[0], "summary": "create a mill ."}, name, words=2)
        assert (len(short.text.split()) > 2) == whole == (short.sentences[0] in TEXTS[0])
        assert short.scores == pytest.approx(api.rouge([short.sentences], ["create a mill ."]))


def test_scores_equal_those_of_the_commands(run_folder, precis, run, trained, corpus_files):
    assert precis("test", "--run", run_folder).status == 0
    predictions, metrics = run_folder / "predictions.jsonl", ["rouge", "novelty", "length"]
    done = precis("evaluate", predictions, "--run", run_folder, "--metrics", ",".join(metrics), "--json")
    expected = pd.DataFrame(json.loads(done.out)["scores"]).set_index("measure").drop(columns="system")
    evaluation = api.load(run_folder).evaluate("test", metrics=metrics)
    pd.testing.assert_frame_equal(evaluation.scores, expected)
    assert [one.id for one in evaluation.summaries] == [row["id"] for row in read_lines(predictions)]
    documents = [as_document(row) for row in run_documents(trained, "test")]
    table = pd.DataFrame(read_lines(corpus_files["test"]))
    first, *others = [
        run.evaluate(texts, metrics="rouge", resamples=10).scores["mean"].tolist()
        for texts in ("test", corpus_files["test"], read_lines(corpus_files["test"]), documents, table)
    ]
    assert others == [first] * 4
    row = {"document": "Die Ärztin prüfte die Straße für Schüler.", "summary": "Ärzte prüften Straßen für Schüler."}
    german = api.load("lexrank", language="de").evaluate([row], metrics="rouge", resamples=10)
    means = api.rouge(german.summaries[0].text, row["summary"], language="de")
    assert german.scores["mean"].to_dict() == pytest.approx(means)


def test_rouge_equals_that_of_rouge_score_and_a_comparison_that_of_the_command(tmp_path, precis):
    summaries = ["the heron watched\nthe old river .", "rain fell"]
    references = ["a heron watches the river .\nit rained .", "the rain fell and fell ."]
    variants = ["rouge1", "rouge2", "rougeLsum"]
    scorer = RougeScorer(variants, use_stemmer=True)
    each = [scorer.score(target, text) for text, target in zip(summaries, references)]
    means = api.rouge(summaries, references, variants=",".join(variants))
    assert means == pytest.approx({name: 50 * sum(one[name].fmeasure for one in each) for name in variants})
    assert api.rouge(summaries[1], [references[1], "rain fell"])["rouge1"] == pytest.approx(100)
    texts, runs = ["a heron", "the river", "rain fell"], []
    for name, values in (("one", [10.0, 20.0, 30.0]), ("two", [15.0, 22.0, 41.0])):
        rows = [prediction(n, text, {"rouge1": v, "rouge2": v}) for n, (text, v) in enumerate(zip(texts, values))]
        runs.append(make_run(tmp_path / name, rows, vocab_size=6 + len(runs)))
    expected = json.loads(precis("compare", *runs, "--metric", "rouge1,length", "--json").out)
    frame = api.compare(*runs, metrics=["rouge1", "length"])
    assert frame.attrs["how"][0].startswith("3 documents of")
    for system in expected["systems"]:
        for measure, cell in system["scores"].items():
            for name, value in cell.items():
                value = math.nan if value is None else value
                assert frame.loc[(system["name"], measure)][name] == pytest.approx(value, nan_ok=True), name


def test_a_text_is_parsed_as_by_the_command(precis, tmp_path, capfd):
    path, svg = write(tmp_path / "text.txt", TEXTS[0]), tmp_path / "tree.svg"
    done = precis("parse", "--show", path, "--parser", "right_branching", "--svg", svg).succeeded()
    parsed = api.parse(TEXTS[0], parser="right_branching")
    assert parsed._repr_svg_() == svg.read_text(encoding="utf-8")
    capfd.readouterr()
    parsed.show(width=80)
    assert capfd.readouterr().out.strip() == str(parsed).strip() == done.out.strip()
    size = len(parsed.edus)
    assert parsed.ldd.shape == (size, size, len(parsed.relations)) and parsed.tree.size == size
    assert api.parse(TEXTS[0], parser=RightBranchingParser("side", 64)).tree == parsed.tree
    for _ in range(2):  # the weights in a folder may change between two calls
        DiscourseParser(hidden_size=8).save(tmp_path)
        assert api.parse(TEXTS[0], str(tmp_path)).ldd.equal(api.parse(TEXTS[0], DiscourseParser.load(tmp_path)).ldd)


DOCS = Path(__file__).parents[3] / "docs"


def run_cell(source: str, names: dict, precis) -> object:
    """Run a code cell; a line with `!` is a command. Return the value of a last line that is an expression."""
    names["command"] = lambda line: precis(*shlex.split(line)[1:]).succeeded()
    tree = ast.parse(re.sub(r"^!(precis .*)$", lambda match: f"command({match[1]!r})", source, flags=re.M))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "tutorial.ipynb", "exec"), names)
    return eval(compile(ast.Expression(last.value), "tutorial.ipynb", "eval"), names) if last else None


@pytest.mark.integration
def test_the_notebook_and_the_snippets_of_the_page_run(run_folder, precis, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code), "outputs are stripped"
    names: dict = {}
    values = [run_cell("".join(cell["source"]), names, precis) for cell in code]
    assert values[-2]._repr_svg_().startswith("<svg") and values[-2] is names["discourse"]
    assert [measure for _, measure in names["frame"].index] == ["rouge1", "rougeLsum"] * 2
    assert len(names["evaluation"].summaries) == 8

    assert precis("test", "--run", run_folder).status == 0
    (tmp_path / "page" / "runs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "page")
    for name in ("first", "one", "other"):
        Path("runs", name).symlink_to(run_folder)
    snippets = re.findall(r"```python\n(.*?)```", (DOCS / "python_api.md").read_text(encoding="utf-8"), flags=re.S)
    names = {"precis": api}
    for snippet in snippets[:2] + snippets[3:]:
        exec(snippet, names)
    assert len(snippets) == 4 and names["discourse"].edus
