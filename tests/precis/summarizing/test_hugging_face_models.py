"""Pretrained models of every family through `precis.load`, `summarize`, `demo` and `test`, beside plain `generate`."""

import json
import re
from pathlib import Path

import pytest
import torch
from conftest import read_lines, write
from tiny_models import FAMILIES, make_chat_model, make_summarizer, make_summarizers
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.generation.utils import GenerationMixin

import precis as api
from datamodules.documents import Document, UserError
from precis.playground.playground import Playground
from precis.summarizing.generation import Generated
from precis.summarizing.hugging_face import CONTINUED_PROMPT, HuggingFaceSummarizer
from precis.summarizing.prompts import read_prompt, sentences_of

CARD = {"num_beams": 3, "max_length": 14, "min_length": 3, "length_penalty": 2.0, "no_repeat_ngram_size": 2}
KINDS = (*FAMILIES, "chat", "decoder")
T5_CARD = {"num_beams": 3, "max_length": 12}  # of the task in its config, with a prefix


@pytest.fixture(scope="module")
def models(tmp_path_factory, texts) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    words = [*texts, "summarize: TL;DR: user : assistant :", read_prompt("three_sentences")]
    folders = make_summarizers(folder, words, lambda kind: {} if kind == "t5" else CARD)
    chat = {"max_new_tokens": 9, "do_sample": True, "temperature": 0.6, "top_p": 0.9}
    folders["chat"] = make_chat_model(folder / "chat", words, **chat)
    folders["decoder"] = make_chat_model(folder / "decoder", words, template=None)
    return folders


def generate(folder: Path, text: str, **settings) -> list[str]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    kind = AutoModelForCausalLM if folder.name in ("chat", "decoder") else AutoModelForSeq2SeqLM
    model = kind.from_pretrained(folder).eval()
    if folder.name == "chat":
        messages = [{"role": "user", "content": read_prompt("three_sentences").replace("{document}", text)}]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        inputs = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    else:
        inputs = tokenizer(text, return_tensors="pt", truncation=folder.name != "decoder")
    if folder.name == "led":
        settings["global_attention_mask"] = torch.zeros_like(inputs.input_ids)
        settings["global_attention_mask"][:, 0] = 1
    with torch.no_grad():
        ids = model.generate(inputs.input_ids, attention_mask=inputs.attention_mask, **settings)[0]
    start = inputs.input_ids.shape[1] if kind is AutoModelForCausalLM else 1
    return sentences_of(tokenizer.decode(ids[start:], skip_special_tokens=True).split("\n\n")[0])


