"""The Python package has the same results as the commands."""

import json
import math

import pytest
from conftest import read_lines, write
from run_folders import make_run, prediction

import precis as api
from datamodules.corpora.corpus import as_document
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
    for number, text in enumerate(TEXTS, start=1):
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
    done = precis("summarize", "--checkpoint", trained, tmp_path / "1.txt", tmp_path / "2.txt", "--json", "true")
    rows = [json.loads(line) for line in done.out.splitlines()]
    summaries = run.summarize(TEXTS)
    for summary, row in zip(summaries, rows, strict=True):
        assert (summary.sentences, summary.words, summary.copied) == (row["summary"], row["words"], row["copied"])
        assert summary.text == " ".join(row["summary"])
        assert summary.copied_words == [word for word, copied in zip(row["words"], row["copied"]) if copied]
    assert [summary.id for summary in summaries] == ["1", "2"]
    alone = run.summarize(TEXTS[1])
    assert alone.text == summaries[1].text and alone.scores == {}


def test_options_hold_for_one_call(run):
    before = run.model.decoding
    short = run.summarize(TEXTS[0], beam_size=1, min_length=0, max_length=1)
    assert len(short.words) <= 1 and run.model.decoding is before
    with pytest.raises(api.UserError, match="PointerGenerator has no option 'beam' of summaries; it has beam_size"):
        run.summarize(TEXTS[0], beam=4)
    with pytest.raises(api.UserError, match="beam_size must be at least 1, got 0"):
        run.summarize(TEXTS[0], beam_size=0)
    assert run.model.decoding is before


def test_records_may_have_references_and_several_parts(run):
    row = {"id": "mill", "document": TEXTS, "summary": "the heron watches the river ."}
    summary = run.summarize(row)
    assert summary.id == "mill" and summary.references == [["the heron watches the river ."]]
    expected = api.rouge("\n".join(summary.sentences), row["summary"])
    assert summary.scores == pytest.approx(expected)


def test_what_is_no_text_is_refused(run):
    for texts, message in (
        ("  ", "text 1 has no words; leave it out"),
        ([], "there is no text; give a string"),
        (5, "texts is of type int; give a string, or a list"),
        ({"summary": "A heron."}, "text 1 has no words"),
    ):
        with pytest.raises(api.UserError, match=message):
            run.summarize(texts)
        if not isinstance(texts, str):  # the name of a file
            with pytest.raises(api.UserError, match=message):
                run.evaluate(texts)


def test_arguments_of_another_type_are_named(run):
    calls = [
        (lambda: api.load(None), "path is of type NoneType; give the folder of a run"),
        (lambda: run.summarize(TEXTS, batch_size="a"), "batch_size is of type str"),
        (lambda: run.summarize(TEXTS, max_length=2.5), "decoding.max_length is 2.5; give a whole number"),
        (lambda: run.evaluate(TEXTS, metrics=[None]), "metrics is of type NoneType"),
        (lambda: api.rouge("rain", None), "reference 1 is of type NoneType"),
        (lambda: api.parse("It rains.", parser=5), "parser is of type int"),
    ]
    for call, message in calls:
        with pytest.raises(api.UserError, match=message):
            call()


def test_an_extractive_model_says_what_it_selected(extractive, precis, tmp_path):
    (tmp_path / "1.txt").write_text(TEXTS[0], encoding="utf-8")
    done = precis("summarize", "--checkpoint", extractive, tmp_path / "1.txt", "--json", "true")
    row = json.loads(done.out)
    run = api.load(extractive)
    summary = run.summarize(TEXTS[0])
    assert summary.positions == row["positions"] and summary.sentences == row["summary"]
    assert summary.sentence_scores == pytest.approx(row["sentence_scores"], abs=1e-6)
    assert [(index, text) for index, text, _ in summary.selected] == list(zip(row["positions"], row["summary"]))
    assert len(run.summarize(TEXTS[0], k=2).positions) == 2


