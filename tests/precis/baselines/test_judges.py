import json
from pathlib import Path

import numpy as np
import pytest
from chat_servers import chat_server
from conftest import read_lines, write, write_lines

from datamodules.documents import UserError
from lightning_modules.metrics.rewards import RewardInputs
from precis.baselines.chat_reward import ChatReward
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
    first, second = prompt.split("Summary 1:\n\n")[1].split("\n\nSummary 2:\n\n")
    return first, second.split("\n\n")[0]


def prefers_short(prompt: str) -> str:
    first, second = map(len, shown(prompt))
    return "tie" if first == second else "The shorter one.\n\nAnswer: 1" if first < second else "**2**"


@pytest.fixture
def files(tmp_path) -> list[Path]:
    systems = [[], []]
    for name, texts in SUMMARIES.items():
        for system, text in zip(systems, texts):
            system.append({"id": name, "summary": [text], "references": [["r"]], "document": [f"source of {name} ."]})
    return [write_lines(tmp_path / "a.jsonl", systems[0]), write_lines(tmp_path / "b.jsonl", systems[1][::-1])]


@pytest.fixture
def judge(precis, files, tmp_path):

    def run(answer, *flags):
        with chat_server(answer) as server:
            command = ["judge", *files, "--model", "tiny", "--base_url", server.url, "--out", tmp_path / "judged.jsonl"]
            done = precis(*command, *flags)
        return done, server

    return run


def test_preference_interval_and_ties_of_a_judge_without_position_bias(judge, precis, files, tmp_path):
    done, server = judge(prefers_short, "--json")
    result, preferences = json.loads(done.succeeded().out), [0, 100, 100, 50, 50, 100]
    interval = [result["preference"][name] for name in ("mean", "low", "high")]
    assert interval == pytest.approx(bootstrap_interval(preferences)) and interval[0] == np.mean(preferences)
    assert (result["a_better"], result["ties"], result["b_better"]) == (3, 2, 1)
    assert result["orders_agree"] == 100 and result["first_preferred"] == 50 and result["same_summaries"] == 1
    # two questions for each document but the one with the same summaries, each with its source
    assert len(server.requests) == 10 and all(request["temperature"] == 0 for request in server.requests)
    contents = [request["messages"][0]["content"] for request in server.requests]
    asked = sorted((name, shown(text)) for text in contents for name in SUMMARIES if f"source of {name} ." in text)
    assert asked == sorted((name, pair) for name, (a, b) in SUMMARIES.items() if a != b for pair in ((a, b), (b, a)))

    again = ["judge", *files, "--out", tmp_path / "judged.jsonl"]  # computed from the file of answers
    assert json.loads(precis(*again, "--json").succeeded().out) == result
    text = precis(*again).out
    assert "preference for A: 66.7 %" in text and "A better: 3, tie: 2, B better: 1" in text
    files[0].write_text(files[0].read_text(encoding="utf-8").replace("wee", "woe"), encoding="utf-8")
    precis(*again).refused("other settings (pairs")


def test_a_judge_that_looks_at_the_order_alone_or_cannot_be_read_is_found_out(judge, tmp_path):
    done, _ = judge(lambda prompt: "who knows" if "source of d2" in prompt else prefers_short(prompt))
    assert "documents without a readable verdict, left out (1): d2" in done.succeeded().out
    assert "A better: 2, tie: 2, B better: 1" in done.out
    for length in (99, 10):  # no verdict at all, and one in one order alone
        (tmp_path / "judged.jsonl").unlink(missing_ok=True)
        done, _ = judge(lambda prompt, length=length: "1" if len(shown(prompt)[0]) > length else "Summary of it")
        done.failed_in_one_line("no document has a readable verdict in both orders", "'Summary of it'")
    (tmp_path / "judged.jsonl").unlink(missing_ok=True)
    result = json.loads(judge(lambda prompt: "1", "--json")[0].out)
    assert result["preference"]["mean"] == 50 and result["ties"] == 6
    assert result["first_preferred"] == 100 and result["orders_contradict"] == 5
    assert result["orders_agree"] == pytest.approx(100 / 6)  # the same summaries


