import pytest
import torch
from model_options import grouped
from torch import nn

from lightning_modules.graphsum.encoder import GraphSumNetwork, Source
from lightning_modules.graphsum.module import GraphSum
from lightning_modules.graphsum.options import GraphBiasOptions
from lightning_modules.networks.transformer import sinusoidal

V, D = 30, 16


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


def test_flat_reads_the_concatenation():
    net, documents, inputs = network("flat"), source(), torch.randint(V, (2, 1, 4))
    features = net.decode(inputs, *net.encode(documents))
    for b in range(2):
        ids = documents.ids[b][documents.mask[b]]
        mask, graph, places = torch.ones(1, 1, len(ids)).bool(), torch.ones(1, 1, 1).double(), torch.arange(len(ids))
        whole = Source(ids.view(1, 1, -1), mask, graph, places.unsqueeze(0), mask.sum(-1)[0])
        torch.testing.assert_close(features[b : b + 1], net.decode(inputs[b : b + 1], *net.encode(whole)))


def test_positions_equal_those_of_token_and_paragraph():
    positions = network().positions(3, 5, torch.device("cpu"))
    for j in range(3):
        for i in range(5):
            expected = torch.cat([sinusoidal(5, D // 2)[i], sinusoidal(3, D // 2)[j]])
            assert positions[j, i].equal(expected)
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
