import pytest
from chat_servers import chat_server
from conftest import write

from datamodules.documents import UserError
from lightning_modules.metrics.rewards import RewardInputs
from precis.baselines.chat_reward import ChatReward

INPUTS = RewardInputs(["a", "a", "b"], ["tiny", "a bit longer", "tiny"], [[]] * 3, ["one", "one", "two"])


def grade(prompt: str) -> str:
    """Seven for tiny summaries of `one`, none for others of it, and too many for those of `two`."""
    if "two" in prompt:
        return "99"
    return "<think>10?</think> I say 7." if "tiny" in prompt else "none"


def test_each_text_is_asked_about_once_also_in_a_resumed_run(tmp_path):
    path = tmp_path / "answers.jsonl"
    with chat_server(grade) as server:
        reward = ChatReward("tiny", server.url, path, budget=3)
        with pytest.warns(UserWarning, match="2 of 3 answers have no number up to 10"):
            assert reward(INPUTS) == [0.7, 0, 0]
        with pytest.warns(UserWarning, match="2 of 3"):
            assert ChatReward("tiny", server.url, path, budget=3)(INPUTS) == [0.7, 0, 0]
        assert len(server.requests) == 3
        more = RewardInputs(["c"], ["new"], [[]], ["one"])
        with pytest.raises(UserError, match="the budget of 3 requests is used up after 3; raise budget and resume"):
            reward(more)
        with pytest.raises(UserError, match="answers under other settings"):
            ChatReward("other", server.url, path)(INPUTS)
    assert len(server.requests) == 3


@pytest.mark.parametrize(("answer", "score"), [
    ("8/10", 0.8), ("Score: 7.5 out of 10.", 0.75), ("10", 1), ("6\n\nIt is faithful.", 0.6),
    ("Answer with one whole number from 0, useless, to 10, perfect.", None), ("8 or 9", None), ("", None),
])  # fmt: skip
def test_the_score_is_the_one_number_and_not_its_scale(tmp_path, answer, score):
    assert ChatReward("tiny", "http://localhost:1/v1", tmp_path / "answers.jsonl")._score(answer) == score


def test_a_failed_request_stops_training(tmp_path):
    with chat_server(grade) as server:
        server.faults += [500] * 4
        reward = ChatReward("tiny", server.url, tmp_path / "answers.jsonl", retries=1, concurrency=1)
        with pytest.raises(UserError, match="1 request failed, the last: status 500"):
            reward(INPUTS)


def test_a_prompt_needs_its_fields(tmp_path):
    prompt = write(tmp_path / "prompt.txt", "{document}")
    with pytest.raises(UserError, match=r"it has no .summary."):
        ChatReward("tiny", "http://localhost:1/v1", tmp_path / "answers.jsonl", prompt=prompt)
