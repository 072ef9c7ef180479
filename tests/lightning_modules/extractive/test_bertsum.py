import math
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from pytorch_lightning import Trainer
from small_extractive import DOCUMENTS, batch_of, bertsum, data
from tiny_models import write_bert
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from datamodules.cache_folder import list_entries
from datamodules.documents import Document
from datamodules.text import sentence_layout
from datamodules.text.sentence_layout import NUM_FEATURES, PROSE, TEXTRANK, layout_features
from datamodules.text.subword_tokenizer import EncoderTokenizer
from lightning_modules.checkpoints import write_exported
from lightning_modules.exported import EXPORTED
from lightning_modules.extractive.baselines import lexrank, textrank
from lightning_modules.extractive.bertsum import BertSum
from lightning_modules.extractive.layout import lead_prior
from lightning_modules.extractive.light import LightExtractor
from lightning_modules.extractive.names import POOLINGS, SCORINGS, SELECTORS
from lightning_modules.extractive.selection import SelectionOptions
from lightning_modules.extractive.sentence_network import InterSentenceOptions
from lightning_modules.extractive.vector_cache import VectorCache
from lightning_modules.networks.passages import Reader
from lightning_modules.options import SentenceEncoderOptions


def model(**arguments) -> BertSum:
    torch.manual_seed(0)
    return bertsum(**arguments)


@pytest.mark.parametrize("encoding", ["joint", "separate"])
@pytest.mark.parametrize("selector", SELECTORS)
def test_documents_of_any_kind_are_summarized(encoding, selector):
    batch = batch_of(data(), DOCUMENTS)
    for pooling, scoring in product(POOLINGS, SCORINGS):
        made = model(encoding=encoding, pooling=pooling, scoring=scoring, selection=SelectionOptions(selector, 3))
        assert made.loss_terms(batch)["extraction"].isfinite()
        summaries = made.summarize(batch)
        sizes = [len(summary.sentences) for summary in summaries]
        assert sizes[:2] == [0, 1] and all(1 <= size <= 3 for size in sizes[2:])
        for summary, document in zip(summaries, DOCUMENTS):
            assert summary.positions == sorted(set(summary.positions))
            assert summary.sentences == [document.sentences[at] for at in summary.positions]
            assert len(summary.sentence_scores) == len(document.sentences)
    if selector == "trigram_blocking":
        assert sizes[2] == 1  # four times the same sentence


def scores_of(made: BertSum, document: Document) -> list[float]:
    return made.eval().sentence_scores(batch_of(data(), [document]))[0]


def test_separate_sentences_do_not_see_each_other_joint_ones_do_and_every_token_of_a_long_one_counts():
    documents = [Document("x", [["A storm hit.", end]]) for end in ("Boats sank.", "Nobody slept at all.")]
    for encoding, equal in (("separate", True), ("joint", False)):
        made = model(encoding=encoding, **{"inter_sentence.layers": 0})
        first, second = (scores_of(made, document)[0] for document in documents)
        assert math.isclose(first, second, abs_tol=1e-6) == equal
    documents = [Document("x", [["storm coast town " * 60 + end]]) for end in ("boats", "nobody")]
    for pooling in POOLINGS:
        first, second = (scores_of(model(pooling=pooling), document) for document in documents)
        assert first != second, pooling


def test_windows_read_the_whole_of_a_long_document():
    made, document = model(**{"inter_sentence.layers": 0}), DOCUMENTS[4]
    whole = scores_of(made, document)
    made.network.reader.max_tokens = len(data().encode(document)["tokens"])
    assert scores_of(made, document) == pytest.approx(whole, abs=1e-6)
    made.network.reader.max_tokens = 24  # documents are encoded in windows, and each sentence has its own score
    assert len(set(scores_of(made, document))) == 12
    made.network.encoding, made.network.reader.max_tokens = "separate", 5
    with pytest.raises(ValueError, match=r"lower data\.piece"):
        scores_of(made, document)


