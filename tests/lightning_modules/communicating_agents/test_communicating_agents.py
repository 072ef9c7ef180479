"""Communicating agents that continue from others, word vectors, and wrong arguments."""

import pytest
import torch
from pytorch_lightning import Trainer

from datamodules.documents import UserError
from datamodules.text.vocabulary import Vocabulary
from lightning_modules.communicating_agents.module import AgentEmbedding, CommunicatingAgents
from tests.lightning_modules.copying_models import V, build, make_batch


def continued(plain: CommunicatingAgents, **arguments) -> CommunicatingAgents:
    """Return a model with other arguments that starts from the weights of another one."""
    model = build(seed=1, **arguments)
    checkpoint = {"state_dict": plain.state_dict(), "loss_weights": dict(plain.loss_weights)}
    model.on_load_checkpoint(checkpoint)
    model.load_state_dict(checkpoint["state_dict"])
    return model


def test_a_model_with_contextual_agent_attention_continues_from_one_without():
    plain = build()
    contextual = continued(plain, contextual_agent_attention=True, cohesion=0.0)
    batch = make_batch()
    torch.testing.assert_close(contextual.loss_terms(batch)["nll"], plain.loss_terms(batch)["nll"])
    assert contextual.loss_weights["cohesion"] == 0, "its own"
    with pytest.raises(UserError, match=r"combine_before\.weight is \[4, 4\] there and absent here"):
        plain.on_load_checkpoint({"state_dict": contextual.state_dict()})


@pytest.mark.parametrize("messages", ["mean", "feed_forward", "attention"])
def test_messages_join_a_model_without(messages):
    silent = build(communication=False)
    agents, batch = continued(silent, messages=messages), make_batch()
    loss = agents.loss_terms(batch)["nll"]
    torch.testing.assert_close(loss, silent.loss_terms(batch)["nll"])
    loss.backward()
    assert all(layer.received.weight.grad.abs().max() > 0 for layer in agents.network.encoder.layers), "it can learn"


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
