import gc
import gzip
import json
import os
import signal
import threading
from pathlib import Path

import pytest
from chat_servers import chat_server, transformers_serve
from conftest import free_port, read_lines, write, write_lines
from tiny_models import make_chat_model

from precis.baselines import endpoint
from precis.summarizing.prompts import read_prompt, shipped_prompts

KEY = "sk-0123456789abcdefghijklmnopqrstuv"


def summaries(path: Path) -> list[list[str]]:
    return [row["summary"] for row in read_lines(path)]


def first_words(prompt: str) -> str:
    return " ".join(prompt.split("\n\n")[-1].split()[:4])


@pytest.fixture
def server():
    with chat_server(first_words) as running:
        yield running


@pytest.fixture
def ask(precis, source, server, tmp_path):
    command = ["baseline", "chat", "--model", "tiny", "--base_url", server.url, *source]
    return lambda *flags: precis(*command, "--out", tmp_path / "out.jsonl", *flags)


@pytest.mark.integration
def test_the_server_of_transformers_gives_the_answers_of_the_local_model(tmp_path, precis, source, texts):
    words = [*map(read_prompt, shipped_prompts()), *texts, "user : assistant :"]
    model, flags = make_chat_model(tmp_path / "model", words), ["--prompt", "one_sentence", *source, "--out"]
    local, served, wrong = (tmp_path / f"{name}.jsonl" for name in ("local", "served", "wrong"))
    precis("baseline", "hf", "--checkpoint", model, "--generation.max_new_tokens", 12, *flags, local).succeeded()
    with transformers_serve(model, tmp_path / "server.log") as url:
        chat = ["baseline", "chat", "--base_url", url, "--max_tokens", 12, *flags]
        precis(*chat, served, "--model", model).succeeded()
        precis(*chat, wrong, "--model", "no-such-model", "--retries", 0).failed_in_one_line("status")
    assert summaries(served) == summaries(local)
    tokens = [row["answer_tokens"] for row in read_lines(tmp_path / "served.answers.jsonl")[1:]]
    assert len(tokens) == 7 and all(0 < count <= 12 for count in tokens)


@pytest.mark.parametrize(("flags", "text"), [
    (["--prompt", "one_sentence"], "in one sentence"),
    (["--prompt", "words", "--n", "37"], "about 37 words"),
    (["--prompt", "query", "--query", "who {n} guards?"], "Query: who {n} guards?"),
])  # fmt: skip
def test_the_request_has_the_prompt_and_no_randomness(ask, server, documents, tmp_path, flags, text):
    assert ask(*flags).status == 0
    contents = [request["messages"][0]["content"] for request in server.requests]
    for row in documents:
        assert len([content for content in contents if row["document"] in content and text in content]) == 1
    for request in server.requests:
        assert request["temperature"] == 0 and request["model"] == "tiny" and request["max_tokens"] == 512
    record = json.loads((tmp_path / "out.results.json").read_text(encoding="utf-8"))
    assert record["settings"]["prompt"] == read_prompt(flags[1])
    assert record["counts"]["prompt_tokens"] == 11 * 7 and record["counts"]["answer_tokens"] == 3 * 7
    assert summaries(tmp_path / "out.jsonl") == [[first_words(row["document"])] for row in documents]


def test_a_prompt_file_queries_and_fields_of_the_request(ask, server, documents, tmp_path):
    prompt = write(tmp_path / "mine.txt", "{braces} about {query}:\n\n{document}")
    rows = [{"id": row["id"], "topic": f"topic of {row['id']}"} for row in documents]
    flags = ["--prompt", prompt, "--queries", write_lines(tmp_path / "queries.jsonl", rows), "--query_field", "topic"]
    flags += ["--request.max_tokens", "null", "--request.max_completion_tokens", "50", "--max_words", "6"]
    assert "documents shortened to max_words (7)" in ask(*flags).succeeded().out
    sent = {request["messages"][0]["content"] for request in server.requests}
    first = {" ".join(row["document"].split()[:6]): row["id"] for row in documents}
    assert sent == {f"{{braces}} about topic of {name}:\n\n{text}" for text, name in first.items()}
    assert all("max_tokens" not in r and r["max_completion_tokens"] == 50 for r in server.requests)
    chinese = write_lines(tmp_path / "zh.jsonl", [{"id": documents[0]["id"], "document": "今天全市下雨。气温下降。"}])
    ask(*flags, "--corpus.test", chinese, "--out", tmp_path / "zh_out.jsonl").succeeded()
    assert server.requests[-1]["messages"][0]["content"].endswith(":\n\n今天全市下雨")


