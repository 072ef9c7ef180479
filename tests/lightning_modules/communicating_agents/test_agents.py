import agents_by_hand as by_hand
import pytest
import torch

from lightning_modules.communicating_agents.network import CommunicatingAgentsNetwork
from lightning_modules.networks.copying import CopyOutputs, all_log_probs
from tests.half_precision import skip_without_half_precision_lstm

V, E, H = 11, 5, 4


def build(agents, **arguments):
    torch.manual_seed(0)
    network = CommunicatingAgentsNetwork(V, E, H, agents, **arguments)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return network.eval()


def documents(lengths, seed=0):
    """Ids of documents with agents of these lengths, [B, M, I], 0 at padding."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(lengths)
    ids = torch.randint(1, V, (*lengths.shape, int(lengths.max())), generator=generator)
    return ids * (torch.arange(ids.shape[2]) < lengths.unsqueeze(-1)), lengths


def parts_of(source, lengths, b):
    return [ids[:n].tolist() for ids, n in zip(source[b], lengths[b].tolist()) if n]


ROWS = [
    {"agents": 1},
    {"agents": 1, "contextual_agent_attention": True, "multi_agent_pointer": False},
    {"agents": 3, "messages": None, "multi_agent_pointer": False},
    {"agents": 3},
    {"agents": 3, "messages": "feed_forward", "contextual_agent_attention": True},
    {"agents": 3, "messages": "attention", "contextual_agent_attention": True, "contextual_layers": 1},
    {"agents": 3, "contextual_layers": 0, "multi_agent_pointer": False},
]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_equals_a_plain_loop_over_the_formulas(row):
    network = build(**row)
    source, lengths = documents([[4, 2, 3], [5, 1, 0], [2, 0, 0]] if row["agents"] == 3 else [[4], [5], [1]])
    extended = source.clone()
    extended[:, 0, 0] = V  # a word that the vocabulary lacks
    source = torch.where(source > 0, source, 9)  # padding may hold anything
    source[:, 0, 0] = 1
    inputs = torch.randint(1, V, (3, 2, 4))
    out = network(source, lengths, inputs)
    outputs = CopyOutputs(*(x.flatten(1, 2) for x in (out.features, out.attention, out.gate)))
    every = all_log_probs(network.output, V, outputs, extended.flatten(1).unsqueeze(1), V + 1)
    probabilities = every.exp().view(3, 2, 4, V + 1)
    for b in range(3):
        agents = by_hand.encode(network, parts_of(source, lengths, b))
        for k in range(2):
            rows = by_hand.decode(network, agents, inputs[b, k].tolist())
            for t, (s, g, p, vocabulary, _) in enumerate(rows):
                torch.testing.assert_close(out.states[b, k, t], s)
                torch.testing.assert_close(out.agents[b, k, t, : len(g)], g)
                assert out.agents[b, k, t, len(g) :].eq(0).all()
                torch.testing.assert_close(network.output(out.features[b, k, t]).softmax(-1), vocabulary)
                torch.testing.assert_close(out.gate[b, k, t].sigmoid(), (g * p).sum())
                expected = by_hand.distribution(rows[t], parts_of(extended, lengths, b), V + 1)
                torch.testing.assert_close(probabilities[b, k, t], expected)
    torch.testing.assert_close(out.attention.sum(-1), torch.ones(3, 2, 4))
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(3, 2, 4))


def test_half_precision_keeps_probabilities_in_full():
    network = build(3, contextual_agent_attention=True)
    skip_without_half_precision_lstm(network)
    source, lengths = documents([[4, 2, 3], [5, 1, 0]])
    inputs = torch.randint(1, V, (2, 1, 4))
    exact = network(source, lengths, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = network(source, lengths, inputs)
    assert rounded.attention.dtype == rounded.gate.dtype == rounded.agents.dtype == torch.float32
    torch.testing.assert_close(rounded.attention, exact.attention, atol=0.05, rtol=0.1)
    torch.testing.assert_close(rounded.gate, exact.gate, atol=0.1, rtol=0.1)


def test_states_of_all_layers_start_at_one_size():
    torch.manual_seed(0)
    network = CommunicatingAgentsNetwork(500, 64, 64, 3, contextual_layers=4, embedding_std=0.1)
    source, lengths = torch.randint(1, 500, (4, 3, 20)), torch.full((4, 3), 20)
    spread = network.encode(source, lengths)[0].states.std(2).mean()  # from token to token
    assert 0.05 < spread < 1, "fading states leave attention nothing to learn from"