BY_HAND = {
    "t5": ("summarize: {document}", T5_CARD),
    "chat": ("{document}", {"max_new_tokens": 9, "do_sample": False}),
    "decoder": (CONTINUED_PROMPT, {"max_new_tokens": 128, "do_sample": False}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_summarizes_as_generate_does(models, texts, kind):
    template, settings = BY_HAND.get(kind, ("{document}", {}))
    summaries = [summary.sentences for summary in api.load(models[kind], batch_tokens=120).summarize(texts)]
    assert summaries == [generate(models[kind], template.replace("{document}", text), **settings) for text in texts]
    assert len(set(map(str, summaries))) > 1


@pytest.fixture
def prepared(monkeypatch) -> list[dict]:
    prepare, calls = GenerationMixin._prepare_generated_length, []

    def record(*arguments, **named):
        calls.append(prepare(*arguments, **named).to_dict())
        return prepare(*arguments, **named)

    monkeypatch.setattr(GenerationMixin, "_prepare_generated_length", record)
    return calls


@pytest.mark.parametrize(("settings", "expected"), [
    ({}, {"num_beams": 3, "max_length": 14, "min_length": 3, "length_penalty": 2.0}),
    ({"max_length": 8, "num_beams": 2}, {"max_length": 8, "num_beams": 2, "min_length": 3}),
    ({"max_length": 3}, {"max_length": 3, "min_length": 0}),  # the card's minimum would leave no room for the end
    ({"max_new_tokens": 2}, {"max_length": 3, "min_length": 0}),
    ({"min_length": 30}, {"min_length": 30, "max_length": 29 + 128 + 1}),
    ({"min_new_tokens": 5}, {"min_length": 6, "max_length": 14}),
    ({"num_beams": 1}, {"num_beams": 1, "length_penalty": 1.0, "no_repeat_ngram_size": 2}),
    ({"beam_size": 2, "alpha": 0.5, "no_repeat_ngram": 4},
     {"num_beams": 2, "length_penalty": 0.5, "no_repeat_ngram_size": 4}),
])  # fmt: skip
def test_generate_works_with_the_settings_of_a_call_or_a_load(tmp_path, texts, prepared, capfd, settings, expected):
    def worked_with() -> dict:
        return {name: prepared[-1][name] for name in expected}

    folder = make_summarizer("pegasus", tmp_path / "pegasus", texts, window=200, **CARD)
    run = api.load(folder)
    run.summarize(texts[0], **settings)
    assert worked_with() == expected
    run.summarize(texts[0])  # the change was for one call
    assert prepared[-1]["num_beams"] == 3 and prepared[-1]["max_length"] == 14
    api.load(folder, generation=settings).summarize(texts[0])
    assert worked_with() == expected and "seem to have been set" not in capfd.readouterr().err


def test_the_length_of_a_decoder_is_that_of_its_answer(models, texts, prepared, monkeypatch):
    run = api.load(models["chat"], generation={"max_length": 20})
    run.summarize(texts[0])
    prompt = len(run.model.encode(texts[0]))
    assert prepared[-1]["max_length"] == prompt + 20 and prepared[-1]["do_sample"] is False
    run.summarize(texts[0], max_length=4)
    assert prepared[-1]["max_length"] == prompt + 4
    # a continuation after the summary is not counted as cut off
    model = HuggingFaceSummarizer(str(models["decoder"]))
    for output, is_cut_off in ("It rained.\n\nIt", False), ("It rained.\nIt", True):
        monkeypatch.setattr(model.generator, "generate", lambda _, text=output: [Generated(text, 128, True)])
        answers = [answer for group in model.answers([Document("1", [["It rains."]])]) for answer in group]
        assert [(answer.text, answer.stopped) for answer in answers] == [(output.split("\n\n")[0], is_cut_off)]


def test_options_that_contradict_each_other_are_refused(models):
    for options, message in (
        ({"generation": {"min_length": 12, "max_length": 9}}, "at least 11 and at most 8 tokens; lower the minimum"),
        ({"generation": {"num_beam": 2}}, "did you mean num_beams?"),
        ({"beams": 2}, "'beams'; a model of Hugging Face has generation"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            api.load(models["bart"], **options)


def windows_of(text: str, size: int) -> list[str]:
    windows: list[list[str]] = [[]]
    for sentence in map(str.split, sentences_of(text)):
        if windows[-1] and len(windows[-1]) + len(sentence) > size:
            windows.append([])
        windows[-1] += sentence
    return [" ".join(window) for window in windows]


@pytest.mark.parametrize("kind", ["bart", "chat"])
def test_windows_are_summarized_and_their_summaries_again(models, texts, kind):
    text = max(texts, key=len)
    beside = len(HuggingFaceSummarizer(str(models[kind])).encode(""))
    options = {"max_source": beside + 12, "generation": {"max_new_tokens": 5}}
    settings = {"max_new_tokens": 5} | ({"do_sample": False} if kind == "chat" else {"max_length": None})
    windows = windows_of(text, 12)
    joined = [sentence for window in windows for sentence in generate(models[kind], window, **settings)]
    summary = api.load(models[kind], **options).summarize(text)
    assert summary.sentences == joined and summary.extra["windows"] == len(windows) > 2
    again = api.load(models[kind], **options, long_documents="second_pass").summarize(text)
    second = windows_of("\n".join(joined), 12)
    assert again.sentences == [line for window in second for line in generate(models[kind], window, **settings)]
    cut = api.load(models[kind], **options, long_documents="truncate").summarize(text)
    assert cut.sentences == generate(models[kind], " ".join(text.split()[:12]), **settings)
    assert cut.extra["source_tokens"] == [beside + 12, beside + len(text.split())]


def test_primera_gets_its_separators_and_attends_from_them(tmp_path, texts):
    folder = make_summarizer("led", tmp_path / "primera", texts, **CARD)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer.add_tokens(["<doc-sep>"])
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    first, second = (text.split(".")[0] + " ." for text in texts[:2])
    summary = api.load(folder).summarize({"document": [first, second]})
    ids = tokenizer(f"{first} <doc-sep> {second} <doc-sep>", return_tensors="pt").input_ids
    attention = (ids == tokenizer.convert_tokens_to_ids("<doc-sep>")).long()
    assert attention.sum() == 2
    attention[:, 0] = 1
    output = model.generate(ids, global_attention_mask=attention)[0]
    assert summary.sentences == sentences_of(tokenizer.decode(output, skip_special_tokens=True))


def test_summarize_takes_a_checkpoint_with_a_budget_and_says_what_was_read(models, texts, tmp_path, precis):
    bart, text = models["bart"], texts[0]
    command = ["summarize", "--checkpoint", bart, write(tmp_path / "a.txt", text)]
    assert precis(*command).succeeded().out.strip() == " ".join(generate(bart, text))
    done = precis(*command, "--generation.max_length", 6, "--generation.num_beams", 1)
    assert done.out.strip() == " ".join(generate(bart, text, max_length=6, num_beams=1, min_length=0))
    assert len(precis(*command, "--words", 2).out.split()) == 2
    done = precis(*command, "--max_source", 8, "--json", "true")
    assert "read in " in done.err and "whose summaries were joined" in done.err
    assert json.loads(done.out)["windows"] == len(windows_of(text, 7))
    done = precis(*command, "--max_source", 8, "--long_documents", "truncate")
    assert f"first 8 of {len(text.split()) + 1} tokens were read" in done.err
    assert "selects no sentences" in precis(*command, "--scores", "true").err


def test_a_checkpoint_is_scored_and_shown(models, source, documents, texts, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "rouge1" in precis("test", "--checkpoint", models["t5"], *source).succeeded().out
    expected = [generate(models["t5"], f"summarize: {text}", **T5_CARD) for text in texts]
    assert [row["summary"] for row in read_lines(tmp_path / "t5.jsonl")] == expected
    assert (tmp_path / "t5.scores.jsonl").is_file()

    run = api.load(models["bart"])
    assert run.evaluate(documents, metrics="rouge", resamples=10).scores.loc["rouge1", "documents"] == len(documents)
    with pytest.raises(UserError, match="no documents of its own"):
        run.evaluate("test")
    page = Playground([str(models["bart"]), str(models["chat"])]).summarize(texts[0], "", ["bart", "chat"], 3)
    assert " ".join(run.summarize(texts[0]).sentences) in page and "HuggingFaceSummarizer" in page
