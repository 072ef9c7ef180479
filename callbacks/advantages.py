"""Advantages of tokens from rewards, for self-critical training; tensors only, without gradient."""

from typing import Literal

import torch
from torch import Tensor

Credit = Literal["summary", "reward_to_go", "myopic"]
Baseline = Literal["greedy", "leave_one_out"]


def sentence_numbers(tokens: Tensor, ends: Tensor) -> Tensor:
    """Return the number of sentences that ended before each token, [..., T], for tokens [..., T] and ids of ends [n].

    It does not depend on the token itself, so an end symbol after the last sentence begins another, empty sentence.
    """
    is_end = torch.isin(tokens, ends).long()                                         # [..., T]
    return is_end.cumsum(-1) - is_end


def prefix_lengths(numbers: Tensor, lengths: Tensor) -> Tensor:
    """Return the number of tokens up to the end of each sentence, [..., Q]; the whole length for missing sentences.

    Args:
        numbers: index of the sentence of each token, [..., T].
        lengths: number of tokens, [...].
    """
    real = torch.arange(numbers.shape[-1], device=numbers.device) < lengths.unsqueeze(-1)      # [..., T]
    count = int(numbers.masked_fill(~real, 0).max()) + 1
    sentences = torch.arange(count, device=numbers.device).unsqueeze(1)              # [Q, 1]
    return ((numbers.unsqueeze(-2) <= sentences) & real.unsqueeze(-2)).sum(-1)       # [..., Q]


def gains(rewards: Tensor) -> Tensor:
    """Return the gain of each sentence, R([o_1 .. o_q]) - R([o_1 .. o_q-1]), from rewards of prefixes [..., Q]."""
    return rewards.diff(dim=-1, prepend=torch.zeros_like(rewards[..., :1]))


def advantages(gained: Tensor, credit: Credit, baseline: Baseline) -> Tensor:
    """Return the value of each sentence of each sample minus that of the same sentence of the baseline, [B, K, Q].

    The value of a sentence is its gain (`myopic`: equation 14 of Celikyilmaz et al. 2018, biased), or the sum of its
    gain and all later ones (`reward_to_go`, unbiased, because earlier gains do not depend on it). With Q = 1 both are
    the reward of the whole text. Missing sentences count 0.

    Args:
        gained: gains of sentences. With the baseline `greedy`, the first row is the greedy text, [B, 1 + K, Q]; with
            `leave_one_out`, all rows are samples, and the baseline is the mean over the other samples, [B, K, Q].
        baseline: `greedy` or `leave_one_out`.
        credit: `myopic` or `reward_to_go`.
    """
    values = gained if credit == "myopic" else gained.flip(-1).cumsum(-1).flip(-1)
    if baseline == "greedy":
        return values[:, 1:] - values[:, :1]
    num_others = values.shape[1] - 1
    return values - (values.sum(1, keepdim=True) - values) / num_others
