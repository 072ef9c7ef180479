"""Decoding options of all generative models, and the constraints on tokens that they imply."""

from dataclasses import dataclass, fields
from typing import Literal, TypedDict

import torch
from torch import Tensor


@dataclass(frozen=True)
class DecodingOptions:
    """Options of beam search and sampling; lengths count generated tokens, the end symbol included.

    Attributes:
        beam_size: number of hypotheses kept; 1 is greedy search.
        min_length: number of words before the end symbol is allowed.
        max_length: largest number of tokens.
        length_penalty: divisor of a hypothesis' log-probability, by its length n: `mean` n^alpha, `gnmt`
            ((5 + n) / 6)^alpha (Wu et al. 2016, equation 14), `none` 1.
        alpha: exponent of the length penalty; with `mean`, 1 is the mean log-probability.
        no_repeat_ngram: size of n-grams that must not occur twice in a hypothesis; 0 allows all.
        allow_unknown: allow the unknown-word symbol of a vocabulary of words; subword tokenizers have none.
        early_stopping: end a document's search at `beam_size` finished hypotheses, as See et al. 2017; otherwise when
            no open hypothesis can exceed the score of those.
        prefer_finished: return hypotheses truncated at `max_length` only for documents in which none reached the end
            symbol, as See et al. 2017; otherwise they compete with finished ones by score.
        sample: sample from the distribution instead of searching.
        greedy_first: decode the first sample greedily.
        temperature: softmax temperature of sampling.
        top_k: sample from the k most probable tokens; 0 for all.
        top_p: sample from the smallest set of tokens with this probability.
    """

    beam_size: int = 4
    min_length: int = 35
    max_length: int = 120
    length_penalty: Literal["mean", "gnmt", "none"] = "mean"
    alpha: float = 1.0
    no_repeat_ngram: int = 0
    allow_unknown: bool = False
    early_stopping: bool = True
    prefer_finished: bool = False
    sample: bool = False
    greedy_first: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        minima = {"beam_size": 1, "max_length": 1, "min_length": 0, "alpha": 0, "no_repeat_ngram": 0, "top_k": 0}
        for name, minimum in minima.items():
            if getattr(self, name) < minimum:
                raise ValueError(f"{name} must be at least {minimum}, got {getattr(self, name)}")
        if self.min_length >= self.max_length:
            raise ValueError(f"min_length must be below max_length {self.max_length}, got {self.min_length}")
        if self.greedy_first and not self.sample:
            raise ValueError("greedy_first is about sampling: set sample too")
        if self.temperature <= 0:
            raise ValueError(f"temperature must be positive, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")

    @property
    def is_untruncated(self) -> bool:
        """Whether the distribution of sampling is the model's own, without temperature, top-k and top-p."""
        return self.temperature == 1 and self.top_p == 1 and not self.top_k

    def penalty(self, length: int) -> float:
        """Return the divisor of the log-probability of a hypothesis of `length` tokens."""
        if self.length_penalty == "none":
            return 1.0
        return (length if self.length_penalty == "mean" else (5 + length) / 6) ** self.alpha


# Values of some fields of `DecodingOptions`, which replace the values that a model's card has.
_TYPES = {field.name: field.type for field in fields(DecodingOptions)}
DecodingChanges = TypedDict("DecodingChanges", _TYPES, total=False)


def repeated_continuations(tokens: Tensor, size: int) -> Tensor:
    """Return the next tokens that would repeat an n-gram of n = `size` tokens of a sequence; -1 stands for no token.

    Sequences are [..., t], the result is [..., max(0, t - n + 1)]: for each n-gram its last token if the sequence ends
    with the n-gram's first n - 1 tokens, else -1. Size 0 forbids nothing.
    """
    length = tokens.shape[-1]
    if size < 1 or length < size:
        return tokens.new_zeros(*tokens.shape[:-1], 0)
    windows = tokens.unfold(-1, size, 1)                                             # [..., t - n + 1, n]
    suffix = tokens[..., length - size + 1 :].unsqueeze(-2)                          # [..., 1, n - 1]
    return windows[..., -1].masked_fill((windows[..., :-1] != suffix).any(-1), -1)


def forbidden_next(tokens: Tensor, stop: int, options: DecodingOptions, never: Tensor) -> Tensor:
    """Return the tokens that are forbidden after sequences [B, K, t]: [B, K, F], where -1 stands for no token.

    They are the tokens `never` generated, [n], the end symbol before the minimum length, and those of repeated n-grams.
    """
    forbidden = [never.expand(*tokens.shape[:-1], -1), repeated_continuations(tokens, options.no_repeat_ngram)]
    if tokens.shape[-1] < options.min_length:
        forbidden.append(tokens.new_full((*tokens.shape[:-1], 1), stop))
    return torch.cat(forbidden, -1)


def forbid(log_probs: Tensor, ids: Tensor | None, tokens: Tensor) -> Tensor:
    """Return log-probabilities [..., C] with -inf for the ids `tokens` [..., n], where negative ids are padding.

    `ids` are the ids of the C columns, [..., C]; None if column i is token i.
    """
    if tokens.shape[-1] == 0:
        return log_probs
    if ids is not None:
        is_forbidden = (ids.unsqueeze(-1) == tokens.unsqueeze(-2)).any(-1)           # [..., C]
        return log_probs.masked_fill(is_forbidden, float("-inf"))
    is_forbidden = torch.zeros_like(log_probs, dtype=torch.bool)
    is_forbidden.scatter_(-1, tokens.clamp_min(0), tokens >= 0)
    # negative ids were clamped to 0 and may have overwritten the entry of token 0
    is_forbidden[..., 0] = (tokens == 0).any(-1)
    return log_probs.masked_fill(is_forbidden, float("-inf"))
