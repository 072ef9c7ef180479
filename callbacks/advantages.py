"""From rewards to advantages: what each token of a sample is praised or blamed for. Tensors only, without gradient."""

from typing import Literal

import torch
from torch import Tensor

Credit = Literal["summary", "reward_to_go", "myopic"]
Baseline = Literal["greedy", "leave_one_out"]


def sentence_numbers(tokens: Tensor, ends: Tensor) -> Tensor:
    """Number, from 0, of the sentence that each token belongs to: how many sentences ended before it, [..., T].

    It is known before the token is: also an end symbol behind the last sentence opens one of its own (which is empty).

    Args:
        tokens: ids, [..., T].
        ends: ids that end a sentence, [n].
    """
    ended = torch.isin(tokens, ends).long()                                          # [..., T]
    return ended.cumsum(-1) - ended


def beginnings(numbers: Tensor, lengths: Tensor) -> Tensor:
    """Tokens up to the end of each sentence, [..., Q]; with fewer sentences the whole length from there on.

    Args:
        numbers: of the sentence of each token, [..., T].
        lengths: tokens, [...].
    """
    real = torch.arange(numbers.shape[-1], device=numbers.device) < lengths.unsqueeze(-1)      # [..., T]
    count = int(numbers.masked_fill(~real, 0).max()) + 1
    places = torch.arange(count, device=numbers.device).unsqueeze(1)                 # [Q, 1]
    return ((numbers.unsqueeze(-2) <= places) & real.unsqueeze(-2)).sum(-1)          # [..., Q]


def gains(rewards: Tensor) -> Tensor:
    """What each sentence adds, R([o_1 .. o_q]) - R([o_1 .. o_q-1]), of the rewards of beginnings [..., Q]."""
    return rewards.diff(dim=-1, prepend=torch.zeros_like(rewards[..., :1]))


def advantages(gained: Tensor, credit: Credit, baseline: Baseline) -> Tensor:
    """Value of each sentence of each sample, less the baseline's value of the sentence with its number, [B, K, Q].

    The value of a sentence is its own gain (`myopic`: equation 14 of Celikyilmaz et al. 2018, biased), or that and all
    later ones (`reward_to_go`, unbiased: what came before it does not depend on it). With Q = 1 both are the reward of
    the whole text. Sentences that a text lacks count 0.

    Args:
        gained: gains of each sentence. For `greedy` the first row is the greedy text's, [B, 1 + K, Q]; for
            `leave_one_out` all rows are samples and each one's baseline is the mean of the others, [B, K, Q].
    """
    values = gained if credit == "myopic" else gained.flip(-1).cumsum(-1).flip(-1)
    if baseline == "greedy":
        return values[:, 1:] - values[:, :1]
    others = values.shape[1] - 1
    return values - (values.sum(1, keepdim=True) - values) / others
