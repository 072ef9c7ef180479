"""Sampling over the step function of beam search, and the log-probabilities of samples."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from lightning_modules.decoding.beam_search import Hypotheses, State, Step
from lightning_modules.decoding.options import DecodingOptions, forbid, forbidden_next

CHUNK = 256  # positions whose distributions over the vocabulary are in memory at once during rescoring


def truncate(log_probs: Tensor, options: DecodingOptions, keep: Tensor | None = None) -> Tensor:
    """Apply temperature, top-k and top-p to log P [..., V], renormalized; ids `keep` [..., 1], drawn before, stay."""
    log_probs = (log_probs / options.temperature).log_softmax(-1)
    if not options.top_k and options.top_p == 1:
        return log_probs
    if options.top_k and options.top_k < log_probs.shape[-1]:
        threshold = log_probs.topk(options.top_k, dim=-1).values[..., -1:]           # of the k-th token, [..., 1]
        log_probs = _exclude(log_probs, log_probs < threshold, keep)
    if options.top_p < 1:
        ordered, order = log_probs.log_softmax(-1).sort(dim=-1, descending=True)  # renormalized after top-k
        mass_above = ordered.exp().cumsum(-1) - ordered.exp()  # probability of tokens ranked higher; 0 for the first
        excluded = torch.zeros_like(ordered, dtype=torch.bool).scatter(-1, order, mass_above >= options.top_p)
        log_probs = _exclude(log_probs, excluded, keep)
    return log_probs.log_softmax(-1)


def _exclude(log_probs: Tensor, excluded: Tensor, keep: Tensor | None) -> Tensor:
    """Set log P [..., V] to -inf at `excluded` tokens (True, [..., V]), except at the ids `keep`, [..., 1]."""
    if keep is not None:
        excluded = excluded.scatter(-1, keep, False)
    return log_probs.masked_fill(excluded, float("-inf"))


# Draw(tokens [b, K], state, memory, blocked [b, K, F]) returns the next tokens [b, K], their log-probabilities [b, K]
# (-inf if every token is blocked), and the next state. Negative entries of `blocked` are ignored.
Draw = Callable[[Tensor, State, State, Tensor], tuple[Tensor, Tensor, State]]


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
) -> Hypotheses:
    """Sample `beam_size` continuations of each document, one token at a time.

    Arguments as in `beam_search`. Constraints (forbidden tokens, minimum length, n-gram blocking), temperature, top-k
    and top-p are applied to the distribution; scores are the summed log-probabilities under the resulting distribution,
    divided by the length penalty. Hypotheses are in sampling order, not sorted by score; with `greedy_first` the first
    one is decoded greedily.

    Raises:
        ValueError: if every continuation of a hypothesis is forbidden.
    """

    def draw(tokens: Tensor, state: State, memory: State, blocked: Tensor) -> tuple[Tensor, Tensor, State]:
        ids, log_probs, state = step(tokens, state, memory, None)                    # of all tokens, [b, K, C]
        log_probs = forbid(log_probs, ids, blocked)
        stuck = log_probs.isneginf().all(-1)  # no token is left: made uniform, as `multinomial` rejects rows of 0
        log_probs = truncate(log_probs.masked_fill(stuck.unsqueeze(-1), 0), options)
        column = torch.multinomial(log_probs.exp().flatten(0, 1), 1).view(*tokens.shape, 1)  # [b, K, 1]
        if options.greedy_first:
            column[:, 0] = log_probs[:, 0].argmax(-1, keepdim=True)
        tokens = (column if ids is None else ids.gather(-1, column)).squeeze(-1)
        # -inf at stuck hypotheses makes `sample_with` raise an error, unless they have ended
        return tokens, log_probs.gather(-1, column).squeeze(-1).masked_fill(stuck, float("-inf")), state

    return sample_with(draw, state, memory, start, stop, options, forbidden, padding)


def sample_with(
    draw: Draw,
    state: State,
    memory: State,
    start: Tensor,
    stop: int,
    options: DecodingOptions,
    forbidden: tuple[int, ...] = (),
    padding: int = 0,
) -> Hypotheses:
    """Sample as `sample`, but with a function that draws the next tokens, see `Draw`, in place of `step`.

    States may have gradients. The log-probabilities that `draw` returns must have none, as they are added in place.
    """
    B, K, T = len(start), options.beam_size, options.max_length  # K samples of each document
    # the K samples of a document start from the same state, [B, ...] -> [B, K, ...], and symbol
    state = {name: tensor.unsqueeze(1).expand(-1, K, *tensor.shape[1:]) for name, tensor in state.items()}
    tokens = start.unsqueeze(1).expand(-1, K)
    drawn = torch.full((B, K, T), padding, dtype=torch.long, device=start.device)
    sums = torch.zeros(B, K, dtype=torch.float32, device=start.device)
    lengths = torch.zeros(B, K, dtype=torch.long, device=start.device)
    open_ = torch.ones(B, K, dtype=torch.bool, device=start.device)  # hypotheses without an end symbol, [b, K]
    never = start.new_tensor(forbidden)
    rows = torch.arange(B, device=start.device)  # the b documents that are still decoded, which shrink below
    for t in range(T):
        blocked = forbidden_next(drawn[rows, :, :t], stop, options, never)           # [b, K, F]
        tokens, log_probs, state = draw(tokens, state, memory, blocked)              # [b, K]
        if (log_probs.isneginf() & open_).any():  # ended hypotheses need no token
            raise ValueError("sampling has no token left: every one was forbidden; loosen the decoding options")
        # record the tokens of hypotheses that are still open
        sums[rows] += log_probs.masked_fill(~open_, 0)
        drawn[rows, :, t] = tokens.masked_fill(~open_, padding)
        lengths[rows] += open_
        open_ = open_ & (tokens != stop)
        # continue with the documents that have an open hypothesis
        active = open_.any(1).nonzero().squeeze(1)
        if len(active) == 0:
            break
        if len(active) <= 0.75 * len(rows):  # narrowing copies the memory, so only if it saves a quarter
            rows, tokens, open_ = rows[active], tokens[active], open_[active]
            state = {name: tensor[active] for name, tensor in state.items()}
            memory = {name: tensor[active] for name, tensor in memory.items()}
    penalties = sums.new_tensor([options.penalty(max(1, n)) for n in range(T + 1)])  # by length; entry 0 is unused
    return Hypotheses(drawn, lengths, sums / penalties[lengths])


def rescore(
    distribution: Callable[[Tensor], Tensor],
    tokens: Tensor,
    lengths: Tensor,
    stop: int,
    options: DecodingOptions,
    forbidden: tuple[int, ...] = (),
) -> Tensor:
    """Return the log-probabilities of tokens [B, K, T] under the distribution that `sample` uses, [B, K, T].

    `distribution` maps flat positions [n] in [B K T] to log P of all C words, [n, C], with gradient. It is called for
    `CHUNK` positions at a time, and again in the backward pass, so that no [B, K, T, C] tensor is kept. The result is
    0 after `lengths` [B, K], end symbol included, and -inf for a token that the options forbid.
    """
    blocked = _blocked_tokens(tokens, stop, options, forbidden).flatten(0, 2)  # F ids each, -1 for none, [B K T, F]
    is_token = torch.arange(tokens.shape[-1], device=tokens.device) < lengths.unsqueeze(-1)  # [B, K, T]
    positions = is_token.flatten().nonzero().squeeze(1)

    def token_log_probs(chunk: Tensor) -> Tensor:
        log_probs = distribution(chunk)                                              # [n, C]
        allowed = forbid(log_probs, None, blocked[chunk])
        drawn = tokens.flatten()[chunk].unsqueeze(1)                                 # [n, 1]
        # logits are rounded differently here than in sampling, so that a token may cross the limit of top-k or top-p
        return truncate(allowed, options, keep=drawn).gather(-1, drawn).squeeze(1)

    log_probs = torch.cat([checkpoint(token_log_probs, part, use_reentrant=False) for part in positions.split(CHUNK)])
    return log_probs.new_zeros(tokens.numel()).index_copy(0, positions, log_probs).view(tokens.shape)


def _blocked_tokens(tokens: Tensor, stop: int, options: DecodingOptions, forbidden: tuple[int, ...]) -> Tensor:
    """Return up to F tokens that are forbidden at each position of samples [B, K, T]: [B, K, T, F], padded with -1."""
    never = tokens.new_tensor(forbidden)
    steps = [forbidden_next(tokens[..., :t], stop, options, never) for t in range(tokens.shape[-1])]
    width = max(ids.shape[-1] for ids in steps)  # F, the most tokens of a step
    return torch.stack([pad(ids, (0, width - ids.shape[-1]), value=-1) for ids in steps], 2)
