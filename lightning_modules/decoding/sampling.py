"""Sampling over the same step function as beam search, and the log-probabilities of what was drawn."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lightning_modules.decoding.beam_search import Hypotheses, State, Step
from lightning_modules.decoding.options import DecodingOptions, forbid, repeated_continuations

CHUNK = 256  # positions whose distributions over all words are in memory at once when samples are rescored


def truncate(log_probs: Tensor, options: DecodingOptions) -> Tensor:
    """Log-probabilities [..., V] sharpened by temperature, -inf outside top-k and top-p, normalised again."""
    if options.temperature != 1:
        log_probs = log_probs / options.temperature
    log_probs = log_probs.log_softmax(-1)
    if not options.top_k and options.top_p == 1:
        return log_probs
    if options.top_k and options.top_k < log_probs.shape[-1]:
        worst = log_probs.topk(options.top_k, dim=-1).values[..., -1:]
        log_probs = log_probs.masked_fill(log_probs < worst, float("-inf"))
    if options.top_p < 1:
        ordered, order = log_probs.log_softmax(-1).sort(dim=-1, descending=True)
        before = ordered.exp().cumsum(-1) - ordered.exp()  # probability of the tokens ranked above
        outside = torch.zeros_like(ordered, dtype=torch.bool).scatter(-1, order, before >= options.top_p)
        log_probs = log_probs.masked_fill(outside, float("-inf"))
    return log_probs.log_softmax(-1)


@torch.no_grad()
def sample(
    step: Step,
    state: State,
    memory: State,
    start: Tensor,
    stop: int,
    options: DecodingOptions,
    forbidden: tuple[int, ...] = (),
    padding: int = 0,
    generator: torch.Generator | None = None,
) -> Hypotheses:
    """Draws `beam_size` continuations of each document, one token at a time.

    Arguments as in `beam_search`; `generator` makes the draw repeatable. Constraints (forbidden tokens, minimum length,
    n-gram blocking) and temperature, top-k and top-p shape the distribution that is drawn from; scores are the summed
    log-probabilities under that distribution, divided by the length penalty. Hypotheses come in the order drawn; with
    `greedy_first` the first one is the greedy one.

    Raises:
        ValueError: if a hypothesis cannot go on, because every token was forbidden.
    """
    B, K, T = len(start), options.beam_size, options.max_length
    state = {name: tensor.unsqueeze(1).expand(-1, K, *tensor.shape[1:]) for name, tensor in state.items()}
    tokens = start.unsqueeze(1).expand(-1, K)
    drawn = torch.full((B, K, T), padding, dtype=torch.long, device=start.device)
    sums = torch.zeros(B, K, device=start.device)
    lengths = torch.zeros(B, K, dtype=torch.long, device=start.device)
    open_ = torch.ones(B, K, dtype=torch.bool, device=start.device)
    rows = torch.arange(B, device=start.device)  # the documents that are still written about, b of them
    for t in range(T):
        ids, log_probs, state = step(tokens, state, memory, None)                    # [b, K, C]
        log_probs = _allowed(log_probs, ids, t, drawn[rows, :, :t], stop, options, forbidden)
        stuck = log_probs.isneginf().all(-1)                                         # [b, K]
        if (stuck & open_).any():
            raise ValueError("sampling has no token left: every one was forbidden; loosen the decoding options")
        log_probs = truncate(log_probs.masked_fill(stuck.unsqueeze(-1), 0), options)
        column = torch.multinomial(log_probs.exp().flatten(0, 1), 1, generator=generator).view(len(rows), K, 1)
        if options.greedy_first:
            column[:, 0] = log_probs[:, 0].argmax(-1, keepdim=True)
        tokens = (column if ids is None else ids.gather(-1, column)).squeeze(-1)
        sums[rows] += log_probs.gather(-1, column).squeeze(-1) * open_
        drawn[rows, :, t] = tokens.masked_fill(~open_, padding)
        lengths[rows] += open_
        open_ = open_ & (tokens != stop)
        going_on = open_.any(1).nonzero().squeeze(1)
        if len(going_on) == 0:
            break
        if len(going_on) <= 0.75 * len(rows):  # narrowing copies the memory: not for a single document in many
            rows, tokens, open_ = rows[going_on], tokens[going_on], open_[going_on]
            state = {name: tensor[going_on] for name, tensor in state.items()}
            memory = {name: tensor[going_on] for name, tensor in memory.items()}
    penalties = torch.tensor([options.penalty(max(1, n)) for n in range(T + 1)], device=start.device)
    return Hypotheses(drawn, lengths, sums / penalties[lengths])


def rescore(
    distribution: Callable[[Tensor], Tensor],
    tokens: Tensor,
    lengths: Tensor,
    stop: int,
    options: DecodingOptions,
    forbidden: tuple[int, ...] = (),
) -> Tensor:
    """Return the log-probabilities of tokens under the distribution that `sample` draws them from.

    Constraints, temperature, top-k and top-p are applied to the model's distributions as `sample` applies them. The
    distributions are computed for a chunk of the positions at a time, and again in the backward pass, so that no
    [B, K, T, C] tensor is kept.

    Args:
        distribution: log P of all C words at flat positions [n] in B K T: [n, C], with gradient.
        tokens: drawn ids, [B, K, T].
        lengths: tokens of each sample, the end symbol included, [B, K].
        stop: the end symbol.
        options: those that the samples were drawn with.
        forbidden: tokens that are never generated.

    Returns:
        [B, K, T]; 0 behind `lengths`, -inf for a token that the options forbid.
    """
    T = tokens.shape[-1]
    blocked = _blocked_tokens(tokens, stop, options, forbidden).flatten(0, 2)        # [B K T, F]
    positions = (torch.arange(T, device=tokens.device) < lengths.unsqueeze(-1)).flatten().nonzero().squeeze(1)

    def chosen(rows: Tensor) -> Tensor:
        log_probs = distribution(rows)                                               # [n, C]
        allowed = forbid(log_probs.unsqueeze(1), None, blocked[rows].unsqueeze(1)).squeeze(1)
        return truncate(allowed, options).gather(-1, tokens.flatten()[rows].unsqueeze(1)).squeeze(1)

    log_probs = torch.cat([checkpoint(chosen, rows, use_reentrant=False) for rows in positions.split(CHUNK)])
    return log_probs.new_zeros(tokens.numel()).index_copy(0, positions, log_probs).view(tokens.shape)


def _blocked_tokens(tokens: Tensor, stop: int, options: DecodingOptions, forbidden: tuple[int, ...]) -> Tensor:
    """Tokens that may not follow the beginnings of samples [B, K, T]: [B, K, T, F], -1 where nothing is blocked."""
    T = tokens.shape[-1]
    blocked = tokens.new_tensor(forbidden).expand(*tokens.shape, -1)
    too_short = torch.arange(T, device=tokens.device) < options.min_length
    ends = torch.where(too_short, stop, -1).expand(tokens.shape).unsqueeze(-1)       # [B, K, T, 1]
    blocked = torch.cat([blocked, ends], -1)
    if options.no_repeat_ngram:
        found = [repeated_continuations(tokens[..., :t], options.no_repeat_ngram) for t in range(T)]
        repeats = [torch.nn.functional.pad(ids, (0, T - ids.shape[-1]), value=-1) for ids in found]
        blocked = torch.cat([blocked, torch.stack(repeats, 2)], -1)
    return blocked


def _allowed(
    log_probs: Tensor,
    ids: Tensor | None,
    length: int,
    drawn: Tensor,
    stop: int,
    options: DecodingOptions,
    forbidden: tuple[int, ...],
) -> Tensor:
    """Log-probabilities [b, K, C] with -inf where a constraint forbids a token.

    Args:
        length: tokens so far.
        drawn: these, [b, K, length].
    """
    never = torch.tensor([*forbidden, *([stop] if length < options.min_length else [])], device=log_probs.device)
    log_probs = forbid(log_probs, ids, never.long().expand(*log_probs.shape[:2], -1))
    if options.no_repeat_ngram:
        log_probs = forbid(log_probs, ids, repeated_continuations(drawn, options.no_repeat_ngram))
    return log_probs
