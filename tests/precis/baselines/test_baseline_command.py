import json
import os
import signal
from pathlib import Path

import pytest
from conftest import read_lines, write_lines
from tiny_models import make_summarizer
from transformers import BertConfig

from lightning_modules.extractive.baselines import BASELINES
from precis.summarizing.generation import Generator
from tests.precis.summarizing.test_hugging_face_models import CARD, generate


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_over_a_corpus(tmp_path, precis, source, documents, name):
    precis("baseline", name, *source, "--out", tmp_path / "out.jsonl", "--k", 1).succeeded()
    for row, document in zip(read_lines(tmp_path / "out.jsonl"), documents, strict=True):
        assert row["id"] == document["id"]
        assert len(row["summary"]) == 1 and row["summary"][0] in document["document"]
        assert row["references"] == [[document["summary"]]]
        if name == "lead":
            assert document["document"].startswith(row["summary"][0])


@pytest.mark.integration
def test_over_a_runs_documents_and_evaluated_with_them(tmp_path, precis, corpus_files, trained):
    out, val = tmp_path / "lead.jsonl", ["--run", trained, "--split", "val"]
    precis("baseline", "lead", *val, "--k", 2, "--out", out).succeeded()
    assert [row["id"] for row in read_lines(out)] == [row["id"] for row in read_lines(corpus_files["val"])]
    done = precis("evaluate", out, *val, "--json", "--resamples", 50)
    means = {row["measure"]: row["mean"] for row in json.loads(done.out)["scores"]}
    # what is copied is not new, and all of it lies in a fragment of the source
    assert means["novel_1"] == means["novel_sentences"] == 0 and means["coverage"] == 100
    precis("evaluate", out, "--run", trained).refused("the test split of", "lead.jsonl:1")  # another split's documents


def test_options_reach_the_baseline_and_a_file_stands_for_a_corpus(tmp_path, precis, source, documents):
    out = tmp_path / "out.jsonl"

    def run(*options: object) -> list[list[str]]:
        precis("baseline", *options, *source, "--out", out).succeeded()
        return [row["summary"] for row in read_lines(out)]

    first, again, other = (run("random", "--k", 1, "--seed", seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len(run("lead", "--documents", 3)) == 3
    assert len(run("lexrank", "--threshold", "none", "--k", 1)) == 7
    parts = ([], ["--scoring", "centrality"], ["--selector", "mmr", "--trade_off", "0.1"])
    default, central, _ = summaries = [run("zero_shot", "--k", 2, *options) for options in parts]
    assert all(len(summary) == 2 for rows in summaries for summary in rows) and default != central

    names = {"document": "article", "summary": "highlights", "id": "id"}
    rows = [{new: row[old] for old, new in names.items()} for row in documents]
    file = write_lines(tmp_path / "mine.jsonl", rows)
    for form in (["--corpus", file], [f"--corpus={file}"], ["--corpus", file, "--corpus.document", "article"]):
        precis("baseline", "lead", *form, "--out", out, "--k", 1).succeeded()
        assert [row["id"] for row in read_lines(out)] == [row["id"] for row in rows]
    assert all(row["references"] == [] for row in read_lines(out))  # the last form names the document alone


@pytest.fixture(scope="module")
def bart(tmp_path_factory, texts) -> Path:
    return make_summarizer("bart", tmp_path_factory.mktemp("bart"), texts, **CARD)


def test_truncation_and_sentences_longer_than_a_window_are_counted(tmp_path, precis, documents, source, bart):
    command = ["baseline", "hf", "--checkpoint", bart, *source, "--batch_tokens", 100, "--out"]
    done = precis(*command, tmp_path / "out.jsonl", "--max_source", 19).succeeded()
    words = [row["document"].split() for row in documents]
    lengths = [len(row) + 1 for row in words]
    left_out, longer = sum(max(0, length - 19) for length in lengths), sum(length > 19 for length in lengths)
    line = f"{100 * left_out / sum(lengths):.1f} % of source tokens in {longer} documents (max_source 19)"
    assert done.out.count(line) == 1 and 0 < longer < len(documents)
    for row, document, text in zip(read_lines(tmp_path / "out.jsonl"), documents, words, strict=True):
        assert row["id"] == document["id"] and row["references"] == [[document["summary"]]]
        assert row["summary"] == generate(bart, " ".join(text[:18]))
    done = precis(*command, tmp_path / "windows.jsonl", "--long_documents", "windows", "--max_source", 6)
    assert "% of source tokens in 7 documents (max_source 6)" in done.succeeded().out


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


@pytest.mark.integration
def test_a_killed_command_continues_where_it_was(tmp_path, precis, source, bart, monkeypatch):
    out, answers, whole = (tmp_path / f"{name}.jsonl" for name in ("out", "out.answers", "whole"))
    command = ["baseline", "hf", "--checkpoint", bart, *source, "--batch_tokens", 30, "--out"]
    assert precis(*command, whole).status == 0
    generate, calls = Generator.generate, []

    def killed_later(self, prompts):
        calls.append(len(prompts))
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return generate(self, prompts)

    monkeypatch.setattr(Generator, "generate", killed_later)
    assert precis(*command, out).status == 143 and not out.exists()
    before_kill = read_lines(answers)
    assert len(before_kill) == 1 + sum(calls[:2])
    with answers.open("a", encoding="utf-8") as file:
        file.write('{"id": "doc-3", "te')  # what a kill leaves of a line
    assert precis(*command, out).status == 0 and out.read_bytes() == whole.read_bytes()
    assert read_lines(answers)[: len(before_kill)] == before_kill
    after = len(calls)
    assert precis(*command, out).status == 0 and len(calls) == after  # all answers are there
    precis(*command, out, "--generation.num_beams", "2").refused("other settings", '"num_beams": 3')
    precis(*command, out, "--language", "zh").refused('other settings (language "en", now "zh")')


@pytest.mark.parametrize(("arguments", "parts"), [
    ("lead --seed 3", ["lead has no option --seed", "--k"]),
    ("oracle --corpus.summary=null", ["doc-", "oracle needs a reference"]),
    ("hf --checkpoint no-such-model-of-anyone", ["no-such-model-of-anyone: cannot be loaded", "check the name"]),
    ("hf --checkpoint BERT", ["BertModel generates no text", "give a summarizer"]),
    ("hf --checkpoint BART --generation.num_beam 4", ["--generation.num_beam", "did you mean num_beams?"]),
    ("hf --checkpoint BART --generation.do_sample true", ["--generation.do_sample True", "random"]),
    ("hf --checkpoint BART --max_source 99", ["--max_source 99", "40 positions"]),
    ("hf --checkpoint BART --generation.max_length 99", ["98 tokens", "40 positions", "max_new_tokens 40"]),
])  # fmt: skip
def test_wrong_input_is_one_line_and_nothing_is_written(tmp_path, precis, source, bart, arguments, parts):
    out, names = tmp_path / "results" / "out.jsonl", {"BART": bart, "BERT": tmp_path / "bert"}
    BertConfig(architectures=["BertModel"]).save_pretrained(names["BERT"])
    name, *options = (names.get(word, word) for word in arguments.split())
    precis("baseline", name, *source, *options, "--out", out).failed_in_one_line(*parts, status=(1, 2))
    assert not (out.parent.exists() if name == "hf" else list(out.parent.glob("*")))
