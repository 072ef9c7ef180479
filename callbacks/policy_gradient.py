"""Terms of a policy gradient: advantages from rewards, clipped ratios, divergence from a reference model."""

from typing import Literal

import torch
from torch import Tensor

Credit = Literal["summary", "reward_to_go", "myopic"]
Advantage = Literal["greedy", "leave_one_out", "group", "group_mean"]
STD_OFFSET = 1e-4  # added to standard deviations, as in `trl`, because equal rewards have a deviation of 0


def sentence_numbers(tokens: Tensor, ends: Tensor) -> Tensor:
    """Return the number of sentences ended before each of `tokens`, [..., T]; `ends` [n]: ids of tokens that end one.

    It does not depend on the token itself, so an end symbol after the end of a sentence counts as another, empty one.
    """
    is_end = torch.isin(tokens, ends).long()                                         # [..., T]
    return is_end.cumsum(-1) - is_end


def prefix_lengths(numbers: Tensor, lengths: Tensor) -> Tensor:
    """Return numbers of tokens up to each sentence's end, [..., Q], by sentence `numbers` [..., T] and `lengths`."""
    in_text = torch.arange(numbers.shape[-1], device=numbers.device) < lengths.unsqueeze(-1)  # [..., T]
    num_sentences = int(numbers.masked_fill(~in_text, 0).max()) + 1  # Q, the most in any text
    sentences = torch.arange(num_sentences, device=numbers.device).unsqueeze(1)      # [Q, 1]
    return ((numbers.unsqueeze(-2) <= sentences) & in_text.unsqueeze(-2)).sum(-1)    # [..., Q]


def gains(rewards: Tensor) -> Tensor:
    """Return the gain of each sentence, R([o_1 .. o_q]) - R([o_1 .. o_q-1]), from rewards of prefixes [..., Q]."""
    return rewards.diff(dim=-1, prepend=torch.zeros_like(rewards[..., :1]))


def advantages(gained: Tensor, credit: Credit, advantage: Advantage) -> Tensor:
    """Return the value of each sentence of each sample, compared with other texts of its document, [B, K, Q].

    The value of a sentence is its gain in reward (`myopic`: equation 14 of Celikyilmaz et al. 2018, biased), or the sum
    of its gain and all later ones (`reward_to_go`, unbiased: earlier gains do not depend on it). With Q = 1 both are
    the reward of the whole text. Missing sentences count 0. Each value is compared with those of the same index:

    - `greedy`: minus the value in the greedy text.
    - `leave_one_out`: minus the mean of the other samples (RLOO, arXiv 2402.14740).
    - `group_mean`: minus the mean of all samples, this one included (Dr. GRPO, arXiv 2503.20783), which is
      (K - 1) / K of `leave_one_out`.
    - `group`: the same, divided by the standard deviation over the samples (GRPO, arXiv 2402.03300).

    `gained` are gains of up to Q sentences in K samples for each of B documents, [B, K, Q]; with `greedy`, the greedy
    text is first, [B, 1 + K, Q].
    """
    values = gained if credit == "myopic" else gained.flip(-1).cumsum(-1).flip(-1)  # sums from each sentence on
    if advantage == "greedy":
        return values[:, 1:] - values[:, :1]
    if advantage == "leave_one_out":
        num_others = values.shape[1] - 1
        return values - (values.sum(1, keepdim=True) - values) / num_others
    centered = values - values.mean(1, keepdim=True)
    if advantage == "group_mean":
        return centered
    return centered / (values.std(1, keepdim=True) + STD_OFFSET)


def clipped_gain(log_probs: Tensor, old_log_probs: Tensor, advantage: Tensor, clip: tuple[float, float]) -> Tensor:
    """Return min(rho A, clamp(rho, 1 - lower, 1 + upper) A) by token, for A = `advantage` and rho = P / P_old.

    See PPO, Schulman et al. 2017 (arXiv 1707.06347, equation 7); separate limits as in DAPO (arXiv 2503.14476). At
    rho = 1 its gradient is that of A log P(token). All tensors are [B, K, T]: T tokens of K samples of B documents.
    """
    ratio = (log_probs - old_log_probs).exp()
    lower, upper = clip
    return (ratio * advantage).minimum(ratio.clamp(1 - lower, 1 + upper) * advantage)


def divergence(log_probs: Tensor, reference: Tensor) -> Tensor:
    """Return Q/P - log(Q/P) - 1, an estimate of KL(P || Q) from log P (`log_probs`) and log Q (`reference`), [B, K, T].

    It is k3 of http://joschu.net/blog/kl-approx.html, as in GRPO (arXiv 2402.03300, equation 4): never negative, and
    unbiased for samples of P. Its gradient is, on average over samples of P, that of KL(Q || P) at each token.
    """
    difference = reference - log_probs
    return difference.exp() - difference - 1
