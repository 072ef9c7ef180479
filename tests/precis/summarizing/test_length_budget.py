"""Length budgets of `precis summarize`."""

import json

import pytest
from conftest import write_lines

from datamodules.text.words import detokenize, sentences_of
from lightning_modules.summarizer import Summary
from precis.summarizing.summary_options import LengthBudget

TEXT = " ".join(f"The {who} slept in the old mill for {days} days." for who in ("otter", "lynx") for days in range(4))


@pytest.fixture
def records(tmp_path):
    rows = [{"id": "one", "document": TEXT}, {"id": "two", "document": TEXT[:90]}]
    return write_lines(tmp_path / "texts.jsonl", rows)


def summaries(precis, run, records, *options) -> list[dict]:
    done = precis("summarize", "--checkpoint", run, records, "--json", "true", *options).succeeded()
    return [json.loads(line) for line in done.out.splitlines()]


def words(row: dict) -> int:
    return sum(len(sentence.split()) for sentence in row["summary"])


def test_an_extractive_model_selects_within_the_budget(extractive, records, precis):
    whole = len(TEXT.split())
    assert [len(row["summary"]) for row in summaries(precis, extractive, records, "--sentences", "2")] == [2, 2]
    assert 10 < words(summaries(precis, extractive, records, "--words", "20")[0]) <= 20
    assert 10 < words(summaries(precis, extractive, records, "--ratio", "0.25")[0]) <= whole / 4
    assert len(summaries(precis, extractive, records, "--share", "0.5")[0]["summary"]) == 4
    assert len(summaries(precis, extractive, records, "--min_score", "0")[0]["summary"]) == 8
    assert len(summaries(precis, extractive, records, "--min_score", "1.1")[0]["summary"]) == 1


def test_a_generated_summary_is_within_the_budget_and_what_is_cut_is_counted(run_folder, records, precis):
    free = summaries(precis, run_folder, records)
    budgeted = summaries(precis, run_folder, records, "--words", "2")
    assert min(map(words, free)) > 2 and max(map(words, budgeted)) <= 2
    roomy = summaries(precis, run_folder, records, "--words", "99", "--sentences", "99", "--ratio", "1")
    for row in free + budgeted + roomy:
        assert len(row["copied"]) == len(row["words"])
        assert "".join(row["words"]) == "".join(row["summary"]).replace(" ", "")
    done = precis("summarize", "--checkpoint", run_folder, records, "--words", "2")
    assert "summaries exceeded the budget" in done.err or all(words(row) == 2 for row in free)


def test_a_summary_ends_where_the_budget_does():
    def cut(document_words: int = 0, **budget) -> list[str] | None:
        summary = Summary("a", ["one two three", "four five"], [])
        return summary.sentences if LengthBudget(**budget).cut(summary, document_words) else None

    assert cut(words=5) is None and cut(sentences=2) is None
    assert cut(words=4) == ["one two three", "four"]
    assert cut(words=3) == ["one two three"]
    assert cut(sentences=1) == ["one two three"]
    assert cut(ratio=0.1, document_words=20) == ["one two"]
    assert cut(ratio=0.1, document_words=3) == ["one"]


@pytest.mark.parametrize("budget", [{"words": 9}, {"words": 5}, {"words": 4}, {"words": 2}, {"sentences": 1}], ids=str)
def test_tokens_are_cut_where_the_text_is(budget):
    tokens = ["he", "said", '"', "no", '"', ",", "twice", ".", "don't", "!"]
    copied = [number % 3 == 0 for number in range(len(tokens))]
    summary = Summary("a", [detokenize(sentence) for sentence in sentences_of(tokens)], [], tokens, copied)
    LengthBudget(**budget).cut(summary, document_words=0)
    assert [detokenize(sentence) for sentence in sentences_of(summary.words)] == summary.sentences
    assert tokens[: len(summary.words)] == summary.words and copied[: len(summary.words)] == summary.copied
    assert (summary.words == tokens) == (budget in ({"words": 9}, {"words": 5}))


def test_a_budget_out_of_range_is_one_line(run_folder, records, precis):
    for name, value in (("--words", "0"), ("--ratio", "1.5"), ("--words", "many"), ("--min_score", "0.5")):
        done = precis("summarize", "--checkpoint", run_folder, records, name, value)
        done.failed_in_one_line(name[2:], status=(1, 2))  # a generative model has no scores of sentences
