import copy
import json
import re
from dataclasses import replace

import pytest
import torch
from made_up_treebank import made_up_treebank, write_encoder
from pytorch_lightning import Callback, Trainer, seed_everything
from quiet_trainer import quiet_trainer
from torch.testing import assert_close

from callbacks import StartFrom
from datamodules.discourse.features import ParserBatch, parser_features
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.documents import UserError
from datamodules.treebank import TreebankData
from lightning_modules.discourse_parser.parser import DiscourseParser, layout_of
from lightning_modules.discourse_parser.segmenter import EduSegmenter
from lightning_modules.discourse_parser.span_scorer import Units, node_scores
from lightning_modules.options import EncoderAdamWOptions
from tests.lightning_modules.discourse_parser.brute_trees import trees

TINY = {"hidden_size": 24, "fit_size": 4}


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    return made_up_treebank(tmp_path_factory.mktemp("treebank") / "trees.jsonl")


def data_of(treebank, **options) -> TreebankData:
    return TreebankData(treebank, treebank, treebank, **options)


def features_of(treebank, **options) -> list:
    data = data_of(treebank, **options)
    data.setup("fit")
    return data._features["train"]


def trainer_with(*callbacks: Callback, **options) -> Trainer:
    return quiet_trainer(*callbacks, gradient_clip_val=1.0, num_sanity_val_steps=0, **options)


@pytest.fixture(scope="module")
def trained(treebank):
    seed_everything(1)
    model = DiscourseParser(members=2, optimizer=EncoderAdamWOptions(lr=0.01), dropout=0.1, **TINY)
    trainer = trainer_with(max_epochs=25, check_val_every_n_epoch=25)
    trainer.fit(model, data_of(treebank, batch_size=3))
    return model.eval(), trainer


def requests(data: TreebankData) -> list[ParseRequest]:
    documents = data.documents("train")
    return [ParseRequest(d.id, d.text, tuple(d.sentences), tuple(d.paragraphs), tuple(d.edus)) for d in documents]


def test_the_loss_is_the_likelihood_among_all_trees(treebank):
    """-log P(tree) against every tree of the shortest document, -log P(class) one node at a time."""
    torch.manual_seed(0)
    model = DiscourseParser(**TINY).eval()
    features = min(features_of(treebank), key=lambda text: text.size)
    batch = ParserBatch.of([features])
    terms = model.loss_terms(batch)
    layout, scorer = layout_of(batch), model.scorers[0]
    tables = scorer.tables(model.vectors(batch), layout)
    potentials = scorer.potentials(tables, layout, Units.edus(layout))

    def total(tree) -> torch.Tensor:
        return node_scores(potentials, torch.zeros(len(tree), dtype=torch.long), *torch.tensor(tree).T).sum()

    gold = [tuple(node) for node in features.nodes[:, :3].tolist()]
    every = torch.stack([total(tree) for tree in trees(0, features.size - 1)])
    assert features.size == 6 and len(every) == 42
    assert_close(terms["tree"], (every.logsumexp(0) - total(gold)) / 5)
    wrong = 0.0
    for start, split, end, label in features.nodes.tolist():
        places = [torch.tensor([n]) for n in (0, start, split, end)]
        wrong = wrong - scorer.class_logits(tables, layout, *places).log_softmax(-1)[0, label]
    assert_close(terms["classes"], wrong / 5)


def test_two_documents_weigh_like_two_batches_and_every_parameter_gets_a_gradient(treebank):
    torch.manual_seed(0)
    model = DiscourseParser(members=2, **TINY).eval()
    texts = features_of(treebank)[:2]
    together = model.loss_terms(ParserBatch.of(texts))
    alone = [model.loss_terms(ParserBatch.of([text])) for text in texts]
    assert_close(together, {name: sum(terms[name] for terms in alone) / 2 for name in together})
    sum(together.values()).backward()
    assert not [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]


def test_learns_a_treebank_by_heart(trained, treebank):
    model, trainer = trained
    (scores,) = trainer.test(model, data_of(treebank), verbose=False)
    assert scores["test/original_parseval/F"] > 90
    untrained = trainer_with().test(DiscourseParser(**TINY), data_of(treebank), verbose=False)[0]
    assert untrained["test/original_parseval/F"] < 40


def check_distribution(parse: DiscourseParse, least: float = 0.95) -> None:
    """Check sums over both directions of each pair, up to the rounding to a byte, and gamma."""
    pairs = parse.dense().sum(-1)
    both = (pairs + pairs.T)[~torch.eye(parse.size, dtype=torch.bool)]
    assert both.min() > least and both.max() < 2.05
    assert_close(parse.gamma, parse.dense().sum((1, 2)) / parse.size, atol=0.02, rtol=0)


