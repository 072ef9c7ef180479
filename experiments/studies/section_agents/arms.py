"""Arms of the study: agents with, without and with exchanged messages, from the same weights."""

import copy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from datamodules.communicating_agents import CommunicatingAgentsBatch
from experiments.studies.section_agents.sections import SECTIONS
from lightning_modules.communicating_agents.messages import MeanMessages
from lightning_modules.communicating_agents.module import AgentEmbedding, CommunicatingAgents

SCRATCH, BRANCHES = ("silent", "messages", "one"), ("joined", "other")
Mode = Literal["own", "other", "cut"]


class SwitchedMessages(nn.Module):
    """Mean messages of the article's own agents, of those of the next article in the batch, or none."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = MeanMessages()
        self.mode: Mode = "own"

    def forward(self, last: Tensor, agents: Tensor) -> Tensor:
        """Return the messages to each agent, shapes as of `MeanMessages`."""
        if self.mode == "other":
            last, agents = last.roll(1, 0), agents.roll(1, 0)
        message = self.mean(last, agents)
        return message * 0 if self.mode == "cut" else message


@dataclass(frozen=True)
class Sizes:
    """Sizes of the models and of their training."""

    vocab_size: int = 10_000
    hidden_size: int = 64
    dropout: float = 0.1
    lr: float = 0.003
    batch_size: int = 16
    steps: int = 400


@dataclass
class Arm:
    """A model with its optimizer."""

    model: CommunicatingAgents
    optimizer: torch.optim.Optimizer

    @property
    def agents(self) -> int:
        """Number of agents."""
        return 1 if self.model.network.decoder.agent_score is None else len(SECTIONS)

    @property
    def mode(self) -> Mode | None:
        """Whose messages the agents receive; None if they receive none."""
        return next((switch.mode for switch in self._switches()), None)

    def set_mode(self, mode: Mode) -> None:
        """Set whose messages the agents receive."""
        for switch in self._switches():
            switch.mode = mode

    def _switches(self) -> list[SwitchedMessages]:
        return [module for module in self.model.modules() if isinstance(module, SwitchedMessages)]

    def step(self, batch: CommunicatingAgentsBatch, rate: float, seed: int) -> float:
        """Train on a batch and return the loss; dropout depends on the seed alone, equal for arms of equal shape."""
        torch.manual_seed(seed)
        loss = self.model.loss_terms(batch)["nll"]
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return float(loss.detach())


def make_arm(name: str, sizes: Sizes, seed: int, device: torch.device) -> Arm:
    """Return an arm with new weights; arms of equal shape begin with equal ones."""
    torch.manual_seed(seed)
    model = CommunicatingAgents(
        vocab_size=sizes.vocab_size,
        embedding=AgentEmbedding(size=sizes.hidden_size, std=0.1),
        hidden_size=sizes.hidden_size,
        agents=1 if name == "one" else len(SECTIONS),
        communication=name not in ("silent", "one"),
        contextual_layers=1,
        dropout=sizes.dropout,
        val_summaries=0,
    )
    for layer in model.network.encoder.layers:
        if layer.messages is not None:
            layer.messages = SwitchedMessages()
    model = model.to(device)
    arm = Arm(model, torch.optim.Adam(model.parameters(), lr=sizes.lr))
    arm.set_mode("other" if name == "other" else "own")
    return arm


def branch_off(name: str, base: Arm, sizes: Sizes, seed: int, device: torch.device) -> Arm:
    """Return a copy of an arm without messages and of its optimizer, which receives messages by weights of zero."""
    arm = make_arm(name, sizes, seed, device)
    arm.model.load_state_dict(base.model.state_dict(), strict=False)
    of_base = dict(base.model.named_parameters())
    for key, parameter in arm.model.named_parameters():
        if key in of_base:
            arm.optimizer.state[parameter] = copy.deepcopy(base.optimizer.state[of_base[key]])
        else:
            nn.init.zeros_(parameter)
    return arm
