import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from conftest import prepared
from model_options import build_model
from quiet_trainer import quiet_trainer
from tiny_models import FAMILIES, make_summarizers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PegasusForConditionalGeneration

import precis as api
from datamodules.corpora import Files
from datamodules.documents import UserError
from datamodules.gap_sentences import GapSentenceData
from datamodules.pretrained_summarizer import PegasusData, PretrainedSummarizerData
from lightning_modules.decoding.hugging_face import decoding_options
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.pegasus import Pegasus
from lightning_modules.pretrained_summarizer import CheckpointOptions, PretrainedSummarizer, card_settings
from lightning_modules.rstformer.module import RSTformer
from lightning_modules.summarizer import Samples
from precis.summarizing.prompts import sentences_of

CARD = {"num_beams": 3, "max_length": 12, "min_length": 4, "no_repeat_ngram_size": 2, "length_penalty": 0.5}
CARD |= {"forced_eos_token_id": None, "early_stopping": True}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory, texts) -> dict[str, Path]:
    def settings(kind: str) -> dict:
        return CARD | ({"forced_bos_token_id": 3} if kind in ("bart", "led") else {})

    return make_summarizers(tmp_path_factory.mktemp("checkpoints"), [*texts, "summarize:"], settings, window=64)


@pytest.mark.parametrize("kind", FAMILIES)
@torch.no_grad()
def test_before_training_it_writes_what_generate_writes(checkpoints, corpus_files, texts, tmp_path, kind):
    folder = str(checkpoints[kind])
    prefix = "summarize: " if kind == "t5" else ""
    sizes = {"max_source": 64, "cache_dir": tmp_path, "batch_size": 4, "source_prefix": prefix}
    data = prepared(PretrainedSummarizerData(Files(**corpus_files), checkpoint=folder, **sizes))
    model = PretrainedSummarizer(CheckpointOptions(folder)).eval()
    model.set_tokenizer(data.tokenizer)
    summaries = [summary.sentences for batch in data.test_dataloader() for summary in model.summarize(batch)]
    tokenizer, theirs = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    task = {"max_length": 12, "num_beams": 3} if kind == "t5" else {}
    special = [[i] for i in (0, 3)]  # padding and <s>, which a summary has not
    expected = []
    for text in texts:
        # a word-level tokenizer with <s> puts it before the text here, as BART's own does
        ids = [data.tokenizer.start, *tokenizer(prefix + text).input_ids]
        whole = {"global_attention_mask": torch.eye(1, len(ids)).long()} if kind == "led" else {}
        output = theirs.generate(torch.tensor([ids]), bad_words_ids=special, **task, **whole)[0]
        expected.append(sentences_of(tokenizer.decode(output, skip_special_tokens=True)))
    assert summaries == expected and len({str(summary) for summary in summaries}) > 1


@torch.no_grad()
def test_summaries_longer_than_the_decoder_reads_are_refused(checkpoints, corpus_files, tmp_path):
    folder = str(checkpoints["bart"])  # it has 64 positions, the first of which is taken by a symbol
    data = PretrainedSummarizerData(Files(**corpus_files), checkpoint=folder, max_source=64, cache_dir=tmp_path)
    model = PretrainedSummarizer(CheckpointOptions(folder))
    model.set_tokenizer(prepared(data).tokenizer)
    batch = next(iter(data.test_dataloader()))
    tokens, lengths = model.sample(batch, replace(model.decoding, min_length=62, max_length=63))
    assert model.log_probs(batch, Samples(tokens, lengths)).isfinite().all() and lengths.max() == 63
    with pytest.raises(UserError, match="max_length is 64, the decoder has 63 positions"):
        model.sample(batch, replace(model.decoding, max_length=64))
    with pytest.raises(ValueError, match="a summary has 64 tokens, but the decoder has 63 positions"):
        model.log_probs(batch, Samples(tokens[..., [0, *range(63)]], lengths + 1))


def test_settings_of_the_card_become_decoding_options(checkpoints):
    settings = card_settings(AutoModelForSeq2SeqLM.from_pretrained(checkpoints["t5"]))
    options = decoding_options(settings)
    assert (options.beam_size, options.max_length, options.min_length) == (3, 11, 3)  # of the task, without the start
    assert (options.no_repeat_ngram, options.alpha, options.length_penalty) == (2, 0.5, "mean")
    assert decoding_options(settings, first_symbols=2).max_length == 10
    model = PretrainedSummarizer(CheckpointOptions(str(checkpoints["t5"])), decoding={"beam_size": 2})
    assert model.decoding == replace(options, beam_size=2), "the other settings of the card stay"
    settings.update(max_new_tokens=20)
    assert decoding_options(settings).max_length == 20


