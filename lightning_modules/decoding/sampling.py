"""Sampling over the same step function as beam search."""

import torch
from torch import Tensor

from lightning_modules.decoding.beam_search import Hypotheses, State, Step
from lightning_modules.decoding.options import DecodingOptions, forbid, repeated_continuations


def truncate(log_probs: Tensor, options: DecodingOptions) -> Tensor:
    """Log-probabilities [..., V] sharpened by temperature, -inf outside top-k and top-p, normalised again."""
    log_probs = (log_probs / options.temperature).log_softmax(-1)
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
    B, K = len(start), options.beam_size
    state = {name: tensor.unsqueeze(1).expand(-1, K, *tensor.shape[1:]) for name, tensor in state.items()}
    tokens = start.unsqueeze(1).expand(-1, K)
    never = torch.tensor(forbidden, dtype=torch.long, device=start.device)
    drawn = torch.full((B, K, options.max_length), padding, dtype=torch.long, device=start.device)
    sums = torch.zeros(B, K, device=start.device)
    lengths = torch.zeros(B, K, dtype=torch.long, device=start.device)
    open_ = torch.ones(B, K, dtype=torch.bool, device=start.device)
    for t in range(options.max_length):
        ids, log_probs, state = step(tokens, state, memory, None)
        log_probs = forbid(log_probs, ids, never.expand(B, K, -1))
        if t < options.min_length:
            log_probs = forbid(log_probs, ids, torch.full_like(tokens, stop).unsqueeze(-1))
        if options.no_repeat_ngram:
            log_probs = forbid(log_probs, ids, repeated_continuations(drawn[..., :t], options.no_repeat_ngram))
        stuck = log_probs.isneginf().all(-1)                                         # [B, K]
        if (stuck & open_).any():
            raise ValueError("sampling has no token left: every one was forbidden; loosen the decoding options")
        log_probs = truncate(log_probs.masked_fill(stuck.unsqueeze(-1), 0), options)  # [B, K, C]
        column = torch.multinomial(log_probs.exp().flatten(0, 1), 1, generator=generator).view(B, K, 1)
        if options.greedy_first:
            column[:, 0] = log_probs[:, 0].argmax(-1, keepdim=True)
        tokens = (column if ids is None else ids.gather(-1, column)).squeeze(-1)
        sums += log_probs.gather(-1, column).squeeze(-1) * open_
        drawn[..., t] = tokens.masked_fill(~open_, padding)
        lengths += open_
        open_ &= tokens != stop
        if not open_.any():
            break
    penalties = torch.tensor([options.penalty(max(1, n)) for n in range(options.max_length + 1)], device=start.device)
    return Hypotheses(drawn, lengths, sums / penalties[lengths])