@pytest.mark.parametrize("loss", ["labels", "soft_labels"])
def test_losses_equal_their_formulas(loss):
    made, documents = model(loss=loss, temperature=0.5), DOCUMENTS[1:]
    batch = batch_of(data(), documents)
    logits, each = torch.randn(batch.mask.shape), []
    for row, document in enumerate(documents):
        scores, labels, gains = (x[row, : len(document.sentences)] for x in (logits, batch.labels, batch.gains))
        if loss == "labels":
            each.append(binary_cross_entropy_with_logits(scores, labels.float()))
        else:
            each.append(cross_entropy(scores, (gains / 0.5).softmax(0)))
    torch.testing.assert_close(made.extraction_loss(logits, batch), torch.stack(each).mean(), rtol=1e-4, atol=0)


def test_attention_between_sentences_is_a_distribution_and_wrong_arguments_are_named():
    batch = batch_of(data(), DOCUMENTS)
    maps = model(**{"inter_sentence.layers": 2}).sentence_attention(batch)
    assert [found.shape for found in maps] == [(n, n) for n in (0, 1, 4, 4, 12)]
    for found in maps[1:]:
        assert found.sum(1) == pytest.approx(1, abs=1e-5)
    assert model(**{"inter_sentence.layers": 0}).sentence_attention(batch) == []
    for arguments, part in (({"temperature": 0.0}, "temperature"), ({"encoding": "both"}, "joint or separate")):
        with pytest.raises(ValueError, match=part):
            model(**arguments)


@pytest.fixture
def folder(tmp_path):
    sizes = {"vocab_size": 300, "hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": 64}
    return write_bert(tmp_path / "encoder", [], **sizes)


def pretrained(folder: str, frozen: bool = True, **arguments) -> BertSum:
    torch.manual_seed(1)
    return bertsum(**{"pooling": "mean", "dropout": 0.1, "checkpoint": folder, "frozen": frozen} | arguments)


