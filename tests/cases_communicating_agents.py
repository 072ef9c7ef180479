"""Rows of communicating agents, small enough for a test."""

from typing import Any

from case import Case
from pytorch_lightning import Callback

from callbacks import LengthCurriculum
from lightning_modules.decoding.options import DecodingOptions


def _agents(name: str, model: dict[str, Any]) -> Case:
    def moving() -> list[Callback]:
        return [LengthCurriculum(source=8, target=3, steps=3)]

    sizes = {"vocab_size": 40, "embedding_size": 12, "hidden_size": 12, "dropout": 0.1, "learning_rate": 0.01}
    sizes |= {"val_summaries": 2, "decoding": DecodingOptions(beam_size=2, min_length=1, max_length=12)}
    data = {"vocab_size": 40, "agents": model["agents"], "max_source": 30, "max_target": 12, "batch_size": 4}
    by_heart = {"vocab_size": 150, "embedding_size": 48, "hidden_size": 48, "dropout": 0.0}
    return Case(
        name,
        "lightning_modules.CommunicatingAgents",
        "datamodules.CommunicatingAgentsData",
        sizes | model,
        data,
        {"dropout": 0.0},
        moving,
        (by_heart, {"vocab_size": 150}),
        overfit_epochs=200,
    )


# words that stand more than once in a made-up summary, so that there is something to be cohesive about
COHESION = {"cohesion": 0.01, "sentence_ends": [".", "the"]}
CASES = [
    _agents("agents-m1", {"agents": 1}),
    _agents("agents-m7", {"agents": 3, "messages": "attention", "contextual_agent_attention": True} | COHESION),
]