def test_parses_hold_trees_and_distributions_of_their_documents_and_odd_texts_are_parsed(trained, treebank):
    model, _ = trained
    asked = requests(data_of(treebank))
    for request, parse in zip(asked, model.predict_step(asked, 0)):
        alone = model.parse(request)
        assert parse.id == request.id and parse.edus.tolist() == [list(edu) for edu in request.edus]
        assert alone.tree.equal(parse.tree) and (alone.ldd.int() - parse.ldd.int()).abs().max() <= 1
        check_distribution(parse)
    for text in ("Yes.", "x", "Ça 😀 va\u200b ?\n\n— 𝔬𝔲𝔦 .", "a b " * 150):
        parse = model.parse(ParseRequest("odd", text, (), ()))
        assert parse.size >= 1 and len(parse.tree) == parse.size - 1
    with pytest.raises(ValueError, match="'blank' is empty"):
        model.parse(ParseRequest("blank", " \n", (), ()))
    model = copy.deepcopy(model)  # a long text is parsed in chunks
    for rows, least in (("side", 0.95), ("nucleus", -0.05)):
        model.cap, model.rows = 4, rows
        parse = model.parse(max(asked, key=lambda request: len(request.edus)))
        assert len(parse.tree) == parse.size - 1 == 9
        check_distribution(parse, least)


def test_saved_weights_give_the_same_parse_and_start_training(trained, treebank, tmp_path):
    model, trainer = trained
    model.save(tmp_path / "saved")
    trainer.save_checkpoint(tmp_path / "parser.ckpt")
    asked = requests(data_of(treebank))[:2]
    expected = model.predict_step(asked, 0)
    exact = DiscourseParser.from_checkpoint(str(tmp_path / "parser.ckpt"))
    assert exact.fingerprint == model.fingerprint
    for one, other in zip(exact.predict_step(asked, 0), expected):
        assert one.tree.equal(other.tree) and one.ldd.equal(other.ldd)
    halved = DiscourseParser.load(tmp_path / "saved", rows="nucleus", band=3)
    assert halved.fingerprint != model.fingerprint and halved.rows == "nucleus"
    assert all(one.tree.equal(other.tree) for one, other in zip(halved.predict_step(asked, 0), expected))
    begun, start = DiscourseParser(members=2, **TINY), StartFrom(tmp_path / "parser.ckpt")
    trainer_with(start, max_steps=0).fit(begun, data_of(treebank))
    assert all(value.equal(model.state_dict()[name]) for name, value in begun.state_dict().items())
    with pytest.raises(UserError, match="does not fit the model"):
        trainer_with(start, max_steps=1).fit(DiscourseParser(hidden_size=8), data_of(treebank))


def test_wrong_settings_and_broken_weights_are_named(tmp_path):
    for options, problem in [
        ({"inventory": "pdtb"}, "'pdtb' is unknown; give gum, rst_dt, or your"), ({"members": 0}, "members 0"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=problem):
            DiscourseParser(**options)
    with pytest.raises(UserError, match=r"name a folder with config\.json"):
        DiscourseParser.load("nowhere")
    DiscourseParser(**TINY).save(tmp_path)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    whole, settings = weights.read_bytes(), json.loads(config.read_text())
    for content, changes, problem in [
        (whole[:1000], {}, "broken"),
        (whole, {"hidden_size": 7 * 2}, "do not fit at scorers"),
        (whole, {"speed": 7}, "not a discourse parser's"),
    ]:
        weights.write_bytes(content)
        config.write_text(json.dumps(settings | changes))
        with pytest.raises(UserError, match=problem):
            DiscourseParser.load(tmp_path)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, treebank) -> str:
    texts = [document.text for document in data_of(treebank).documents("train")]
    return write_encoder(tmp_path_factory.mktemp("encoder"), texts)