def test_verdicts():
    for verdict, texts in {
        "first": ["1", "Answer: 1", "final answer: summary 1", "<think>1\n2</think>\n1"],
        "second": ["2.", "**Summary 2**", "Summary 1 is vague.\n\n2\n"], "tie": ["Tie", "Verdict: **tie**"],
        None: ["the better one is 1", "1 or 2", "12", "Both are good, but 2 is better", "", "<think>1"],
    }.items():  # fmt: skip
        assert [read_verdict(text) for text in texts] == [verdict] * len(texts)


@pytest.mark.parametrize(("change", "flags", "parts"), [
    ("shorter", [], ["b.jsonl", "no summary of document 'd1'"]),
    ("no source", [], ["a.jsonl:1", "--documents FILE or --run RUN"]),
    (None, ["--out", "judged.txt"], [".jsonl"]),
    (None, ["--prompt", "nowhere.txt"], ["nowhere.txt", "{first}"]),
])  # fmt: skip
def test_wrong_input_is_one_line_and_nothing_is_asked(judge, precis, files, tmp_path, change, flags, parts):
    for wrong, said in (
        ([], "no such file of answers"),
        (["--model", "tiny", "--prompt", write(tmp_path / "prompt.txt", "{document} {first}")], "it has no {second}"),
    ):
        precis("judge", *files, "--out", tmp_path / "judged.jsonl", *wrong).failed_in_one_line(said)
    if change == "shorter":
        write_lines(files[1], read_lines(files[1])[:-1])
    if change == "no source":
        write_lines(files[0], [row | {"document": None} for row in read_lines(files[0])])
    done, server = judge(prefers_short, *flags)
    done.failed_in_one_line(*parts, status=(1, 2))
    assert not server.requests


INPUTS = RewardInputs(["a", "a", "b"], ["tiny", "a bit longer", "tiny"], [[]] * 3, ["one", "one", "two"])


def grade(prompt: str) -> str:
    if "two" in prompt:
        return "99"
    return "<think>10?</think> I say 7." if "tiny" in prompt else "none"


def test_each_text_is_asked_about_once_also_in_a_resumed_run_and_a_failure_ends_it(tmp_path):
    path = tmp_path / "answers.jsonl"
    with chat_server(grade) as server:
        reward = ChatReward("tiny", server.url, path, budget=3)
        for each in (reward, ChatReward("tiny", server.url, path, budget=3)):
            with pytest.warns(UserWarning, match="2 of 3 answers have no number up to 10"):
                assert each(INPUTS) == [0.7, 0, 0]
        with pytest.raises(UserError, match="the budget of 3 requests is used up after 3; raise budget and resume"):
            reward(RewardInputs(["c"], ["new"], [[]], ["one"]))
        with pytest.raises(UserError, match="answers under other settings"):
            ChatReward("other", server.url, path)(INPUTS)
        assert len(server.requests) == 3
        server.faults += [500] * 4
        reward = ChatReward("tiny", server.url, tmp_path / "failed.jsonl", retries=1, concurrency=1)
        with pytest.raises(UserError, match="1 request failed, the last: status 500"):
            reward(INPUTS)


def test_the_score_is_the_one_number_and_not_its_scale(tmp_path):
    settings = ("tiny", "http://localhost:1/v1", tmp_path / "answers.jsonl")
    answers = {"8/10": 0.8, "Score: 7.5 out of 10.": 0.75, "10": 1, "6\n\nIt is faithful.": 0.6}
    answers |= {"8 or 9": None, "": None, "Answer with one whole number from 0, useless, to 10, perfect.": None}
    assert {answer: ChatReward(*settings)._score(answer) for answer in answers} == answers
    with pytest.raises(UserError, match=r"it has no .summary."):
        ChatReward(*settings, prompt=write(tmp_path / "prompt.txt", "{document}"))
