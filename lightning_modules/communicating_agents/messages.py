"""What agents tell each other: one message to each agent from the last states of the others."""

from typing import Literal

import torch
from torch import Tensor, nn

Messages = Literal["mean", "feed_forward", "attention"]


def others_of(real: Tensor) -> Tensor:
    """Whom each agent hears: [B, M] -> [B, M, M], True at [b, a, m] where m is real and not a."""
    return real.unsqueeze(1) & ~torch.eye(real.shape[1], dtype=torch.bool, device=real.device)


def even_weights(real: Tensor, dtype: torch.dtype) -> Tensor:
    """1 / (number of others) at the others of each agent, [B, M, M]; all 0 for an agent that is alone."""
    others = others_of(real).to(dtype)
    return others / others.sum(-1, keepdim=True).clamp_min(1)


class MeanMessages(nn.Module):
    """z_a = mean over m != a of h_{m,I}, as in the paper.

    In all kinds of messages padding agents are not heard, and an agent that is alone gets z = 0.
    """

    def forward(self, last: Tensor, real: Tensor) -> Tensor:
        """Messages from last states.

        Args:
            last: [B, M, H].
            real: False at padding agents, [B, M].

        Returns:
            [B, M, H].
        """
        return even_weights(real, last.dtype) @ last


class FeedForwardMessages(nn.Module):
    """z_a = U_o mean over m != a of tanh(U_r h_{a,I} + U_s h_{m,I} + b): what is said depends on who listens.

    Args:
        hidden_size: H.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.listener = nn.Linear(hidden_size, hidden_size)
        self.sender = nn.Linear(hidden_size, hidden_size, bias=False)
        self.output = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, last: Tensor, real: Tensor) -> Tensor:
        """As `MeanMessages.forward`."""
        said = (self.listener(last).unsqueeze(2) + self.sender(last).unsqueeze(1)).tanh()        # [B, M, M, H]
        weights = even_weights(real, said.dtype).unsqueeze(2)                                    # [B, M, 1, M]
        return self.output((weights @ said).squeeze(2))


class AttentionMessages(nn.Module):
    """z_a = sum over m != a of w_am h_{m,I}, w_a = softmax over m != a of (Q h_{a,I}) . (K h_{m,I}) / sqrt(H).

    With two agents there is one to listen to, and the message is the mean's.

    Args:
        hidden_size: H.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.key = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, last: Tensor, real: Tensor) -> Tensor:
        """As `MeanMessages.forward`."""
        scores = self.query(last) @ self.key(last).transpose(1, 2) / last.shape[-1] ** 0.5       # [B, M, M]
        others = others_of(real)
        # not -inf: an agent that is alone has no other to listen to
        weights = scores.masked_fill(~others, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~others, 0)
        return weights.to(last.dtype) @ last


def make_messages(kind: Messages, hidden_size: int) -> nn.Module:
    """Messages of a kind.

    Raises:
        ValueError: if there is no such kind.
    """
    if kind == "mean":
        return MeanMessages()
    if kind == "feed_forward":
        return FeedForwardMessages(hidden_size)
    if kind == "attention":
        return AttentionMessages(hidden_size)
    raise ValueError(f"messages are mean, feed_forward or attention; got {kind!r}")
