import pytest
import torch
from model_options import build_model
from quiet_trainer import quiet_trainer
from transformers import PegasusConfig, PegasusForConditionalGeneration, PreTrainedTokenizerFast

from datamodules.corpora import Files
from datamodules.documents import UserError
from datamodules.gap_sentences import GapSentenceData
from datamodules.pretrained_summarizer import PegasusData
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.pegasus import Pegasus
from lightning_modules.summarizer import Samples

DECODING = DecodingOptions(beam_size=2, min_length=1, max_length=12, length_penalty="gnmt", alpha=0.8)
SMALL = {"vocab_size": 300, "hidden_size": 16, "heads": 2, "layers": 1, "decoder_layers": 2, "inner_size": 24}
SMALL |= {"dropout": 0.0, "decoding": DECODING}


def data_of(kind, files, folder, **changes):
    settings = {"vocab_size": 290, "max_source": 60, "max_target": 30, "batch_size": 4, "cache_dir": folder}
    data = kind(Files(**files), **settings | changes)
    data.prepare_data()
    data.setup("test")
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pegasus")


@pytest.fixture(scope="module")
def data(corpus_files, folder):
    return data_of(PegasusData, corpus_files, folder)


@pytest.fixture
def released(tmp_path, data):
    """A folder as `save_pretrained` leaves it, the tokenizer's special symbols where the text has them."""
    text = data.tokenizer
    config = PegasusConfig(
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
    PreTrainedTokenizerFast(tokenizer_object=text.backend).save_pretrained(tmp_path / "released")
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
        nll = torch.nn.functional.cross_entropy(
            logits[..., : len(data.tokenizer)].transpose(1, 2), labels, ignore_index=-100, reduction="none"
        )
        expected = (nll.sum(1) / batch.target_lengths).mean()
        torch.testing.assert_close(model.loss_terms(batch)["nll"], expected)


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
    plain, prefixed = (
        data_of(PegasusData, corpus_files, tmp_path, max_source=24, source_prefix=prefix)
        for prefix in ("", "summarize: ")
    )
    prefix = prefixed.tokenizer("summarize: ")[0]
    opening = len(prefixed.tokenizer.opening)
    for before, after in zip(plain.features("train"), prefixed.features("train"), strict=True):
        document = before["source"][opening:-1]
        assert after["source"][opening:-1] == prefix + document[: 24 - opening - 1 - len(prefix)]
        assert len(after["source"]) <= 24