@pytest.mark.parametrize("options, trained", [
    ({"frozen": True}, "nothing"), ({"frozen": False}, r"encoder\."),
    ({"frozen": False, "frozen_layers": 1}, r"encoder\.model\.encoder\.layer\.1\."),
    ({"lora_rank": 2}, r"encoder\..*weight\.0\.(left|right)$"),
], ids=str)  # fmt: skip
def test_over_a_pretrained_encoder(options, trained, encoder, treebank, tmp_path):
    model = DiscourseParser.of_settings(encoder=encoder, layers=(0, 2), window=16, **options, **TINY)
    data = data_of(treebank, checkpoint=encoder, batch_size=3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer_with(max_epochs=1, precision="bf16-mixed").fit(model, data)
    moved = {n for n, value in model.state_dict().items() if n.startswith("encoder.") and not value.equal(before[n])}
    expected = {name for name in before if re.match(trained, name)}
    assert {name for name in model.state_to_keep() if name.startswith("encoder.")} == expected
    assert moved <= expected and bool(moved) == bool(expected)
    model.train().save(tmp_path / "saved")
    (request, *_), again = requests(data), DiscourseParser.load(tmp_path / "saved")
    parsed = model.predict_step([request])[0].ldd.int()  # without dropout, also in the mode that training leaves
    assert (again.parse(request).ldd.int() - parsed).abs().max() <= 3 and model.training


def test_a_frozen_encoder_reads_each_text_and_not_each_id(encoder, treebank):
    """Different texts with one id, and one text with two segmentations, have different vectors."""
    model = DiscourseParser.of_settings(encoder=encoder, layers=(0, 2), window=16, **TINY).eval()
    one, other = (replace(text, id="same") for text in features_of(treebank, checkpoint=encoder)[:2])
    document = data_of(treebank).documents("train")[0]
    whole = parser_features(document, [(0, len(document.text))], model.subwords, name="same")
    for texts in ([one], [other], [whole], [other, one]):
        batch = ParserBatch.of(texts)
        assert_close(model._training_vectors(batch), model.vectors(batch), atol=2e-3, rtol=2e-3)
    assert len(model.vector_cache) == 3


@pytest.mark.parametrize("trained", [{}, {"frozen": False}, {"frozen": False, "lora_rank": 2}])
@pytest.mark.parametrize("layers", [(0, 2), (2,), (2, 0)])
def test_parser_and_segmenter_over_one_encoder_equal_two(encoder, treebank, layers, trained, monkeypatch, tmp_path):
    """A batch of texts with and without EDUs, against segmentation first and gold EDUs afterwards."""
    torch.manual_seed(0)
    model = DiscourseParser.of_settings(encoder=encoder, layers=layers, window=16, **TINY, **trained)
    for parameter in model.encoder.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter) * parameter.requires_grad
    model.save(tmp_path / "parser")
    # near ties between trees are not decided by rounding
    model = DiscourseParser.load(tmp_path / "parser", encoder_precision="float32")
    tuned_by = str(tmp_path / "parser") if trained else None
    sizes = {"layers": (0, 2), "window": 16, "projection": 8, "hidden_size": 8}
    model.segmenter = EduSegmenter.of_settings(encoder=encoder, tuned_by=tuned_by, **sizes).eval()
    tuned = DiscourseParser.of_settings(encoder=encoder, layers=layers, window=16, tuned_by=tuned_by, **TINY)
    assert model.segmenter.columns_of(tuned) == model.segmenter.columns_of(model) is not None  # the same weights
    assert (EduSegmenter.of_settings(encoder=encoder, **sizes).columns_of(tuned) is None) == bool(trained)
    with_edus = requests(data_of(treebank, checkpoint=encoder))
    asked = [replace(request, edus=None) if number % 2 else request for number, request in enumerate(with_edus)]
    with monkeypatch.context() as patch:
        patch.setattr(model.encoder, "forward", None)  # the segmenter's encoder reads each text for both
        together = model.predict_step(asked)
    assert {parse.size for parse in together} != {len(request.edus) for request in with_edus}
    for request, parse in zip(asked, together):
        edus = request.edus or model.segmenter.segment([request])[0]
        alone = model.parse(replace(request, edus=tuple(edus)))
        assert parse.edus.tolist() == alone.edus.tolist() and parse.tree.equal(alone.tree)
        assert (parse.ldd.int() - alone.ldd.int()).abs().max() <= 1
        assert_close(parse.gamma, alone.gamma)


@pytest.mark.parametrize("other", [{"window": 12}, {"layers": (2,)}, {"frozen": False}])
def test_a_segmenter_over_another_encoder_has_its_own_vectors(encoder, treebank, other):
    torch.manual_seed(0)
    model = DiscourseParser.of_settings(encoder=encoder, layers=(0, 2), window=16, **TINY).eval()
    options = {"layers": (0, 2), "window": 16} | other
    model.segmenter = EduSegmenter.of_settings(encoder=encoder, projection=8, hidden_size=8, **options).eval()
    request = replace(requests(data_of(treebank, checkpoint=encoder))[0], edus=None)
    assert model.parse(request).edus.tolist() == [list(edu) for edu in model.segmenter.segment([request])[0]]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("trained", [{}, {"frozen": False}, {"frozen": False, "lora_rank": 2}])
def test_bfloat16_gives_nearly_the_parse_of_float32(trained, device, encoder, treebank):
    torch.manual_seed(0)
    options = {"encoder": encoder, "layers": (0, 2), "window": 16, **TINY, **trained}
    models = {name: DiscourseParser.of_settings(encoder_precision=name, **options) for name in ("float32", "bfloat16")}
    models["bfloat16"].load_state_dict(models["float32"].state_dict())
    texts = [torch.tensor(models["float32"].subwords(r.text).ids, device=device) for r in requests(data_of(treebank))]
    exact, rounded = (torch.cat(m.eval().to(device)._encode(m.encoder, texts)) for m in models.values())
    assert rounded.dtype == torch.float32 and not rounded.equal(exact)
    assert_close(rounded, exact, atol=0.05, rtol=0.02)
    for request in requests(data_of(treebank, checkpoint=encoder)):
        parses = [model.parse(request) for model in models.values()]
        assert_close(parses[1].gamma, parses[0].gamma, atol=0.05, rtol=0.02)
    assert models["float32"].fingerprint != models["bfloat16"].fingerprint