def test_checkpoints_in_half_precision_are_trained_in_float32(checkpoints, tmp_path):
    for kind, dtype in (("bart", torch.bfloat16), ("led", torch.float16)):
        folder = str(tmp_path / kind)
        AutoModelForSeq2SeqLM.from_pretrained(checkpoints[kind], dtype=dtype).save_pretrained(folder)
        models = [PretrainedSummarizer(CheckpointOptions(folder))]
        if kind == "led":
            models.append(build_model(RSTformer, {"checkpoint": folder, "decoding": DecodingOptions(1, 1, 20)}))
        assert {parameter.dtype for model in models for parameter in model.parameters()} == {torch.float32}
    with pytest.raises(ValueError, match="checkpoint is a bart, not a LED"):
        build_model(RSTformer, {"checkpoint": str(checkpoints["bart"])})


@pytest.fixture
def fit(corpus_files, tmp_path, precis):
    """Fine-tune a checkpoint on the corpus, and export the run to a folder that writes the same summaries."""

    def run_and_export(checkpoint: Path, text: str, name: str, *options: object) -> tuple[Path, Path]:
        run, exported = tmp_path / name, tmp_path / f"{name}-exported"
        files = [f"--data.corpus.{split}={path}" for split, path in corpus_files.items()]
        precis(
            "fit", "--model", "PretrainedSummarizer", f"--model.encoder.checkpoint={checkpoint}", "--run_dir", run,
            "--data", "PretrainedSummarizerData", "--data.corpus", "Files", *files, "--data.max_source", 64,
            "--data.batch_size", 4, "--model.optimizer.lr", 0.02, "--data.cache_dir", tmp_path / "cache",
            "--wandb", "off", "--trainer.accelerator", "cpu", "--previews", 0, *options,
        ).succeeded()  # fmt: skip
        assert precis("export", run, "--out", exported).status == 0
        summary = api.load(run).summarize(text).sentences
        assert summary and api.load(exported).summarize(text).sentences == summary
        return run, exported

    return run_and_export


@pytest.mark.integration
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_run_and_adapters_that_start_from_it_load_everywhere(checkpoints, texts, fit, kind):
    whole, exported = fit(checkpoints[kind], texts[0], "whole", "--trainer.max_steps", 4)
    weights = AutoModelForSeq2SeqLM.from_pretrained(exported).state_dict()
    first = AutoModelForSeq2SeqLM.from_pretrained(checkpoints[kind]).state_dict()
    state = api.load(whole).model.state_dict()
    trained = {name.removeprefix("network.model."): value for name, value in state.items()}
    assert all(torch.equal(value, trained[name]) for name, value in weights.items() if name in trained)
    assert any(not torch.equal(value, first[name]) for name, value in weights.items())
    pytest.importorskip("peft", reason="needs the extra lora")
    adapters = ["--model.encoder.lora_rank", 2, "--start_from", whole, "--trainer.max_steps", 4]
    run, exported = fit(checkpoints[kind], texts[0], "run", *adapters)
    saved = [torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True) for folder in (whole, run)]
    before, after = (checkpoint["state_dict"] for checkpoint in saved)
    for name, tensor in before.items():  # nothing but adapters has changed
        assert torch.equal(tensor, after[name if name in after else re.sub(r"\.(\w+)$", r".base_layer.\1", name)])
    changed = {name for name in after if name.endswith("lora_B.default.weight") and after[name].any()}
    assert changed and {name.split(".")[-4] for name in changed} <= {"q_proj", "v_proj", "q", "v", "query", "value"}
    ours = api.load(run).model.network.model.eval()
    theirs = AutoModelForSeq2SeqLM.from_pretrained(exported).eval()
    ids = AutoTokenizer.from_pretrained(exported)(texts[0], return_tensors="pt").input_ids
    with torch.no_grad():
        logits = [model(input_ids=ids, decoder_input_ids=ids[:, :5]).logits for model in (ours, theirs)]
    torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)


DECODING = DecodingOptions(beam_size=2, min_length=1, max_length=12, length_penalty="gnmt", alpha=0.8)
SMALL = {"vocab_size": 300, "hidden_size": 16, "heads": 2, "layers": 1, "decoder_layers": 2, "inner_size": 24}
SMALL |= {"dropout": 0.0, "decoding": DECODING}


def data_of(kind, files, folder, **changes):
    settings = {"vocab_size": 290, "max_source": 60, "max_target": 30, "batch_size": 4, "cache_dir": folder}
    return prepared(kind(Files(**files), **settings | changes))


@pytest.fixture(scope="module")
def data(corpus_files, folder):
    return data_of(PegasusData, corpus_files, folder)


