"""The network as a whole: padding, the cache, the flat Transformer, where things stand."""

import pytest
import torch
from model_options import grouped
from torch import Tensor, nn

from lightning_modules.graphsum.encoder import GraphSumNetwork, Source
from lightning_modules.graphsum.module import GraphSum
from lightning_modules.graphsum.options import GraphBiasOptions
from lightning_modules.networks.transformer import sinusoidal

V, D = 30, 16
every_encoder = pytest.mark.parametrize("encoder", ["graph", "hierarchical", "flat"])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(8)


def network(encoder: str = "graph", **changes) -> GraphSumNetwork:
    small = {"kind": encoder, "hidden_size": D, "heads": 2, "inner_size": 24, "token_layers": 1, "paragraph_layers": 1}
    small |= {"graph_bias": GraphBiasOptions(), "decoder_layers": 2, "dropout": 0.1}
    made = GraphSumNetwork(V, **grouped(GraphSum, small | changes)).double().eval()
    for name, parameter in made.named_parameters():
        if "sigma" not in name:
            nn.init.normal_(parameter, std=0.3)
    return made


def source(sizes: list[list[int]], paragraphs: int | None = None, tokens: int | None = None) -> Source:
    """Return documents with paragraphs of these numbers of tokens, which do not depend on the padding."""
    L, n = paragraphs or max(map(len, sizes)), tokens or max(map(max, sizes))
    ids, mask = torch.randint(V, (len(sizes), L, n)), torch.zeros(len(sizes), L, n, dtype=torch.bool)
    graph = torch.rand(len(sizes), L, L, dtype=torch.float64)
    for b, row in enumerate(sizes):
        made = torch.Generator().manual_seed(b)
        graph[b, : len(row), : len(row)] = torch.rand(len(row), len(row), generator=made, dtype=torch.float64)
        for j, size in enumerate(row):
            ids[b, j, :size], mask[b, j, :size] = torch.randint(V, (size,), generator=made), True
    places = [row.nonzero().squeeze(1) for row in mask.flatten(1)]
    lengths = torch.tensor([len(row) for row in places])
    return Source(ids, mask, graph, nn.utils.rnn.pad_sequence(places, batch_first=True), lengths)


SIZES = [[4, 1, 3], [2, 5]]


@every_encoder
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_padding_of_tokens_and_paragraphs_changes_nothing(encoder, norm):
    net, inputs = network(encoder, norm=norm), torch.randint(V, (2, 1, 6))
    tight = net.decode(inputs, *net.encode(source(SIZES)))
    torch.testing.assert_close(net.decode(inputs, *net.encode(source(SIZES, 5, 8))), tight)
    for b in range(2):
        alone = net.decode(inputs[b : b + 1], *net.encode(_only(source(SIZES), b)))
        torch.testing.assert_close(alone, tight[b : b + 1])


def _only(given: Source, b: int) -> Source:
    """One document of a batch, without its padding."""
    L, n = int(given.paragraph_mask[b].sum()), int(given.mask[b].sum(-1).max())
    mask = given.mask[b : b + 1, :L, :n]
    places = mask.flatten(1)[0].nonzero().T
    graph = given.graph[b : b + 1, :L, :L]
    return Source(given.ids[b : b + 1, :L, :n], mask, graph, places, given.lengths[b : b + 1])


@every_encoder
def test_steps_with_a_cache_equal_all_positions_at_once(encoder):
    net, given, inputs = network(encoder), source(SIZES), torch.randint(V, (2, 3, 5))
    state, memory = net.begin(*net.encode(given))
    state = {name: x.unsqueeze(1).expand(-1, 3, -1, -1, -1) for name, x in state.items()}
    steps = []
    for tokens in inputs.unbind(-1):
        features, state = net.step(tokens, state, memory)
        steps.append(features)
    torch.testing.assert_close(torch.stack(steps, 2), net.decode(inputs, *net.encode(given)))


def test_flat_reads_the_concatenation():
    """The flat model ignores paragraph boundaries: a document equals one paragraph of its tokens."""
    net, given = network("flat"), source(SIZES)
    for b in range(2):
        ids = given.ids[b][given.mask[b]]
        mask = torch.ones(1, 1, len(ids), dtype=torch.bool)
        graph, places = torch.ones(1, 1, 1).double(), torch.arange(len(ids)).unsqueeze(0)
        whole = Source(ids.view(1, 1, -1), mask, graph, places, mask.sum(-1)[0])
        inputs = torch.randint(V, (1, 1, 4))
        expected = net.decode(inputs, *net.encode(whole))
        torch.testing.assert_close(net.decode(inputs, *net.encode(_only(given, b))), expected)


def test_positions_equal_those_of_token_and_paragraph():
    positions = network().positions(3, 5, torch.device("cpu"))
    for j in range(3):
        for i in range(5):
            expected = torch.cat([sinusoidal(5, D // 2)[i], sinusoidal(3, D // 2)[j]])
            assert positions[j, i].equal(expected)
    alone = network(paragraph_positions=False).positions(3, 5, torch.device("cpu"))
    assert all(row.equal(sinusoidal(5, D)) for row in alone)


@pytest.mark.parametrize(
    "change", ["in_encoder", "in_decoder", "both", "paragraph_positions", "multi_head_pooling"]
)
def test_each_part_can_be_left_out(change):
    flags = {"in_encoder": False, "in_decoder": False} if change == "both" else {change: False}
    torch.manual_seed(1)
    without, given, inputs = network(**flags), source(SIZES), torch.randint(V, (2, 1, 4))
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


class Windows(nn.Module):
    """Stands for a pretrained encoder: a vector for each token of lists of documents."""

    size = 6

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(V, self.size)
        self.seen: list[list[int]] = []

    def forward(self, documents: list[Tensor]) -> list[Tensor]:
        self.seen = [document.tolist() for document in documents]
        return [self.table(document) for document in documents]


@every_encoder
def test_a_pretrained_encoder_reads_the_concatenated_paragraphs(encoder):
    net, given = network(encoder, pretrained=Windows()), source(SIZES, 4, 6)
    inputs = torch.randint(V, (2, 1, 3))
    wide = net.decode(inputs, *net.encode(given))
    assert net.pretrained.seen == [given.ids[b][given.mask[b]].tolist() for b in range(2)]
    torch.testing.assert_close(wide, net.decode(inputs, *net.encode(source(SIZES))))
    wide.square().sum().backward()
    assert net.pretrained.table.weight.grad.any()