@pytest.mark.parametrize("fault", [429, 503, "cut", b'{"choices": [', "trickle"])
def test_a_request_that_fails_is_repeated(ask, server, documents, tmp_path, fault):
    server.faults = [None, fault, fault]
    done = ask("--timeout", "0.5" if fault == "trickle" else "60", "--concurrency", "1").succeeded()
    assert summaries(tmp_path / "out.jsonl") == [[first_words(row["document"])] for row in documents]
    attempts = [row["attempts"] for row in read_lines(tmp_path / "out.answers.jsonl")[1:]]
    assert attempts == [1, 3, 1, 1, 1, 1, 1] and len(server.requests) == 9
    assert done.err.count("no answer in 0.5 seconds, retrying; a slow server needs") == (fault == "trickle")


def body(**changes: object) -> bytes:
    choice = {"message": {"content": "An \ud800otter."}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 11, "completion_tokens": 3}} | changes).encode()


def test_wrong_counts_cost_no_answer_but_a_response_too_large_or_nested_does(ask, server, tmp_path, monkeypatch):
    counts = [None, [1], "many", {"prompt_tokens": "11", "completion_tokens": -3}, {"prompt_tokens": [1]}, 7]
    server.faults = [body(), *(body(usage=usage) for usage in counts)]
    ask("--concurrency", "1").succeeded()
    assert summaries(tmp_path / "out.jsonl") == [["An ?otter."]] * 7  # half of a surrogate pair is replaced
    record = json.loads((tmp_path / "out.results.json").read_text(encoding="utf-8"))
    assert record["counts"]["prompt_tokens"] == 11 and record["counts"]["answer_tokens"] == 3

    monkeypatch.setattr(endpoint, "LONGEST_BODY", 1 << 20)
    for content, problem in (
        (b" " * (2 << 20) + body(), "the response has more than 1 MiB"),
        (gzip.compress(b" " * (64 << 20) + body()), "the response is compressed (gzip)"),
        (b"[" * 100_000, "is not a chat completion"),
        (body(choices=[{"message": {"content": "An otter."}, "finish_reason": ["stop"]}]), "is not a chat completion"),
    ):
        (tmp_path / "out.answers.jsonl").unlink()
        server.faults = [content]
        ask("--concurrency", "1", "--retries", "0").failed_in_one_line(problem)
        assert len(read_lines(tmp_path / "out.answers.jsonl")) == 1 + 6  # the other answers are kept


def test_as_many_requests_at_a_time_as_allowed_and_the_key_stands_nowhere(ask, server, tmp_path, monkeypatch):
    meeting, running, most = threading.Barrier(2, timeout=60), set(), []

    def answer(prompt):
        running.add(prompt)
        most.append(len(running))
        if len(most) <= 2:
            meeting.wait()  # passes only if two requests are under way
        running.discard(prompt)
        return "yes"

    server.answer = answer
    ask("--concurrency", 2).succeeded()
    assert max(most) == 2
    (tmp_path / "out.answers.jsonl").unlink()
    server.keys.clear()
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    server.faults = [401]
    refused = ask("--retries", "0", "--concurrency", "1")  # one at a time, so that all are asked again
    refused.refused("401", "OPENAI_API_KEY")
    server.faults, server.answer = [None, 400], lambda prompt: f"your key is {KEY}"
    done = ask("--on_failure", "empty", "--concurrency", "1").succeeded()
    outputs = [*refused, *done, *(path.read_text(encoding="utf-8") for path in tmp_path.iterdir())]
    assert set(server.keys) == {f"Bearer {KEY}"} and not [text for text in outputs if KEY in str(text)]
    monkeypatch.setenv("OTHER_KEY", "another")
    assert ask("--key_variable", "OTHER_KEY").status == 0 and server.keys[-1] == "Bearer another"


