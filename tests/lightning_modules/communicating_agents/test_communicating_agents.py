from itertools import pairwise

import pytest
import torch
from pytorch_lightning import Trainer

from datamodules.communicating_agents import CommunicatingAgentsBatch
from datamodules.documents import UserError
from datamodules.text.vocabulary import PAD, START, STOP, UNK, Vocabulary
from lightning_modules.communicating_agents.module import AgentEmbedding, CommunicatingAgents
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.summarizer import Samples

V, WORDS = 14, 8  # the output layer has two rows more than the vocabulary has words
ROWS = {
    "m1": {"agents": 1},
    "m4": {"communication": False, "multi_agent_pointer": False},
    "m5": {"cohesion": 0.1},
    "m7": {"cohesion": 0.1, "contextual_agent_attention": True, "messages": "feed_forward"},
}
every_row = pytest.mark.parametrize("row", ROWS)


def build(seed=0, **arguments):
    torch.manual_seed(seed)
    options = {"embedding": AgentEmbedding(5), "hidden_size": 4, "sentence_ends": ("w2",)} | arguments
    model = CommunicatingAgents(V, **options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    model.set_tokenizer(Vocabulary([f"w{i}" for i in range(WORDS)]))
    return model.eval()


def make_batch(seed=0, agents=3):
    """Three documents: three agents, two, one; the first words of all agents are their document's own."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([[4, 3, 3], [5, 4, 0], [2, 0, 0]])[:, :agents]
    source = torch.randint(4, 4 + WORDS, (3, agents, 5), generator=generator)
    source[:, :, 0] = V + torch.tensor([[0, 1, 0], [0, 1, 2], [0, 1, 2]])[:, :agents]
    source = source.masked_fill(torch.arange(5) >= lengths.unsqueeze(-1), PAD)
    target = torch.randint(4, 4 + WORDS, (3, 6), generator=generator)
    target[:, 1], target[:, 2], target[:, -1] = V, UNK, STOP
    target[-1, -2:] = torch.tensor([STOP, PAD])
    inputs = torch.cat([torch.full((3, 1), START), target[:, :-1]], 1)
    return CommunicatingAgentsBatch(
        ids=["a", "b", "c"],
        references=[[["w1 w2"]]] * 3,
        source=source.masked_fill(source >= V, UNK),
        source_extended=source,
        lengths=lengths,
        target_input=inputs.masked_fill(inputs >= V, UNK),
        target=target,
        target_lengths=(target != PAD).sum(1),
        target_rows=(target != PAD).flatten().nonzero().squeeze(1),
        oov_words=[["zebra", "yak"], ["gnu", "eland"], ["oryx"]],
    )


def of(row, seed=0):
    model = build(seed, **ROWS[row])
    return model, make_batch(seed, ROWS[row].get("agents", 3))


def naive_terms(model, batch):
    """Return the loss terms through the full [T, V + OOV] distribution, by a loop over documents and agents."""
    decoded = model.network(batch.source, batch.lengths, batch.target_input.unsqueeze(1))
    nll, cosines = [], []
    for b in range(3):
        losses, ends, size = [], [], int(batch.target_lengths[b])
        for t in range(size):
            p = decoded.gate[b, 0, t].sigmoid()
            vocabulary = p * model.network.output(decoded.features[b, 0, t]).softmax(-1)
            mixture = torch.cat([vocabulary, torch.zeros(3)])
            for position, word in enumerate(batch.source_extended[b].flatten().tolist()):
                share = (1 - p) * decoded.attention[b, 0, t, position]
                mixture = mixture + share * torch.nn.functional.one_hot(torch.tensor(word), V + 3)
            losses.append(-mixture[batch.target[b, t]].log())
            if batch.target[b, t] == 4 + 2:
                ends.append(decoded.states[b, 0, t])
        nll.append(sum(losses) / size)
        cosines.append(sum((torch.cosine_similarity(x, y, 0) for x, y in pairwise(ends)), torch.zeros(())))
    return {"nll": torch.stack(nll).mean()} | (
        {"cohesion": torch.stack(cosines).mean()} if model.loss_weights["cohesion"] else {}
    )


@every_row
def test_the_loss_equals_the_naive_one_gradients_included(row):
    model, batch = of(row)
    batch.target[0, 0] = batch.target[0, 3] = batch.target[1, 3] = batch.target[1, 4] = 4 + 2  # sentences end there
    ours, naive = model.loss_terms(batch), naive_terms(model, batch)
    assert ours.keys() == naive.keys() and all(term != 0 for term in ours.values())
    parameters = list(model.parameters())
    for name in ours:
        torch.testing.assert_close(ours[name], naive[name])
    for one, other in zip(*(torch.autograd.grad(sum(terms.values()), parameters) for terms in (ours, naive))):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@every_row
def test_log_probs_equal_those_of_the_steps_and_sum_to_one(row):
    model, batch = of(row)
    model.set_tokenizer(Vocabulary([f"w{i}" for i in range(V - 4)]))  # a word for every row of the output layer
    options = DecodingOptions(beam_size=3, min_length=0, max_length=6, sample=True, allow_unknown=True)
    drawn = model.sample(batch, options)
    scored = model.log_probs(batch, drawn)
    assert scored.requires_grad and scored.masked_select(drawn.tokens == PAD).eq(0).all()
    memory, start = model.network.encode(batch.source, batch.lengths)
    fixed = memory._asdict() | {"source": batch.source_extended.flatten(1), "oov_counts": torch.tensor([2, 3, 3])}
    for k in range(3):
        state, last = start._asdict(), torch.full((3, 1), START)
        for t in range(drawn.tokens.shape[-1]):
            _, log_probs, state = model._step(last, state, fixed, None)
            torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3, 1))
            last = drawn.tokens[:, k, t : t + 1]
            expected = log_probs.squeeze(1).gather(-1, last).squeeze(1)
            torch.testing.assert_close(scored[:, k, t], expected.masked_fill(last.squeeze(1) == PAD, 0))


def test_words_of_any_agent_are_copied_and_marked():
    model, batch = of("m5")
    model.decoding = DecodingOptions(beam_size=2, min_length=3, max_length=6)
    with torch.no_grad():  # the gate says copy
        model.network.decoder.pointer_word.weight.zero_()
        model.network.decoder.pointer_word.bias.fill_(-60)
    summaries = model.summarize(batch)
    for summary, own, words in zip(summaries, batch.oov_words, batch.source_extended.flatten(1).tolist()):
        known = {f"w{i - 4}" for i in words if 4 <= i < V} | set(own)
        assert all(summary.copied) and len(summary.copied) == len(summary.words) and set(summary.words) <= known
    samples = Samples(batch.source_extended.flatten(1).unsqueeze(1), torch.full((3, 1), 15))
    texts = model.texts(batch, samples)
    assert [text.split()[0] for (text,) in texts] == ["zebra", "gnu", "oryx"] and "yak" in texts[0][0].split()
    shorter = model.texts(batch, Samples(samples.tokens, torch.ones(3, 1, dtype=torch.long)))
    assert shorter == [["zebra"], ["gnu"], ["oryx"]]
    assert torch.equal(model.source_ids(batch), samples.tokens.squeeze(1))


def test_the_heat_map_shows_the_words_of_all_agents():
    model, batch = of("m7")
    model.decoding = DecodingOptions(beam_size=2, min_length=2, max_length=6)
    source, target, attention, total = model.attention_map(batch, 1)
    words = batch.source_extended[1].flatten().tolist()
    assert source == ["gnu", *(f"w{i - 4}" for i in words[1:5]), "eland", *(f"w{i - 4}" for i in words[6:9])]
    assert attention.shape == (len(target), 9) and total.shape == (9,)
    assert attention.sum(1) == pytest.approx([1] * len(target), abs=1e-5)


def test_a_model_with_contextual_agent_attention_continues_from_one_without():
    plain, contextual = build(agents=3, cohesion=0.1), build(1, agents=3, contextual_agent_attention=True)
    checkpoint = {"state_dict": plain.state_dict(), "loss_weights": dict(plain.loss_weights)}
    contextual.on_load_checkpoint(checkpoint)
    contextual.load_state_dict(checkpoint["state_dict"])
    batch = make_batch()
    torch.testing.assert_close(contextual.loss_terms(batch)["nll"], plain.loss_terms(batch)["nll"])
    assert contextual.loss_weights["cohesion"] == 0, "its own"
    with pytest.raises(UserError, match=r"combine_before\.weight is \[4, 4\] there and absent here"):
        plain.on_load_checkpoint({"state_dict": contextual.state_dict()})


@pytest.mark.parametrize("messages", ["mean", "feed_forward", "attention"])
def test_messages_join_a_model_without(messages):
    silent, agents = build(agents=3, communication=False), build(1, agents=3, messages=messages)
    checkpoint = {"state_dict": silent.state_dict(), "loss_weights": dict(silent.loss_weights)}
    agents.on_load_checkpoint(checkpoint)
    agents.load_state_dict(checkpoint["state_dict"])
    batch = make_batch()
    loss = agents.loss_terms(batch)["nll"]
    torch.testing.assert_close(loss, silent.loss_terms(batch)["nll"])
    loss.backward()
    assert all(layer.received.weight.grad.abs().max() > 0 for layer in agents.network.encoder.layers), "it can learn"


def test_word_vectors_start_the_embedding_in_training_alone(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("w0 1 2 3 4 5\nelsewhere 9 9 9 9 9\nw3 -1 -2 -3 -4 -5.5\n", encoding="utf-8")
    model, before = build(embedding=AgentEmbedding(5, word_vectors=path)), build().network.embedding.weight
    model._trainer = trainer = Trainer(logger=False, enable_progress_bar=False, accelerator="cpu")
    model.setup("test")
    assert torch.equal(model.network.embedding.weight, before)
    trainer.ckpt_path = "last.ckpt"  # a run that goes on
    model.setup("fit")
    assert torch.equal(model.network.embedding.weight, before)
    trainer.ckpt_path = None
    model.setup("fit")
    weight = model.network.embedding.weight
    assert weight[4].tolist() == [1, 2, 3, 4, 5] and weight[7].tolist() == [-1, -2, -3, -4, -5.5]
    rest = [row for row in range(V) if row not in (4, 7)]
    assert torch.equal(weight[rest], before[rest]) and weight.requires_grad


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"agents": 0}, "agents is at least 1, contextual_layers and cohesion at least 0; got 0, 2, 0"),
        ({"cohesion": -0.1}, "got 3, 2, -0.1"),
        ({"messages": "shout"}, "messages are mean, feed_forward or attention; got 'shout'"),
    ],
)
def test_impossible_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        CommunicatingAgents(V, AgentEmbedding(5), 4, **arguments)


def test_cohesion_needs_a_word_that_ends_a_sentence():
    model = CommunicatingAgents(V, AgentEmbedding(5), 4, cohesion=0.1)
    with pytest.raises(UserError, match=r"the vocabulary has none of \., !, \?.*--model\.sentence_ends"):
        model.set_tokenizer(Vocabulary(["w0"]))