def test_scores_equal_those_of_the_commands(run_folder, precis):
    assert precis("test", "--run", run_folder).status == 0
    predictions = run_folder / "predictions.jsonl"
    done = precis("evaluate", predictions, "--run", run_folder, "--metrics", "rouge,novelty,length", "--json")
    expected = json.loads(done.out)["scores"]
    evaluation = api.load(run_folder).evaluate("test", metrics=["rouge", "novelty", "length"])
    assert list(evaluation.scores.index) == [row["measure"] for row in expected]
    for row in expected:
        scored = evaluation.scores.loc[row["measure"]]
        assert [scored["mean"], scored["low"], scored["high"]] == pytest.approx([row["mean"], row["low"], row["high"]])
        assert scored["documents"] == row["documents"] and scored["signature"] == row["signature"]
    assert [one.id for one in evaluation.summaries] == [row["id"] for row in read_lines(predictions)]


def test_documents_to_evaluate_may_be_records_a_file_or_documents(run, trained, corpus_files):
    rows = read_lines(corpus_files["test"])
    documents = [as_document(row) for row in run_documents(trained, "test")]
    means = [
        run.evaluate(given, metrics="rouge", resamples=10).scores["mean"].tolist()
        for given in ("test", corpus_files["test"], rows, documents)
    ]
    assert means[0] == means[1] == means[2] == means[3]
    with pytest.raises(api.UserError, match="rouge cannot be computed: there are no references"):
        run.evaluate(TEXTS, metrics="rouge")


def test_rouge_equals_that_of_rouge_score():
    from rouge_score.rouge_scorer import RougeScorer

    summaries = ["the heron watched\nthe old river .", "rain fell"]
    references = ["a heron watches the river .\nit rained .", "the rain fell and fell ."]
    variants = ["rouge1", "rouge2", "rougeLsum"]
    scorer = RougeScorer(variants, use_stemmer=True)
    each = [scorer.score(target, text) for text, target in zip(summaries, references)]
    means = api.rouge(summaries, references, variants=",".join(variants))
    assert means == pytest.approx({name: 50 * sum(one[name].fmeasure for one in each) for name in variants})
    assert api.rouge(summaries[1], [references[1], "rain fell"])["rouge1"] == pytest.approx(100)
    with pytest.raises(api.UserError, match="2 summaries and 1 reference"):
        api.rouge(summaries, references[0])
    with pytest.raises(api.UserError, match="summary 1: a reference is empty"):
        api.rouge("rain", " ")


def test_a_comparison_equals_that_of_the_command(tmp_path, precis):
    texts = ["a heron", "the river", "rain fell"]
    runs = []
    for name, values in (("one", [10.0, 20.0, 30.0]), ("two", [15.0, 22.0, 41.0])):
        rows = [prediction(n, text, {"rouge1": v, "rouge2": v}) for n, (text, v) in enumerate(zip(texts, values))]
        runs.append(make_run(tmp_path / name, rows, vocab_size=len(rows) + len(name) + len(runs)))
    options = ["--metric", "rouge1,length"]
    expected = json.loads(precis("compare", *runs, *options, "--json").out)
    frame = api.compare(*runs, metrics=["rouge1", "length"])
    assert frame.attrs["how"][0].startswith("3 documents of")
    for system in expected["systems"]:
        for measure, cell in system["scores"].items():
            row = frame.loc[(system["name"], measure)]
            for name, value in cell.items():
                assert row[name] == pytest.approx(math.nan if value is None else value, nan_ok=True), name
    with pytest.raises(api.UserError, match="there is no run to compare"):
        api.compare()


def test_a_text_is_parsed_as_by_the_command(precis, tmp_path, capfd):
    path = write(tmp_path / "text.txt", TEXTS[0])
    done = precis("parse", "--show", path, "--parser", "right_branching", "--svg", tmp_path / "tree.svg").succeeded()
    parsed = api.parse(TEXTS[0], parser="right_branching")
    assert parsed._repr_svg_() == (tmp_path / "tree.svg").read_text(encoding="utf-8")
    capfd.readouterr()
    parsed.show(width=80)
    assert capfd.readouterr().out.strip() == str(parsed).strip() == done.out.strip()
    size = len(parsed.edus)
    assert parsed.ldd.shape == (size, size, len(parsed.relations)) and parsed.tree.size == size
    assert api.parse(TEXTS[0], parser=RightBranchingParser("side", 64)).tree == parsed.tree
    with pytest.raises(api.UserError, match="there is no text to parse"):
        api.parse(" ")
    with pytest.raises(api.UserError, match="no parser 'lef'"):
        api.parse(TEXTS[0], parser="lef")
