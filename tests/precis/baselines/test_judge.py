import json
from pathlib import Path

import numpy as np
import pytest
from chat_servers import chat_server
from conftest import read_lines, write, write_lines

from precis.baselines.judge import read_verdict
from precis.statistics.statistics import bootstrap_interval

SUMMARIES = {  # of A and of B, by document
    "d1": ("long long text", "short"),
    "d2": ("tiny", "much longer text"),
    "d3": ("wee", "much longer text"),
    "d4": ("same", "same"),
    "d5": ("abcd", "efgh"),
    "d6": ("ab", "much longer text"),
}


def shown(prompt: str) -> tuple[str, str]:
    """The two summaries in a prompt, in their order."""
    first, second = prompt.split("Summary 1:\n\n")[1].split("\n\nSummary 2:\n\n")
    return first, second.split("\n\n")[0]


def prefers_short(prompt: str) -> str:
    first, second = map(len, shown(prompt))
    return "tie" if first == second else "The shorter one.\n\nAnswer: 1" if first < second else "**2**"


@pytest.fixture
def files(tmp_path) -> list[Path]:
    """Predictions of A with sources, and of B in another order."""
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for number, path in enumerate(paths):
        rows = [
            {"id": name, "summary": [texts[number]], "references": [["r"]], "document": [f"source of {name} ."]}
            for name, texts in SUMMARIES.items()
        ]
        write_lines(path, rows[::-1] if number else rows)
    return paths


@pytest.fixture
def judge(precis, files, tmp_path):
    """Run the command with a server whose answers are a function of the prompt."""

    def run(answer, *flags):
        with chat_server(answer) as server:
            command = ["judge", *files, "--model", "tiny", "--base_url", server.url, "--out", tmp_path / "judged.jsonl"]
            done = precis(*command, *flags)
        return done, server

    return run


def test_preference_interval_and_ties_of_a_judge_without_position_bias(judge, tmp_path):
    done, server = judge(prefers_short, "--json")
    assert done.status == 0, done.err
    result = json.loads(done.out)
    preferences = [0, 100, 100, 50, 50, 100]
    expected = bootstrap_interval(preferences)
    found = result["preference"]
    assert [found[name] for name in ("mean", "low", "high")] == pytest.approx(list(expected))
    assert found["mean"] == pytest.approx(np.mean(preferences))
    assert (result["a_better"], result["ties"], result["b_better"]) == (3, 2, 1)
    assert result["orders_agree"] == 100 and result["first_preferred"] == 50 and result["same_summaries"] == 1
    # two questions for each document but the one with the same summaries, each with its source
    assert len(server.requests) == 10 and all(request["temperature"] == 0 for request in server.requests)
    contents = [request["messages"][0]["content"] for request in server.requests]
    asked = sorted((name, shown(text)) for text in contents for name in SUMMARIES if f"source of {name} ." in text)
    both = [(name, pair) for name, (a, b) in SUMMARIES.items() if a != b for pair in ((a, b), (b, a))]
    assert asked == sorted(both)


def test_a_judge_that_looks_at_the_order_alone_is_found_out(judge):
    done, _ = judge(lambda prompt: "1", "--json")
    result = json.loads(done.out)
    assert result["preference"]["mean"] == 50 and result["ties"] == 6
    assert result["first_preferred"] == 100 and result["orders_contradict"] == 5
    assert result["orders_agree"] == pytest.approx(100 / 6)  # the same summaries


def test_a_result_is_computed_again_from_the_file_of_answers(judge, precis, files, tmp_path):
    done, _ = judge(prefers_short, "--json")
    again = precis("judge", *files, "--out", tmp_path / "judged.jsonl", "--json")
    assert again.status == 0 and json.loads(again.out) == json.loads(done.out)
    text = precis("judge", *files, "--out", tmp_path / "judged.jsonl").out
    assert "preference for A: 66.7 %" in text and "A better: 3, tie: 2, B better: 1" in text
    files[0].write_text(files[0].read_text(encoding="utf-8").replace("wee", "woe"), encoding="utf-8")
    precis("judge", *files, "--out", tmp_path / "judged.jsonl").refused("other settings (pairs")


def test_answers_that_cannot_be_read_are_named(judge):
    done, _ = judge(lambda prompt: "who knows" if "source of d2" in prompt else prefers_short(prompt))
    assert done.status == 0 and "documents without a readable verdict, left out (1): d2" in done.out
    assert "A better: 2, tie: 2, B better: 1" in done.out


@pytest.mark.parametrize("readable", [False, True])
def test_a_judge_without_a_verdict_in_both_orders_is_an_error_that_shows_an_answer(judge, readable):
    done, _ = judge(lambda prompt: "1" if readable and len(shown(prompt)[0]) > 10 else "Summary of the text")
    done.failed_in_one_line("no document has a readable verdict in both orders", "'Summary of the text'")


@pytest.mark.parametrize(("text", "verdict"), [
    ("1", "first"), ("2.", "second"), ("Tie", "tie"), ("**Summary 2**", "second"), ("Answer: 1", "first"),
    ("Verdict: **tie**", "tie"), ("Summary 1 is vague.\n\n2\n", "second"),
    ("final answer: summary 1", "first"), ("the better one is 1", None),
    ("1 or 2", None), ("12", None), ("Both are good, but 2 is better", None), ("", None),
    ("<think>1\n2</think>\n1", "first"), ("<think>1", None),
])  # fmt: skip
def test_verdicts(text, verdict):
    assert read_verdict(text) == verdict


@pytest.mark.parametrize(("change", "flags", "parts"), [
    ("shorter", [], ["b.jsonl", "no summary of document 'd1'"]),
    ("no source", [], ["a.jsonl:1", "--documents FILE or --run RUN"]),
    (None, ["--out", "judged.txt"], [".jsonl"]),
    (None, ["--prompt", "nowhere.txt"], ["nowhere.txt", "{first}"]),
    (None, ["--timeout", "-1"], ["timeout"]),
])  # fmt: skip
def test_wrong_input_is_one_line_and_nothing_is_asked(judge, files, change, flags, parts):
    if change == "shorter":
        write_lines(files[1], read_lines(files[1])[:-1])
    if change == "no source":
        rows = read_lines(files[0])
        write_lines(files[0], [{name: row[name] for name in row if name != "document"} for row in rows])
    done, server = judge(prefers_short, *flags)
    done.failed_in_one_line(*parts, status=(1, 2))
    assert not server.requests


def test_without_answers_a_model_or_a_field_of_the_prompt(precis, files, tmp_path):
    prompt = write(tmp_path / "prompt.txt", "{document} {first}")
    for flags, said in (
        ([], "no such file of answers"),
        (["--base_url", "http://127.0.0.1:1/v1"], "--model"),
        (["--model", "tiny", "--prompt", prompt], "it has no {second}"),
    ):
        precis("judge", *files, "--out", tmp_path / "judged.jsonl", *flags).failed_in_one_line(said)
