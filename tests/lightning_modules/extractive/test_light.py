import math

import pytest
import torch
from small_extractive import batch_of, data
from tiny_models import write_bert

from datamodules.documents import Document
from datamodules.text.sentence_layout import NUM_FEATURES, PROSE, layout_features
from datamodules.text.subword_tokenizer import EncoderTokenizer
from lightning_modules.checkpoints import write_exported
from lightning_modules.exported import EXPORTED
from lightning_modules.extractive.bertsum import BertSum
from lightning_modules.extractive.layout import lead_prior
from lightning_modules.extractive.light import LightExtractor
from lightning_modules.extractive.selection import SelectionOptions
from lightning_modules.extractive.sentence_network import InterSentenceOptions
from lightning_modules.options import SentenceEncoderOptions

LINES = ["Report on the storm", "By A. N. Author", "A storm hit the coast of the north on Monday.",
         "Boats sank in the harbor, and nobody had slept.", "storm coast " * 60 + "at the end."]  # fmt: skip
DOCUMENTS = [
    Document("report", [LINES[:2], LINES[2:]]),
    Document("one", [["A storm hit the coast."]]),
    Document("headings", [["Storm", "Coast"]]),
]
ENCODER = {"hidden_size": 8, "heads": 2, "layers": 1, "interval_segments": False}
ARGUMENTS = {"vocab_size": 300, "encoding": "separate", "pooling": "mean", "scoring": "classifier"}
ARGUMENTS["inter_sentence"] = {"layers": 1, "heads": 2, "inner_size": 8, "width": 4, "layout": True}
ARGUMENTS["inter_sentence"] |= {"lead_prior": 0.2, "members": 2}
TEXT = EncoderTokenizer.build(LINES, 300)


def model(encoder: str | None, **arguments) -> BertSum:
    torch.manual_seed(1)
    options = ARGUMENTS | {"encoder": ENCODER | {"checkpoint": encoder, "frozen": encoder is not None}}
    made = {"encoder": SentenceEncoderOptions(**options.pop("encoder"))}
    made["inter_sentence"] = InterSentenceOptions(**options.pop("inter_sentence"))
    return BertSum(**made | options | arguments)


def layout_batch():
    made = data(piece=40)
    made.tokenizer = TEXT
    return batch_of(made, DOCUMENTS)


def test_positions_are_counted_over_prose_and_the_prior_is_for_the_beginning_and_the_topic():
    features = layout_features([document.sentences for document in DOCUMENTS])
    assert features.shape == (3, 5, NUM_FEATURES) and features[0, :, PROSE].tolist() == [0, 0, 1, 1, 1]
    assert features[0, :, 0].tolist() == pytest.approx([0, 0, 0, 1 / 3, 2 / 3])  # share of prose before each sentence
    assert features[2, :, PROSE].sum() == 0 and features.isfinite().all()
    assert not features[1, 1:].any(), "padding"
    features = layout_features([["One sentence of plain prose."] * 3, ["One sentence of plain prose."] * 60])
    prior = lead_prior(features, torch.ones(2, 60, 4), features.any(-1), 0.2)
    assert prior[0, :3].tolist() == pytest.approx([1 - 0.2 * math.log(1 + before) for before in range(3)], abs=1e-5)
    assert prior[1, 59].item() == pytest.approx(1 - 0.1 * math.log(60), abs=1e-5)  # half as strong in 60 sentences
    batch = layout_batch()
    scored = model(None).eval().score(batch)
    added = lead_prior(batch.layout, scored.vectors, batch.mask, 0.2)
    assert torch.allclose(scored.logits, scored.members.mean(0) + added)
    with pytest.raises(ValueError, match="lead_prior needs"):
        model(None, inter_sentence=InterSentenceOptions(layers=1, heads=2, width=4, lead_prior=0.2))


def test_members_are_trained_one_by_one_and_averaged():
    options, batch = ARGUMENTS["inter_sentence"] | {"lead_prior": 0.0}, layout_batch()
    three = model(None, dropout=0.0, inter_sentence=InterSentenceOptions(**options | {"members": 3}))
    single = model(None, dropout=0.0, inter_sentence=InterSentenceOptions(**options | {"members": 1}))
    names, state = single.state_dict(), three.state_dict()
    assert list(names) == [name for name in state if ".others." not in name]
    logits, losses = [], []
    for prefix in ("network.", "network.others.0.", "network.others.1."):
        weights = {name: state.get(name.replace("network.", prefix, 1), state[name]) for name in names}
        single.load_state_dict(weights)
        logits.append(single.eval().score(batch).logits)
        losses.append(single.loss_terms(batch)["extraction"])
    assert torch.allclose(three.eval().score(batch).logits, torch.stack(logits).mean(0), atol=1e-6)
    assert not torch.allclose(logits[0], logits[1])
    loss = three.loss_terms(batch)["extraction"]
    assert loss.item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)
    loss.backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in three.parameters())


@pytest.mark.parametrize("pretrained", [True, False])
def test_scores_and_summaries_are_those_of_the_whole_model(pretrained, tmp_path):
    sizes = {"vocab_size": 300, "num_hidden_layers": 2, "intermediate_size": 24, "max_position_embeddings": 64}
    checkpoint = write_bert(tmp_path / "bert", [], **sizes) if pretrained else None
    made = model(checkpoint, selection=SelectionOptions("trigram_blocking", 2))
    folder = tmp_path / "exported"
    TEXT.save(folder / "text")
    weights = {name: value for name, value in made.state_dict().items() if "reader" not in name or not pretrained}
    write_exported(folder / EXPORTED, weights, {"loss_weights": {}, "global_step": 1, "switches": None})
    arguments = ARGUMENTS | {"encoder": ENCODER | {"checkpoint": checkpoint}}
    arguments["selection"] = {"selector": "trigram_blocking", "k": 2}
    light = LightExtractor(arguments, {"piece": 40, "max_source": None}, folder)
    for document, expected in zip(DOCUMENTS, made.summarize(layout_batch()), strict=True):
        summary = light.summarize(document.id, document.sentences, light.selection)
        assert summary.positions == expected.positions
        assert summary.sentence_scores == pytest.approx(expected.sentence_scores, abs=1e-4)