@pytest.mark.integration
def test_a_killed_command_asks_only_for_what_is_missing(ask, server, documents, tmp_path, caplog):
    def kill_at_the_fourth(prompt):
        if len(server.requests) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
            server.released.wait(60)
        return first_words(prompt)

    server.answer = kill_at_the_fourth
    assert ask("--concurrency", 1).status == 143
    gc.collect()  # asyncio reports an exception of a task when the task is deleted
    assert "never retrieved" not in caplog.text and not (tmp_path / "out.jsonl").exists()
    assert len(read_lines(tmp_path / "out.answers.jsonl")) == 1 + 3
    with chat_server(first_words) as other:
        ask("--concurrency", 1, "--base_url", other.url).succeeded()
        assert len(other.requests) == len(documents) - 3
        ask("--base_url", other.url, "--max_tokens", "9").refused("other settings (request")
    assert summaries(tmp_path / "out.jsonl") == [[first_words(row["document"])] for row in documents]


def test_refusals_and_empty_answers_are_named_and_kept(ask, server, documents, tmp_path):
    ids = [row["id"] for row in documents]
    choices = [
        {"message": {"content": ""}, "finish_reason": "stop"},
        {"message": {"content": None, "refusal": "no"}, "finish_reason": "stop"},
        {"message": {"content": "I'm sorry, but I can't do that."}, "finish_reason": "stop"},
        {"message": {"content": "<think>hm. otters"}, "finish_reason": "length"},
        {"message": {"content": "<think>hm</think>\n\nAn otter. It paints."}, "finish_reason": "stop"},
        {"message": {"content": "half of an"}, "finish_reason": "length"},
    ]
    server.answer = lambda prompt: next(choice for row, choice in zip(documents, choices) if row["document"] in prompt)
    server.faults = [None] * 6 + [{"status": 400, "code": "content_filter", "message": "filtered"}]
    done = ask("--concurrency", 1).succeeded()
    expected = [[], [], ["I'm sorry, but I can't do that."], [], ["An otter.", "It paints."], ["half of an"], []]
    assert [(row["id"], row["summary"]) for row in read_lines(tmp_path / "out.jsonl")] == list(zip(ids, expected))
    assert f"empty answers (2): {ids[0]}, {ids[3]}" in done.out
    assert f"answers refused by the server (2): {ids[1]}, {ids[6]}" in done.out
    assert f"answers worded like a refusal (1): {ids[2]}" in done.out
    assert f"answers cut off by max_tokens or the server (2): {ids[3]}, {ids[5]}" in done.out


def test_a_document_without_an_answer_is_named_or_empty_and_many_end_the_command(ask, server, documents, tmp_path):
    done = ask("--retries", "0", "--base_url", f"http://127.0.0.1:{free_port()}/v1")
    done.failed_in_one_line("no connection", "start the server")
    server.faults = [None, {"status": 400, "message": "exceeds the context", "code": "context_length_exceeded"}]
    message = ["no answer for 1 document, the first", "status 400: exceeds the context", "--max_words"]
    ask("--concurrency", "1").refused(*message, documents[1]["id"])
    assert not (tmp_path / "out.jsonl").exists()
    server.faults = [400]
    done = ask("--concurrency", "1", "--on_failure", "empty").succeeded()
    assert f"documents without an answer (1): {documents[1]['id']}" in done.out
    assert [len(row) for row in summaries(tmp_path / "out.jsonl")] == [1, 0, 1, 1, 1, 1, 1]
    assert ask().status == 0 and len(summaries(tmp_path / "out.jsonl")[1]) == 1  # asked for again

    (tmp_path / "out.answers.jsonl").unlink()
    server.requests.clear()
    server.faults = [500] * 100
    ask("--retries", "1", "--max_failures", "3", "--concurrency", "2").refused("3 requests failed")
    assert len(server.requests) <= 8
    server.faults.clear()
    assert ask("--max_tokens", "9").status == 0  # a file without answers has none of other settings


@pytest.mark.parametrize(("flags", "parts"), [
    (["--base_url", "http://me:secret@127.0.0.1/v1"], ["OPENAI_API_KEY"]),
    (["--prompt", "two_sentences"], ["--prompt two_sentences", "three_sentences"]),
    (["--prompt", "one_sentence", "--n", "3"], ["it has no {n}"]),
    (["--prompt", "query", "--queries", "FEW"], ["doc-", "--queries has no record"]),
])  # fmt: skip
def test_wrong_input_is_one_line_and_nothing_is_written(ask, tmp_path, flags, parts):
    few = write_lines(tmp_path / "few.jsonl", [{"id": "doc-33", "query": "who?"}])
    ask("--retries", "0", *(few if flag == "FEW" else flag for flag in flags)).failed_in_one_line(*parts, status=(1, 2))
    assert list(tmp_path.iterdir()) == [few]
