"""Batched beam search over a step function, independent of model and vocabulary."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from lightning_modules.decoding.options import DecodingOptions, forbid, forbidden_next

State = dict[str, Tensor]


class Step(Protocol):
    """One decoder step for K hypotheses of each of B documents."""

    def __call__(
        self, tokens: Tensor, state: State, memory: State, count: int | None
    ) -> tuple[Tensor | None, Tensor, State]:
        """Score C candidates for the next token of K hypotheses of each document, given their last tokens [B, K].

        The state has tensors [B, K, ...], the memory [B, ...]. Returns the candidates' ids (None if column i is token
        i) and log-probabilities, [B, K, C] each, and the next state. Candidates include the `count` most probable
        tokens (None: all). If a token is in several columns, as copied words are, all but one of them have -inf.
        """


class Hypotheses(NamedTuple):
    """Finished hypotheses of each document, best first."""

    tokens: Tensor  # ids, the end symbol included, padded to the maximum length, [B, K, T]
    lengths: Tensor  # number of tokens, the end symbol included; 0 for a missing hypothesis, [B, K]
    scores: Tensor  # log-probability divided by the length penalty, [B, K]


def reorder(tensors: State, index: Tensor) -> State:
    """Select hypotheses in tensors [B, K, ...] by indices [B, K'] among the K of the same document: [B, K', ...]."""
    documents = torch.arange(len(index), device=index.device).unsqueeze(1)           # [B, 1]
    return {name: tensor[documents, index] for name, tensor in tensors.items()}


class _Search:
    """State of `beam_search`: up to K unfinished ("open") and K finished hypotheses of each of B documents."""

    def __init__(self, batch: int, options: DecodingOptions, padding: int, device: torch.device) -> None:
        K, T = options.beam_size, options.max_length
        self.options = options
        self.padding = padding  # id after the end of a hypothesis
        self.searched = torch.arange(batch, device=device)  # batch indices of the documents that are still searched
        self.tokens = torch.zeros(batch, K, 0, dtype=torch.long, device=device)  # of open hypotheses, [B, K, t]
        # log-probabilities of open hypotheses, [B, K]; in float32, even if the default dtype is bfloat16 or float16
        self.sums = torch.full((batch, K), float("-inf"), dtype=torch.float32, device=device)
        self.sums[:, 0] = 0  # one hypothesis at first, because the others would be copies of it
        self.finished = Hypotheses(  # of the documents still searched; a missing hypothesis has score -inf
            torch.full((batch, K, T), padding, dtype=torch.long, device=device),
            torch.zeros(batch, K, dtype=torch.long, device=device),
            torch.full_like(self.sums, float("-inf")),
        )
        self.results = self.finished  # of all documents of the batch; updated by `store`

    def advance(self, ids: Tensor | None, log_probs: Tensor, stop: int) -> tuple[Tensor, Tensor]:
        """Keep the K best continuations, and finish hypotheses that end with the symbol `stop`.

        `ids` (None if column i is token i) and `log_probs` are those of C candidates, [B, K, C], see `Step`. Returns
        the index of the hypothesis that each kept continuation extends, and its last token, [B, K] each.
        """
        B, K, C = log_probs.shape
        length = self.tokens.shape[-1] + 1
        # the 2K best continuations of a document: at most K of them end, one per hypothesis, so that K can go on
        totals = (self.sums.unsqueeze(-1) + log_probs).flatten(1)                    # [B, K C]
        best, index = totals.topk(min(2 * K, totals.shape[-1]), dim=-1)              # [B, 2K], sorted
        parent = index // C  # hypothesis that is continued
        chosen = index % C if ids is None else ids.flatten(1).gather(-1, index)  # token that continues it
        documents = torch.arange(B, device=index.device).unsqueeze(1)
        sequences = torch.cat([self.tokens[documents, parent], chosen.unsqueeze(-1)], -1)  # [B, 2K, t + 1]

        # finish those among the first K that are complete: they end with `stop`, or have the maximum length
        complete = chosen == stop                                                        # [B, 2K]
        if length == self.options.max_length:
            ends_now = (complete[:, :K] & ~best[:, :K].isneginf()).any(1)                # [B]
            has_ended = ends_now | ~self.finished.scores[:, 0].isneginf()  # -inf: none ended earlier, [B]
            # the others are complete too; with `prefer_finished`, only if no hypothesis of the document has ended
            complete |= ~(has_ended & self.options.prefer_finished).unsqueeze(1)
        complete[:, K:] = False  # an end symbol ranked below the beam does not count
        self._finish(sequences, best.masked_fill(~complete, float("-inf")) / self.options.penalty(length), length)

        # keep K that can be continued: a stable sort by `is_over` moves them to the front, best first
        is_over = (chosen == stop) | best.isneginf()
        keep = is_over.to(torch.int8).argsort(dim=-1, stable=True)[:, :K]  # [B, K]
        self.sums = best.masked_fill(chosen == stop, float("-inf")).gather(-1, keep)  # -inf if not open
        self.tokens = sequences[documents, keep]
        return parent.gather(-1, keep), chosen.gather(-1, keep)

    def _finish(self, sequences: Tensor, scores: Tensor, length: int) -> None:
        """Merge hypotheses [B, 2K, length] that end now (score [B, 2K] not -inf) into the K best finished ones."""
        K, T = self.options.beam_size, self.options.max_length
        padded = torch.nn.functional.pad(sequences, (0, T - length), value=self.padding)
        padded = padded.masked_fill(scores.isneginf().unsqueeze(-1), self.padding)
        lengths = torch.full_like(scores, length, dtype=torch.long).masked_fill(scores.isneginf(), 0)
        old_and_new = zip(Hypotheses._fields, self.finished, (padded, lengths, scores))
        merged = {name: torch.cat([old, new], 1) for name, old, new in old_and_new}  # [B, 3K, ...]
        best = merged["scores"].topk(K, dim=-1).indices                              # [B, K]
        self.finished = Hypotheses(**reorder(merged, best))

    def close_final(self) -> Tensor:
        """Return whether each document's finished hypotheses are final, [B]; set `sums` to -inf where they are."""
        options = self.options
        # [B] each; `worst_finished` is -inf if fewer than K are finished, `best_open` if none is open
        worst_finished, best_open = self.finished.scores[:, -1], self.sums[:, 0]
        if options.early_stopping:
            final = ~worst_finished.isneginf() | best_open.isneginf()
        else:
            length = self.tokens.shape[-1]
            # log-probabilities only fall: later scores are at most this sum divided by the largest penalty to come
            final = best_open / max(options.penalty(length + 1), options.penalty(options.max_length)) <= worst_finished
        self.sums = self.sums.masked_fill(final.unsqueeze(1), float("-inf"))
        return final

    def narrow(self, active: Tensor) -> None:
        """Store the results so far, and continue only with the documents at the indices `active`."""
        self.store()
        self.searched = self.searched[active]
        self.tokens = self.tokens[active]
        self.sums = self.sums[active]
        self.finished = Hypotheses(*(tensor[active] for tensor in self.finished))

    def store(self) -> Hypotheses:
        """Copy the finished hypotheses of the documents still searched to the results, and return the results."""
        pairs = zip(self.results, self.finished)  # tokens, lengths and scores
        self.results = Hypotheses(*(stored.to(new.dtype).index_copy(0, self.searched, new) for stored, new in pairs))
        return self.results