@pytest.fixture
def released(tmp_path, data):
    """A folder as `save_pretrained` leaves it, the tokenizer's special symbols where the text has them."""
    text = data.tokenizer
    config = transformers.PegasusConfig(
        vocab_size=295, d_model=16, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=64,
        pad_token_id=text.pad, eos_token_id=text.stop, bos_token_id=text.start, decoder_start_token_id=text.pad,
        forced_eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    model = PegasusForConditionalGeneration(config)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    model.save_pretrained(tmp_path / "released")
    transformers.PreTrainedTokenizerFast(tokenizer_object=text.backend).save_pretrained(tmp_path / "released")
    return str(tmp_path / "released")


def test_a_checkpoint_is_taken_as_it_is(released, corpus_files, folder):
    data = data_of(PegasusData, corpus_files, folder, checkpoint=released)
    model, batch = build_model(Pegasus, SMALL | {"checkpoint": released}).eval(), next(iter(data.test_dataloader()))
    model.set_tokenizer(data.tokenizer)
    theirs = PegasusForConditionalGeneration.from_pretrained(released).eval()
    with torch.no_grad():
        labels = batch.target.masked_fill(torch.arange(batch.target.shape[1]) >= batch.target_lengths[:, None], -100)
        inputs = torch.cat([torch.full_like(batch.target[:, :1], data.tokenizer.pad), batch.target[:, :-1]], 1)
        logits = theirs(batch.source, attention_mask=batch.source_mask.long(), decoder_input_ids=inputs).logits
        logits = logits[..., : len(data.tokenizer)].transpose(1, 2)
        nll = torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="none")
        torch.testing.assert_close(model.loss_terms(batch)["nll"], (nll.sum(1) / batch.target_lengths).mean())


def test_a_checkpoint_is_pre_trained_and_its_text_serves_fine_tuning(released, corpus_files, folder, tmp_path):
    data = data_of(GapSentenceData, corpus_files | {"summary": None}, folder, checkpoint=released)
    assert data.tokenizer.mask is not None
    model = build_model(Pegasus, SMALL | {"checkpoint": released})
    before = {name: value.clone() for name, value in model.state_dict().items()}
    quiet_trainer(max_steps=3, limit_val_batches=0).fit(model, data)
    data.tokenizer.save(tmp_path / "text")
    tuning = data_of(PegasusData, corpus_files, folder, tokenizer_dir=tmp_path / "text")
    assert tuning.tokenizer.state() == data.tokenizer.state()
    assert any(not torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert len(model.summarize(next(iter(data.test_dataloader())))) == 4


def test_texts_without_symbols_and_the_papers_length_penalty(data, released, corpus_files, folder):
    model, text = build_model(Pegasus, SMALL), data.tokenizer
    model.set_tokenizer(text)
    ids = [text.start, *text("the otter guards")[0], text.mask, text.stop, *text(" mill")[0]]
    lengths = torch.tensor([[len(ids), len(ids) - len(text(" mill")[0])]])
    texts = model.texts(None, Samples(torch.tensor([[ids, ids]]), lengths))
    assert texts == [["the otter guards mill", "the otter guards"]]
    assert build_model(Pegasus, SMALL | {"decoding": None}).decoding.penalty(7) == pytest.approx(2**0.8), "the paper's"
    model = build_model(Pegasus, SMALL | {"checkpoint": released, "vocab_size": 900})
    with pytest.raises(UserError, match="the pretrained model 295"):
        model.set_tokenizer(data_of(PegasusData, corpus_files, folder, vocab_size=330).tokenizer)
    other = data_of(PegasusData, corpus_files, folder).tokenizer
    other.pad, other.start = other.start, other.pad
    with pytest.raises(UserError, match="differ in the pretrained model"):
        model.set_tokenizer(other)
    with pytest.raises(UserError, match=r"raise --model\.vocab_size"):
        build_model(Pegasus, SMALL | {"vocab_size": 100}).set_tokenizer(data.tokenizer)


def test_a_prefix_stands_before_every_document_and_takes_its_room(corpus_files, tmp_path):
    plain = data_of(PegasusData, corpus_files, tmp_path, max_source=24)
    prefixed = data_of(PegasusData, corpus_files, tmp_path, max_source=24, source_prefix="summarize: ")
    prefix = prefixed.tokenizer("summarize: ")[0]
    opening = len(prefixed.tokenizer.opening)
    for before, after in zip(plain.features("train"), prefixed.features("train"), strict=True):
        document = before["source"][opening:-1]
        assert after["source"][opening:-1] == prefix + document[: 24 - opening - 1 - len(prefix)]
        assert len(after["source"]) <= 24
