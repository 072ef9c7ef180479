"""Messages between agents: one message to each agent, computed from the last states of the others."""

from typing import Literal

import torch
from torch import Tensor, nn

Messages = Literal["mean", "feed_forward", "attention"]


def sender_mask(agent_mask: Tensor) -> Tensor:
    """Return which agents send to which, [B, M] -> [B, M, M]: True at [b, a, m] if m, not padding, is not a."""
    return agent_mask.unsqueeze(1) & ~torch.eye(agent_mask.shape[1], dtype=torch.bool, device=agent_mask.device)


def uniform_weights(agent_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 1 / (number of senders) at the senders to each agent, [B, M, M]; 0 for an agent without senders."""
    senders = sender_mask(agent_mask).to(dtype)
    return senders / senders.sum(-1, keepdim=True).clamp_min(1)


class MeanMessages(nn.Module):
    """Message to agent a: mean of the other agents' last states, z_a = mean over m != a of h_{m,I}, as in the paper.

    In this and the other kinds of messages, padding agents send nothing, and an agent without senders receives 0.
    """

    def forward(self, last: Tensor, agent_mask: Tensor) -> Tensor:
        """Return the message to each agent: last states [B, M, H], mask [B, M], False at padding -> [B, M, H]."""
        return uniform_weights(agent_mask, last.dtype) @ last


class FeedForwardMessages(nn.Module):
    """Message to agent a from a feed-forward network of sender m and receiver, whose last states are h_{m,I}, h_{a,I}.

        z_a = U_o mean over m != a of tanh(U_r h_{a,I} + U_s h_{m,I} + b)
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.listener = nn.Linear(hidden_size, hidden_size)
        self.sender = nn.Linear(hidden_size, hidden_size, bias=False)
        self.output = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, last: Tensor, agent_mask: Tensor) -> Tensor:
        """Return the message to each agent: last states [B, M, H], mask [B, M], False at padding -> [B, M, H]."""
        pairs = (self.listener(last).unsqueeze(2) + self.sender(last).unsqueeze(1)).tanh()       # [B, M, M, H]
        weights = uniform_weights(agent_mask, pairs.dtype).unsqueeze(2)  # 1 / (number of m != a) or 0, [B, M, 1, M]
        return self.output((weights @ pairs).squeeze(2))


class AttentionMessages(nn.Module):
    """Message to agent a by dot-product attention to the other agents' last states h_{m,I}.

        z_a = sum over m != a of w_am h_{m,I},   w_a = softmax over m != a of (Q h_{a,I}) . (K h_{m,I}) / sqrt(H)

    With two agents there is only one sender, so that the message equals that of `MeanMessages`.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.key = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, last: Tensor, agent_mask: Tensor) -> Tensor:
        """Return the message to each agent: last states [B, M, H], mask [B, M], False at padding -> [B, M, H]."""
        scores = self.query(last) @ self.key(last).transpose(1, 2) / last.shape[-1] ** 0.5       # [B, M, M]
        senders = sender_mask(agent_mask)                                                        # [B, M, M]
        # the lowest number, not -inf, with which the softmax of an agent without senders would be NaN
        weights = scores.masked_fill(~senders, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~senders, 0)
        return weights.to(last.dtype) @ last


def make_messages(kind: Messages, hidden_size: int) -> nn.Module:
    """Build the layer that computes messages from agents' last states; a `ValueError` if the kind does not exist."""
    if kind == "mean":
        return MeanMessages()
    if kind == "feed_forward":
        return FeedForwardMessages(hidden_size)
    if kind == "attention":
        return AttentionMessages(hidden_size)
    raise ValueError(f"messages are mean, feed_forward or attention; got {kind!r}")