@torch.no_grad()
def beam_search(
    step: Step,
    state: State,
    memory: State,
    start: Tensor,
    stop: int,
    options: DecodingOptions,
    forbidden: tuple[int, ...] = (),
    padding: int = 0,
) -> Hypotheses:
    """Search the best continuations of a start symbol for a batch of documents.

    Each step considers the 2K best continuations of a document's K hypotheses: those among the first K that end with
    the end symbol are finished, and the best K of the others are continued. At `max_length` all of the first K are
    finished; with `prefer_finished`, those without an end symbol only if no hypothesis of the document has ended.

    Args:
        step: scores continuations, see `Step`.
        state: tensors of each document before the first step, [B, ...]; its K hypotheses start from the same state.
        memory: tensors of each document that all steps read, [B, ...].
        start: first decoder input of each document, [B].
        stop: id of the end symbol.
        options: beam size, lengths, penalties.
        forbidden: ids of tokens that are never generated, such as padding.
        padding: id that pads shorter hypotheses.

    Raises:
        ValueError: if every continuation of a document is forbidden.
    """
    K = options.beam_size
    search = _Search(len(start), options, padding, start.device)
    state = {name: tensor.unsqueeze(1).expand(-1, K, *tensor.shape[1:]) for name, tensor in state.items()}
    tokens = start.unsqueeze(1).expand(-1, K)
    never_generated = start.new_tensor(forbidden)
    for _ in range(options.max_length):
        blocked = forbidden_next(search.tokens, stop, options, never_generated)      # F tokens each, [B, K, F]
        # `forbid` removes at most F candidates of a hypothesis, so that 2K remain
        ids, log_probs, state = step(tokens, state, memory, 2 * K + blocked.shape[-1])
        parent, tokens = search.advance(ids, forbid(log_probs, ids, blocked), stop)
        state = reorder(state, parent)
        # continue with the documents whose search is not over
        active = (~search.close_final()).nonzero().squeeze(1)
        if len(active) == 0:
            break
        if len(active) <= 0.75 * len(search.searched):  # narrowing copies the memory, so only if it saves enough
            search.narrow(active)
            tokens = tokens[active]
            state = {name: tensor[active] for name, tensor in state.items()}
            memory = {name: tensor[active] for name, tensor in memory.items()}
    hypotheses = search.store()
    if hypotheses.scores[:, 0].isneginf().any():
        raise ValueError("beam search found no hypothesis: every token was forbidden; loosen the decoding options")
    return hypotheses