@pytest.mark.parametrize("encoding", ["joint", "separate"])
@pytest.mark.parametrize("scoring", ["classifier", "document_cosine"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_scores_are_those_of_the_encoder_in_the_loop(folder, encoding, scoring, pooling):
    options = {"encoding": encoding, "scoring": scoring, "pooling": pooling}
    options["selection"] = SelectionOptions("triangle", 2)
    batch = batch_of(data(), DOCUMENTS[1:])
    expected, frozen = (pretrained(folder, is_frozen, **options) for is_frozen in (False, True))
    for _ in range(2):  # computed, then from memory
        for with_document in (False, True):
            ours, theirs = (made.eval().score(batch, with_document) for made in (frozen, expected))
            assert torch.allclose(ours.logits[batch.mask], theirs.logits[batch.mask], atol=1e-5)
            assert torch.allclose(ours.vectors[batch.mask], theirs.vectors[batch.mask], atol=1e-5)
        assert torch.allclose(ours.document, theirs.document, atol=1e-5)
    assert [row.positions for row in frozen.summarize(batch)] == [row.positions for row in expected.summarize(batch)]
    for dtype in (torch.bfloat16, torch.float64):
        frozen = pretrained(folder, True, **options).to(dtype).eval()
        assert [frozen.score(batch).logits.dtype for _ in range(2)] == [dtype, dtype]  # computed, then from memory


def test_another_run_reads_the_vectors_of_the_first(folder, tmp_path, monkeypatch):
    def in_run(**arguments) -> BertSum:
        """As a run of `precis fit` has it: with data that have a cache folder."""
        made = pretrained(folder, **arguments)
        made.trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
        made.trainer.datamodule = SimpleNamespace(cache_dir=tmp_path)
        return made.eval()

    batch = batch_of(data(), DOCUMENTS[1:])
    first = in_run()
    before = first.score(batch).logits
    first.on_train_epoch_end()
    (entry,) = list_entries(tmp_path)
    assert entry.kind == "vectors"
    monkeypatch.setattr(Reader, "forward", None)  # would raise
    assert torch.equal(in_run().score(batch).logits, before)
    # the same documents one at a time: a file has vectors of documents, not of batches
    single = in_run().score(batch_of(data(), DOCUMENTS[3:4]))
    assert torch.allclose(single.logits, before[2:3, : single.logits.shape[1]], atol=1e-5)
    in_run(pooling="max").score(batch)  # whose vectors are in the same file
    with pytest.raises(TypeError):
        in_run(encoding="separate").score(batch)
    with pytest.raises(TypeError):  # sentences that are split otherwise have other vectors
        in_run().score(batch_of(data(piece=5), DOCUMENTS[1:]))


def test_training_leaves_the_encoder_as_it_is_and_one_with_weights_to_train_is_refused(folder):
    batch = batch_of(data(), DOCUMENTS[1:])
    made = pretrained(folder, dropout=0.5).train()
    assert not any(module.training for module in made.reader.modules()) and made.network.layers.training
    made.loss_terms(batch)["extraction"].backward()
    assert all(parameter.grad is None for parameter in made.reader.parameters())
    assert any(p.grad is not None for p in made.network.scorer.parameters())
    for arguments in ({"pooling": "self_attention"}, {"checkpoint": None}):
        with pytest.raises(ValueError, match=r"encoder\.frozen: encoder"):
            pretrained(folder, **arguments)


def test_files_of_other_weights_and_damaged_ones_are_not_read_and_those_of_two_writers_joined(tmp_path):
    state, other = {"w": torch.zeros(2)}, {"w": torch.ones(2)}

    def vectors_of(text: str, weights=state, setting="joint", compute=lambda: 1 / 0) -> VectorCache:
        cache = VectorCache(weights, setting, folder=tmp_path)
        cache.vectors([[text]], [[0]], compute)
        return cache

    caches = [vectors_of(text, compute=lambda: torch.ones(1, 2, 3, 4)) for text in "ab"]  # two runs write at once
    for cache in caches:
        cache.save()
    for text in "ab":
        assert {vectors_of(text).path} == set((tmp_path / "vectors").iterdir())
    for weights, setting in ((other, "joint"), (state, "separate")):
        with pytest.raises(ZeroDivisionError):
            vectors_of("a", weights, setting)
    cache.path.write_bytes(b"damaged")
    with pytest.raises(ZeroDivisionError):
        vectors_of("a")


LINES = ["Report on the storm", "By A. N. Author", "A storm hit the coast of the north on Monday.",
         "Boats sank in the harbor, and nobody had slept.", "storm coast " * 60 + "at the end."]  # fmt: skip
REPORTS = [
    Document("report", [LINES[:2], LINES[2:]]),
    Document("one", [["A storm hit the coast."]]),
    Document("headings", [["Storm", "Coast"]]),
]
ENCODER = {"hidden_size": 8, "heads": 2, "layers": 1, "interval_segments": False}
ARGUMENTS = {"vocab_size": 300, "encoding": "separate", "pooling": "mean", "scoring": "classifier"}
ARGUMENTS["inter_sentence"] = {"layers": 1, "heads": 2, "inner_size": 8, "width": 4, "layout": True}
ARGUMENTS["inter_sentence"] |= {"lead_prior": 0.2, "members": 2}
REPORT_TEXT = EncoderTokenizer.build(LINES, 300)


def layout_model(encoder: str | None, **arguments) -> BertSum:
    torch.manual_seed(1)
    options = ARGUMENTS | {"encoder": ENCODER | {"checkpoint": encoder, "frozen": encoder is not None}}
    made = {"encoder": SentenceEncoderOptions(**options.pop("encoder"))}
    made["inter_sentence"] = InterSentenceOptions(**options.pop("inter_sentence"))
    return BertSum(**made | options | arguments)


def layout_batch():
    made = data(piece=40)
    made.tokenizer = REPORT_TEXT
    return batch_of(made, REPORTS)


def test_positions_are_counted_over_prose_and_the_prior_is_for_the_beginning_and_the_topic():
    features = layout_features([document.sentences for document in REPORTS])
    assert features.shape == (3, 5, NUM_FEATURES) and features[0, :, PROSE].tolist() == [0, 0, 1, 1, 1]
    assert features[0, :, 0].tolist() == pytest.approx([0, 0, 0, 1 / 3, 2 / 3])  # share of prose before each sentence
    assert features[2, :, PROSE].sum() == 0 and features.isfinite().all()
    assert not features[1, 1:].any(), "padding"
    for code, text in (("zh", "今天天气很好。"), ("hi", "मैं हिन्दी पढ़ता हूँ।"), ("th", "วันนี้อากาศดีมาก")):
        assert layout_features([[text, text]], code)[0, :, PROSE].tolist() == [1, 1], code
    features = layout_features([["One sentence of plain prose."] * 3, ["One sentence of plain prose."] * 60])
    prior = lead_prior(features, torch.ones(2, 60, 4), features.any(-1), 0.2)
    assert prior[0, :3].tolist() == pytest.approx([1 - 0.2 * math.log(1 + before) for before in range(3)], abs=1e-5)
    assert prior[1, 59].item() == pytest.approx(1 - 0.1 * math.log(60), abs=1e-5)  # half as strong in 60 sentences
    batch = layout_batch()
    scored = layout_model(None).eval().score(batch)
    added = lead_prior(batch.layout, scored.vectors, batch.mask, 0.2)
    assert torch.allclose(scored.logits, scored.members.mean(0) + added)
    for option in ({"lead_prior": 0.2}, {"ranks": True}):
        with pytest.raises(ValueError, match=f"{next(iter(option))} needs"):
            layout_model(None, inter_sentence=InterSentenceOptions(layers=1, heads=2, width=4, **option))


def test_ranks_are_those_of_the_baselines_in_parts_and_only_a_model_with_ranks_reads_them(monkeypatch):
    monkeypatch.setattr(sentence_layout, "_RANKED", 4)
    numbers = torch.randint(0, 20, (8, 12), generator=torch.Generator().manual_seed(0)).tolist()
    texts = [" ".join(f"word{number}" for number in row) for row in numbers]
    features = layout_features([texts])[0]
    for part in (range(4), range(4, 8)):
        document = Document("", [[texts[i] for i in part]])
        for number, baseline in enumerate((textrank, partial(lexrank, threshold=None))):
            rank = features[list(part), TEXTRANK + number]
            assert rank.sum().item() == pytest.approx(4)
            assert set(rank.topk(2).indices.tolist()) == set(baseline(document, k=2))
    batch = layout_batch()
    changed = replace(batch, layout=batch.layout + torch.eye(NUM_FEATURES)[TEXTRANK] * batch.layout)
    for ranks in (True, False):
        options = InterSentenceOptions(**ARGUMENTS["inter_sentence"] | {"ranks": ranks})
        model = layout_model(None, inter_sentence=options).eval()
        assert torch.equal(model.score(batch).logits, model.score(changed).logits) is not ranks


def test_members_are_trained_one_by_one_and_averaged():
    options, batch = ARGUMENTS["inter_sentence"] | {"lead_prior": 0.0}, layout_batch()
    three = layout_model(None, dropout=0.0, inter_sentence=InterSentenceOptions(**options | {"members": 3}))
    single = layout_model(None, dropout=0.0, inter_sentence=InterSentenceOptions(**options | {"members": 1}))
    names, state = single.state_dict(), three.state_dict()
    assert list(names) == [name for name in state if ".others." not in name]
    logits, losses = [], []
    for prefix in ("network.", "network.others.0.", "network.others.1."):
        single.load_state_dict({name: state.get(name.replace("network.", prefix, 1), state[name]) for name in names})
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
    made = layout_model(checkpoint, selection=SelectionOptions("trigram_blocking", 2))
    folder = tmp_path / "exported"
    REPORT_TEXT.save(folder / "text")
    weights = {name: value for name, value in made.state_dict().items() if "reader" not in name or not pretrained}
    write_exported(folder / EXPORTED, weights, {"loss_weights": {}, "global_step": 1, "switches": None})
    arguments = ARGUMENTS | {"encoder": ENCODER | {"checkpoint": checkpoint}}
    arguments["selection"] = {"selector": "trigram_blocking", "k": 2}
    light = LightExtractor(arguments, {"piece": 40, "max_source": None}, folder)
    for document, expected in zip(REPORTS, made.summarize(layout_batch()), strict=True):
        summary = light.summarize(document.id, document.sentences, light.selection)
        assert summary.positions == expected.positions
        assert summary.sentence_scores == pytest.approx(expected.sentence_scores, abs=1e-4)
