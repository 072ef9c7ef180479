import os
import signal
from pathlib import Path

import pytest
from conftest import read_lines
from tiny_models import make_summarizer
from transformers import BertConfig

from precis.summarizing.generation import Generator
from tests.precis.summarizing.test_hugging_face_models import generate

GENERATION = {"num_beams": 3, "max_length": 14, "min_length": 3, "length_penalty": 2.0, "no_repeat_ngram_size": 2}


@pytest.fixture(scope="module")
def texts(documents) -> list[str]:
    return ["summarize: " + row["document"] for row in documents]


@pytest.fixture(scope="module")
def bart(tmp_path_factory, texts) -> Path:
    return make_summarizer("bart", tmp_path_factory.mktemp("bart"), texts, **GENERATION)


def test_predictions_have_ids_references_and_summaries(tmp_path, precis, documents, source, texts):
    folder = make_summarizer("t5", tmp_path / "model", texts)
    out = tmp_path / "out.jsonl"
    precis("baseline", "hf", "--checkpoint", folder, *source, "--out", out, "--batch_tokens", 100).succeeded()
    rows = read_lines(out)
    # the settings of T5 and its prefix stand in its config, under the task "summarization"
    assert [row["summary"] for row in rows] == [generate(folder, text, num_beams=3, max_length=12) for text in texts]
    assert [row["id"] for row in rows] == [row["id"] for row in documents]
    assert [row["references"] for row in rows] == [[[row["summary"]]] for row in documents]


@pytest.mark.parametrize(("kind", "flags", "length"), [
    ("bart", [], 24),
    ("led", [], 32),
    ("bart", ["--generation.max_length", "7"], 6),  # with the first symbol of the decoder
    ("bart", ["--generation.max_new_tokens", "9"], 9),
])  # fmt: skip
def test_a_model_that_states_no_length_writes_up_to_its_positions(tmp_path, precis, source, texts, kind, flags, length):
    folder = make_summarizer(kind, tmp_path / "model", texts, window=24, eos_token_id=None, forced_eos_token_id=None)
    out = tmp_path / "out.jsonl"
    precis("baseline", "hf", "--checkpoint", folder, *source, "--out", out, *flags).succeeded()
    assert {row["summary_tokens"] for row in read_lines(tmp_path / "out.answers.jsonl")[1:]} == {length}


def test_truncation_is_counted_once(tmp_path, precis, documents, source, bart):
    out = tmp_path / "out.jsonl"
    done = precis("baseline", "hf", "--checkpoint", bart, *source, "--out", out, "--max_source", 19).succeeded()
    lengths = [len(row["document"].split()) + 1 for row in documents]
    left_out = sum(max(0, length - 19) for length in lengths)
    longer = sum(length > 19 for length in lengths)
    assert 0 < longer < len(documents)
    line = f"{100 * left_out / sum(lengths):.1f} % of source tokens in {longer} documents (max_source 19)"
    assert done.out.count(line) == 1
    shortened = [" ".join(row["document"].split()[:18]) for row in documents]
    assert [row["summary"] for row in read_lines(out)] == [generate(bart, text) for text in shortened]


def test_a_sentence_longer_than_a_window_is_counted(tmp_path, precis, source, bart):
    flags = ["--long_documents", "windows", "--max_source", 6]
    done = precis("baseline", "hf", "--checkpoint", bart, *source, "--out", tmp_path / "out.jsonl", *flags)
    assert done.status == 0 and "% of source tokens in 7 documents (max_source 6)" in done.out


@pytest.mark.integration
def test_a_killed_command_continues_where_it_was(tmp_path, precis, source, bart, monkeypatch):
    command = ["baseline", "hf", "--checkpoint", bart, *source, "--batch_tokens", 30, "--out"]
    assert precis(*command, tmp_path / "whole.jsonl").status == 0

    generate, calls = Generator.generate, []

    def killed_later(self, prompts):
        calls.append(len(prompts))
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return generate(self, prompts)

    monkeypatch.setattr(Generator, "generate", killed_later)
    out = tmp_path / "out.jsonl"
    assert precis(*command, out).status == 143
    assert not out.exists()
    answers = tmp_path / "out.answers.jsonl"
    before_kill = read_lines(answers)
    assert len(before_kill) == 1 + sum(calls[:2])
    with answers.open("a", encoding="utf-8") as file:
        file.write('{"id": "doc-3", "te')  # what a kill leaves of a line
    monkeypatch.setattr(Generator, "generate", lambda self, prompts: calls.append(0) or generate(self, prompts))
    assert precis(*command, out).status == 0
    assert out.read_text(encoding="utf-8") == (tmp_path / "whole.jsonl").read_text(encoding="utf-8")
    assert read_lines(answers)[: len(before_kill)] == before_kill
    after = len(calls)
    assert precis(*command, out).status == 0 and len(calls) == after  # all answers are there
    precis(*command, out, "--generation.num_beams", "2").refused("other settings", '"num_beams": 3')


@pytest.mark.parametrize(("flags", "parts"), [
    (["--checkpoint", "no-such-model-of-anyone"], ["no-such-model-of-anyone: cannot be loaded", "check the name"]),
    (["--checkpoint", "BERT"], ["BertModel generates no text", "give a summarizer"]),
    (["--checkpoint", "BART", "--generation.num_beam", "4"], ["--generation.num_beam", "did you mean num_beams?"]),
    (["--checkpoint", "BART", "--generation.do_sample", "true"], ["--generation.do_sample True", "random"]),
    (["--checkpoint", "BART", "--max_source", "99"], ["--max_source 99", "40 positions"]),
    (["--checkpoint", "BART", "--generation.max_length", "99"], ["98 tokens", "40 positions", "max_new_tokens 40"]),
])  # fmt: skip
def test_wrong_input_is_one_line_and_nothing_is_written(tmp_path, precis, source, bart, flags, parts):
    out = tmp_path / "results" / "out.jsonl"
    BertConfig(architectures=["BertModel"]).save_pretrained(tmp_path / "bert")
    names = {"BART": bart, "BERT": tmp_path / "bert"}
    done = precis("baseline", "hf", *source, "--out", out, *(names.get(flag, flag) for flag in flags))
    assert done.status in (1, 2) and [part for part in parts if part not in done.err] == [], done.err
    assert "Traceback" not in done.err and not out.parent.exists()
