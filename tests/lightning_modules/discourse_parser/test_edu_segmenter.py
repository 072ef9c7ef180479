import itertools
from itertools import product
from pathlib import Path

import pytest
import torch
from conftest import write_lines
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_treebank import made_up_row, made_up_treebank
from pytorch_lightning import seed_everything
from quiet_trainer import quiet_trainer
from tiny_models import write_bert

import lightning_modules.discourse_parser.segmenter as segmenters
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import UserError
from datamodules.text.edu_features import SegmentationBatch, edu_features
from datamodules.treebank import SegmentationData
from lightning_modules.discourse_parser.boundary_network import LinearChainCRF
from lightning_modules.discourse_parser.segmenter import EduSegmenter
from lightning_modules.options import EncoderAdamWOptions


def asked(text: str, sentences=()) -> ParseRequest:
    return ParseRequest("doc", text, tuple(sentences), ())


@pytest.fixture(scope="module")
def treebank(tmp_path_factory) -> dict[str, Path]:
    """Documents whose EDUs begin at sentences, and at conjunctions; a third may not be used."""
    folder = tmp_path_factory.mktemp("treebank")
    return {split: made_up_treebank(folder / f"{split}.jsonl", size, 10) for split, size in (("train", 24), ("val", 4))}


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory) -> str:
    words = ["the", "ott", "##er", "number", *"0123456789", "swam", "because", "although", "if", "it", "rained", "."]
    sizes = {"num_hidden_layers": 2, "max_position_embeddings": 32}
    return write_bert(tmp_path_factory.mktemp("encoder"), words, **sizes)


def made(encoder: str = "small", **options) -> EduSegmenter:
    torch.manual_seed(1)
    sizes = {"layers": (0, 2), "window": 32, "projection": 8, "hidden_size": 6}
    return EduSegmenter.of_settings(encoder=encoder, **sizes | options).eval()


@pytest.mark.parametrize("kind", ["small", "frozen", "fine-tuned", "lora"])
def test_learns_where_edus_begin(kind, treebank, tiny_bert):
    seed_everything(0)
    encoder = "small" if kind == "small" else tiny_bert
    data = SegmentationData(**treebank, checkpoint=encoder, licences=["CC BY 4.0"], batch_size=2)
    options = {"lora_rank": 2} if kind == "lora" else {"frozen": kind == "frozen"}
    model = made(encoder, optimizer=EncoderAdamWOptions(lr=0.02, encoder_lr=0.002), dropout=0.0, **options)
    trainer = quiet_trainer(max_epochs=10 if kind == "frozen" else 5)
    trainer.fit(model, data)
    assert trainer.callback_metrics["val/inner_f1"] > 95 and trainer.callback_metrics["val/f1"] > 97
    assert len(data.documents("train")) == 16
    record = made_up_row(50, 10)
    assert [list(edu) for edu in model.segment([asked(record["text"], record["sentences"])])[0]] == record["edus"]
    assert bool(model.vector_cache) == (kind == "frozen")


def check(text: str, edus: list[tuple[int, int]]) -> None:
    assert all(text[a:b] == text[a:b].strip() != "" for a, b in edus)
    assert [a for a, _ in edus] == sorted(a for a, _ in edus)
    covered = [at for a, b in edus for at in range(a, b)]
    assert len(set(covered)) == len(covered)
    assert {at for at, letter in enumerate(text) if not letter.isspace()} <= set(covered)
    assert bool(edus) == bool(text.strip())


ANY = made()


@settings(max_examples=60)
@given(st.text(st.sampled_from("ab. !?,\n\t\u00a0\u200bé\u0301'\"A🧬\u3000\ud800"), max_size=60), st.data())
def test_edus_cover_any_text(text, data):
    check(text, ANY.segment([asked(text)])[0])
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    sentences = list(zip([0, *places], [*places, len(text)]))
    edus = ANY.segment([asked(text, sentences)])[0]
    check(text, edus)
    firsts = {b - len(text[a:b].lstrip()) for a, b in sentences if text[a:b].strip()}
    assert firsts <= {a for a, _ in edus}  # a sentence always begins an EDU


def test_texts_of_any_length_do_not_depend_on_each_other_and_blank_ones_have_no_edu(tiny_bert, monkeypatch):
    for text, model in product(("", " \n ", "\u200b", "é", "🧬", "a" * 20_000), (ANY, made(tiny_bert))):
        edus = model.segment([asked(text)])[0]
        check(text, edus)
        assert len(edus) <= 1
    tokens = "otter, " * 10_000  # twenty thousand in one sentence
    check(tokens, ANY.segment([asked(tokens, [(0, len(tokens))])])[0])
    requests = [asked(made_up_row(i, 10 + i)["text"]) for i in range(3)]
    for model in (ANY, made(tiny_bert)):
        assert model.segment(requests) == [model.segment([request])[0] for request in requests]
        batch = SegmentationBatch.of([edu_features(request, model.subwords) for request in requests])
        with torch.no_grad():
            vectors = model.vectors(batch)
            tags = model._tags(batch, vectors)
            monkeypatch.setattr(segmenters, "_CELLS", 20)  # chains one or two at a time
            assert tags.equal(model._tags(batch, vectors))
            emissions, mask = model.emissions(batch, vectors)
        assert tags.equal(model.crf.decode(emissions, mask)[mask])
        monkeypatch.undo()


