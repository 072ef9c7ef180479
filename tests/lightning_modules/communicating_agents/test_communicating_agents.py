import agents_by_hand as by_hand
import pytest
import torch
from pytorch_lightning import Trainer

from datamodules.documents import UserError
from datamodules.text.vocabulary import Vocabulary
from lightning_modules.communicating_agents.module import AgentEmbedding, CommunicatingAgents
from lightning_modules.communicating_agents.network import CommunicatingAgentsNetwork
from lightning_modules.networks.copying import CopyOutputs, all_log_probs
from tests.half_precision import skip_without_half_precision_lstm
from tests.lightning_modules.copying_models import V, build, make_batch

WORDS, E, H = 11, 5, 4


def network_of(agents, **arguments):
    torch.manual_seed(0)
    network = CommunicatingAgentsNetwork(WORDS, E, H, agents, **arguments)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return network.eval()


def documents(lengths, seed=0):
    """Ids of documents with agents of these lengths, [B, M, I], 0 at padding."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(lengths)
    ids = torch.randint(1, WORDS, (*lengths.shape, int(lengths.max())), generator=generator)
    return ids * (torch.arange(ids.shape[2]) < lengths.unsqueeze(-1)), lengths


def parts_of(source, lengths, b):
    return [ids[:n].tolist() for ids, n in zip(source[b], lengths[b].tolist()) if n]


@pytest.mark.parametrize("row", [
    {"agents": 1}, {"agents": 1, "contextual_agent_attention": True, "multi_agent_pointer": False}, {"agents": 3},
    {"agents": 3, "messages": None, "multi_agent_pointer": False},
    {"agents": 3, "messages": "feed_forward", "contextual_agent_attention": True},
    {"agents": 3, "messages": "attention", "contextual_agent_attention": True, "contextual_layers": 1},
    {"agents": 3, "contextual_layers": 0, "multi_agent_pointer": False},
], ids=str)  # fmt: skip
def test_equals_a_plain_loop_over_the_formulas(row):
    network = network_of(**row)
    source, lengths = documents([[4, 2, 3], [5, 1, 0], [2, 0, 0]] if row["agents"] == 3 else [[4], [5], [1]])
    extended = source.clone()
    extended[:, 0, 0] = WORDS  # a word that the vocabulary lacks
    source = torch.where(source > 0, source, 9)  # padding may hold anything
    source[:, 0, 0] = 1
    inputs = torch.randint(1, WORDS, (3, 2, 4))
    out = network(source, lengths, inputs)
    outputs = CopyOutputs(*(x.flatten(1, 2) for x in (out.features, out.attention, out.gate)))
    every = all_log_probs(network.output, WORDS, outputs, extended.flatten(1).unsqueeze(1), WORDS + 1)
    probabilities = every.exp().view(3, 2, 4, WORDS + 1)
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
                expected = by_hand.distribution(rows[t], parts_of(extended, lengths, b), WORDS + 1)
                torch.testing.assert_close(probabilities[b, k, t], expected)
    torch.testing.assert_close(out.attention.sum(-1), torch.ones(3, 2, 4))
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(3, 2, 4))


def test_half_precision_keeps_probabilities_in_full():
    network = network_of(3, contextual_agent_attention=True)
    skip_without_half_precision_lstm(network)
    source, lengths = documents([[4, 2, 3], [5, 1, 0]])
    inputs = torch.randint(1, WORDS, (2, 1, 4))
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


@pytest.mark.parametrize("before, after", [
    ({}, {"contextual_agent_attention": True, "cohesion": 0.0}),
    *(({"communication": False}, {"messages": kind}) for kind in ("mean", "feed_forward", "attention")),
], ids=str)  # fmt: skip
def test_a_model_continues_from_one_with_less(before, after):
    plain, model, batch = build(**before), build(seed=1, **after), make_batch()
    checkpoint = {"state_dict": plain.state_dict(), "loss_weights": dict(plain.loss_weights)}
    model.on_load_checkpoint(checkpoint)
    model.load_state_dict(checkpoint["state_dict"])
    loss = model.loss_terms(batch)["nll"]
    torch.testing.assert_close(loss, plain.loss_terms(batch)["nll"])
    if "messages" in after:
        loss.backward()
        assert all(layer.received.weight.grad.abs().max() > 0 for layer in model.network.encoder.layers), "it can learn"
    else:
        assert model.loss_weights["cohesion"] == 0, "its own"
        with pytest.raises(UserError, match=r"combine_before\.weight is \[4, 4\] there and absent here"):
            plain.on_load_checkpoint({"state_dict": model.state_dict()})


def test_word_vectors_start_the_embedding_in_training_alone(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("w0 1 2 3 4 5\nelsewhere 9 9 9 9 9\nw3 -1 -2 -3 -4 -5.5\n", encoding="utf-8")
    model, before = build(embedding=AgentEmbedding(5, word_vectors=path)), build().network.embedding.weight
    model._trainer = trainer = Trainer(logger=False, enable_progress_bar=False, accelerator="cpu")
    # in a run that goes on, the checkpoint has the embedding
    for stage, checkpoint in (("test", None), ("fit", "last.ckpt")):
        trainer.ckpt_path = checkpoint
        model.setup(stage)
        assert torch.equal(model.network.embedding.weight, before)
    trainer.ckpt_path = None
    model.setup("fit")
    weight = model.network.embedding.weight
    assert weight[4].tolist() == [1, 2, 3, 4, 5] and weight[7].tolist() == [-1, -2, -3, -4, -5.5]
    rest = [row for row in range(V) if row not in (4, 7)]
    assert torch.equal(weight[rest], before[rest]) and weight.requires_grad


def test_impossible_arguments_are_named():
    for arguments, message in [
        ({"agents": 0}, "agents is at least 1, contextual_layers and cohesion at least 0; got 0, 2, 0"),
        ({"cohesion": -0.1}, "got 3, 2, -0.1"),
        ({"messages": "shout"}, "messages are mean, feed_forward or attention; got 'shout'"),
    ]:
        with pytest.raises(ValueError, match=message):
            CommunicatingAgents(V, AgentEmbedding(5), 4, **arguments)
    model = CommunicatingAgents(V, AgentEmbedding(5), 4, cohesion=0.1)
    with pytest.raises(UserError, match=r"the vocabulary has none of \., !, \?.*--model\.sentence_ends"):
        model.set_tokenizer(Vocabulary(["w0"]))
    for others in ({"vocab_size": V, "agents": 1}, {"vocab_size": V - 1, "agents": 3}):
        with pytest.raises(UserError, match="give both the same"):
            model.check_data(type("Data", (), others))