def test_a_checkpoint_brings_the_weights_back_and_a_licence_is_matched_literally(treebank, tiny_bert, tmp_path, caplog):
    data = SegmentationData(**treebank, checkpoint=tiny_bert)
    model, trainer = made(tiny_bert), quiet_trainer(max_steps=2)
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    other = made(tiny_bert, optimizer=EncoderAdamWOptions(lr=0.0))
    quiet_trainer(max_steps=3).fit(other, data, ckpt_path=tmp_path / "last.ckpt", weights_only=True)
    assert not any(name.startswith("encoder.") for name in torch.load(tmp_path / "last.ckpt")["state_dict"])
    assert other.trainer.global_step == 3
    with pytest.raises(UserError, match=r"no document has one of .* --data.licences null"):
        SegmentationData(**treebank, licences=["CC BY"]).documents("train")
    rows = [made_up_row(number, 10) | {"license": licence} for number, licence in enumerate(("", "CC0", "NC"))]
    mixed = write_lines(tmp_path / "mixed.jsonl", rows)
    SegmentationData(mixed, mixed, licences=["", "CC0"]).documents("train")
    assert "2 of 3 documents; left out: NC\n" in caplog.text
    with pytest.raises(UserError, match="is not given; name a treebank"):
        data.documents("test")


def test_a_sentence_that_begins_within_an_edu_counts_as_a_beginning():
    text = "The otter slept. The heron left because the lynx sang."
    edus = [(0, 31), (32, 54)]  # the second sentence lies within the first EDU
    features = edu_features(asked(text, [(0, 16), (17, 54)]), edus=edus)
    batch = SegmentationBatch.of([features])
    torch.manual_seed(0)
    model = made()
    assert features.tags.nonzero().flatten().tolist() != features.begins.nonzero().flatten().tolist()
    with torch.no_grad():
        emissions, mask = model.emissions(batch, model.vectors(batch))
        tags = (features.tags.bool() | features.begins).long()[batch.rows]
        expected = -model.crf.log_likelihood(emissions, tags, mask) / len(features.words)
        assert expected.isfinite()
        torch.testing.assert_close(model.loss_terms(batch)["loss"], expected)


INSTALL = "pip install --no-deps -r allennlp.txt"
LENGTHS = [5, 1, 3]


def made_up(tags: int = 3) -> tuple[LinearChainCRF, torch.Tensor, torch.Tensor]:
    """A field with random parameters, scores [3, 5, K] with impossible tags, and the mask of three chains."""
    torch.manual_seed(0)
    crf = LinearChainCRF(tags).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    emissions = torch.randn(3, 5, tags, dtype=torch.float64)
    emissions[0, 0, 0] = emissions[0, 3, 1] = emissions[2, 2, 0] = float("-inf")
    return crf, emissions, torch.arange(5) < torch.tensor(LENGTHS)[:, None]


def score_by_hand(crf: LinearChainCRF, emissions: torch.Tensor, tags: tuple[int, ...]) -> torch.Tensor:
    total = crf.start_transitions[tags[0]] + crf.end_transitions[tags[-1]]
    for t, tag in enumerate(tags):
        total = total + emissions[t, tag]
    for one, next_one in itertools.pairwise(tags):
        total = total + crf.transitions[one, next_one]
    return total


def test_likelihood_and_decoding_equal_those_of_all_sequences():
    crf, emissions, mask = made_up()
    best, tags, expected = crf.decode(emissions, mask), torch.full((3, 5), 2), 0
    for row, length in enumerate(LENGTHS):
        tags[row, :length] = torch.tensor([2, 1, 0, 2, 1][:length])
        scores = {tags: score_by_hand(crf, emissions[row], tags) for tags in itertools.product(range(3), repeat=length)}
        everything = torch.logsumexp(torch.stack(list(scores.values())), 0)
        expected = expected + scores[tuple(tags[row, :length].tolist())] - everything
        assert tuple(best[row, :length].tolist()) == max(scores, key=lambda tags: scores[tags].item())
        assert best[row, length:].eq(0).all()
    likelihood = crf.log_likelihood(emissions, tags, mask)
    torch.testing.assert_close(likelihood, expected)
    gradients = (torch.autograd.grad(x, tuple(crf.parameters()), retain_graph=True) for x in (likelihood, expected))
    torch.testing.assert_close(*gradients)
    likelihood.backward()
    assert all(parameter.grad.isfinite().all() for parameter in crf.parameters()), "impossible tags have none"


def test_log_likelihood_and_tags_equal_those_of_allennlp():
    library = pytest.importorskip("allennlp_light.modules.conditional_random_field", reason=INSTALL)
    crf, emissions, mask = made_up()
    allen = library.ConditionalRandomField(3).double()
    allen.load_state_dict(crf.state_dict(), strict=False)
    tags, finite = torch.full((3, 5), 2), emissions.clamp(min=-1e4)  # its masks multiply -inf by 0
    torch.testing.assert_close(allen(finite, tags, mask), crf.log_likelihood(emissions, tags, mask))
    for ours, length, (theirs, _) in zip(crf.decode(emissions, mask), LENGTHS, allen.viterbi_tags(finite, mask)):
        assert ours[:length].tolist() == theirs
