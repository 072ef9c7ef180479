from dataclasses import replace
from itertools import product

import pytest
import torch
from tiny_models import random_summarizer

from lightning_modules.decoding.beam_search import beam_search
from lightning_modules.decoding.options import DecodingOptions

V, STOP, START = 4, 0, 1


def tables(documents, seed=0):
    """log P(next | last word, document): [B, V, V]."""
    torch.manual_seed(seed)
    return torch.randn(documents, V, V).mul(1.5).log_softmax(-1)


def step(tokens, state, memory, count):
    """A Markov chain a document; the state counts steps, so that its reordering is exercised."""
    table = memory["table"]  # [B, V, V]
    rows = torch.arange(len(table)).unsqueeze(1)
    log_probs = table[rows, tokens] + 0.1 * state["steps"].unsqueeze(-1) * memory["drift"].unsqueeze(1)
    return None, log_probs.log_softmax(-1), {"steps": state["steps"] + 1}


def sparse_step(tokens, state, memory, count):
    _, log_probs, state = step(tokens, state, memory, count)
    best, ids = log_probs.topk(min(count, V), dim=-1)
    twice = torch.full_like(best[..., :1], float("-inf"))
    return torch.cat([ids[..., :1], ids], -1), torch.cat([twice, best], -1), state


def memory_of(table):
    torch.manual_seed(7)
    return {"table": table, "drift": torch.randn(len(table), V)}


def search(options, memory, which=step, forbidden=()):
    documents = len(memory["table"])
    state = {"steps": torch.zeros(documents, dtype=torch.float32)}
    return beam_search(which, state, memory, torch.full((documents,), START), STOP, options, forbidden, padding=-1)


def enumerate_all(memory, row, options, forbidden):
    """Every sequence that obeys the options, with its score, best first: no search at all."""
    table, drift = memory["table"][row], memory["drift"][row]
    found = []
    for length in range(1, options.max_length + 1):
        for words in product(range(V), repeat=length):
            ended = words[-1] == STOP
            if STOP in words[:-1] or not (ended or length == options.max_length):
                continue
            if set(words) & set(forbidden) or (ended and length - 1 < options.min_length):
                continue
            grams = list(zip(*(words[start:] for start in range(options.no_repeat_ngram))))
            if len(set(grams)) < len(grams):
                continue
            total, last = 0.0, START
            for position, word in enumerate(words):
                total += (table[last] + 0.1 * position * drift).log_softmax(-1)[word].item()
                last = word
            found.append((total / options.penalty(length), list(words)))
    if options.prefer_finished:  # sequences without an end symbol are left out where any other sequence exists
        found = [item for item in found if item[1][-1] == STOP] or found
    return sorted(found, reverse=True)


CASES = [
    {"length_penalty": "mean"}, {"length_penalty": "mean", "alpha": 2.0}, {"length_penalty": "gnmt", "alpha": 0.8},
    {"length_penalty": "none"}, {"length_penalty": "none", "min_length": 2, "no_repeat_ngram": 2},
    {"length_penalty": "mean", "min_length": 3}, {"length_penalty": "mean", "no_repeat_ngram": 1},
    {"length_penalty": "none", "no_repeat_ngram": 3}, {"length_penalty": "mean", "prefer_finished": True},
    {"length_penalty": "none", "min_length": 3, "prefer_finished": True},
]  # fmt: skip


@pytest.mark.parametrize("which", [step, sparse_step])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("forbidden", [(), (2,)])
def test_a_beam_that_holds_everything_finds_what_enumeration_finds(case, forbidden, which):
    options = DecodingOptions(beam_size=V**4, max_length=4, early_stopping=False, **{"min_length": 0} | case)
    memory = memory_of(tables(3))
    result = search(options, memory, which, forbidden)
    for row in range(3):
        expected = enumerate_all(memory, row, options, forbidden)
        for k, (score, words) in enumerate(expected[:5]):
            assert result.tokens[row, k, : result.lengths[row, k]].tolist() == words
            assert result.scores[row, k].item() == pytest.approx(score, abs=1e-5)
            assert result.tokens[row, k, result.lengths[row, k] :].eq(-1).all()
        reachable = sum(not score.isneginf() for score in result.scores[row])
        assert reachable == len(expected), "every sequence once, and no other"
        assert result.lengths[row, reachable:].eq(0).all() and result.tokens[row, reachable:].eq(-1).all()


def see_et_al(memory, row, options):
    """Beam search of See et al. 2017 for one document: hypotheses that were cut off count only if none ended."""
    table, drift = memory["table"][row], memory["drift"][row]
    open_, finished = [(0.0, [START])], []
    for t in range(options.max_length):
        extended = []
        for total, words in open_:
            log_probs = (table[words[-1]] + 0.1 * t * drift).log_softmax(-1).tolist()
            extended += [(total + log_probs[word], [*words, word]) for word in range(V)]
        ranked = sorted(extended, reverse=True)[: 2 * options.beam_size]
        ended = [item for item in ranked[: options.beam_size] if item[1][-1] == STOP]
        finished += ended if t >= options.min_length else []
        open_ = [item for item in ranked if item[1][-1] != STOP][: options.beam_size]
        if len(finished) >= options.beam_size:
            break
    return max(finished or open_, key=lambda item: item[0] / (len(item[1]) - 1))[1][1:]


def test_hypotheses_that_were_cut_off_count_only_where_none_ended():
    memory = memory_of(tables(12, seed=2))
    memory["table"][:4, :, STOP] = -30.0  # in these documents no hypothesis ends
    memory["table"] = memory["table"].log_softmax(-1)
    competing = DecodingOptions(beam_size=2, min_length=0, max_length=3)
    options = replace(competing, prefer_finished=True)
    best, before = search(options, memory), search(competing, memory)
    for row, length in enumerate(best.lengths[:, 0].tolist()):
        assert best.tokens[row, 0, :length].tolist() == see_et_al(memory, row, options)
    has_end = (best.tokens == STOP).any(-1)  # [B, K]
    ended = has_end.any(1)
    assert ended[4:].any() and not ended[:4].any()
    assert torch.equal(has_end[ended], best.lengths[ended] > 0), "where one ended, there are no others"
    assert (before.tokens[ended, 0] != STOP).all(-1).any(), "without the option one that was cut off had the best score"
    assert torch.equal(best.tokens[~ended], before.tokens[~ended]) and (best.lengths[~ended] == 3).all()


@pytest.mark.parametrize("beam_size, early_stopping", product([1, 2, 3], [True, False]))
@pytest.mark.parametrize("scored", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_documents_do_not_see_each_other_whatever_the_default_dtype(beam_size, early_stopping, scored, default_dtype):
    def rounded(tokens, state, memory, count):
        ids, log_probs, state = step(tokens, state, memory, count)
        return ids, log_probs.to(scored), state

    options = DecodingOptions(beam_size=beam_size, min_length=0, max_length=12, early_stopping=early_stopping)
    torch.set_default_dtype(torch.float32)
    memory = memory_of(tables(8, seed=3))
    one_by_one = ({name: tensor[row : row + 1] for name, tensor in memory.items()} for row in range(8))
    alone = [search(options, document, rounded) for document in one_by_one]
    torch.set_default_dtype(default_dtype)
    together = search(options, memory, rounded)
    assert len(set(together.lengths[:, 0].tolist())) > 1, "documents end at different steps, so the batch is narrowed"
    assert together.scores.dtype == torch.promote_types(scored, torch.float32)
    for tokens, scores, single in zip(together.tokens, together.scores, alone):
        assert torch.equal(tokens, single.tokens[0])
        torch.testing.assert_close(scores, single.scores[0])


def test_penalties_are_their_formulas_and_impossible_options_are_named():
    penalties = [DecodingOptions(length_penalty=name, alpha=0.5).penalty(7) for name in ("none", "mean", "gnmt")]
    assert penalties == [1, pytest.approx(7**0.5), pytest.approx((12 / 6) ** 0.5)]
    with pytest.raises(ValueError, match="loosen the decoding options"):
        search(DecodingOptions(2, min_length=0, max_length=3), memory_of(tables(3)), forbidden=(0, 1, 2, 3))
    for arguments, message in [
        ({"beam_size": 0}, "beam_size must be at least 1, got 0"),
        ({"min_length": 120}, "min_length must be below max_length 120, got 120"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\]"),
        ({"greedy_first": True}, "greedy_first is about sampling"),
    ]:
        with pytest.raises(ValueError, match=message):
            DecodingOptions(**arguments)


# Beside `transformers`, on a small random BART; there, `early_stopping="never"` ends when no open hypothesis can become
# better, as ours without (`False` is a heuristic that may end too early), and `length_penalty` is `alpha`

PADDING, END = 0, 1  # the decoder starts with the end symbol


def ours(model, source, options):
    encoded = model.get_encoder()(source).last_hidden_state

    def step(tokens, state, memory, count):
        prefix = torch.cat([state["prefix"], tokens.unsqueeze(-1)], -1)  # [B, K, t]
        B, K, _ = prefix.shape
        hidden = memory["encoded"].repeat_interleave(K, 0)
        logits = model(decoder_input_ids=prefix.flatten(0, 1), encoder_outputs=(hidden,)).logits[:, -1]
        return None, logits.log_softmax(-1).view(B, K, -1), {"prefix": prefix}

    empty = torch.zeros(len(source), 0, dtype=torch.long)
    start = torch.full((len(source),), END)
    return beam_search(step, {"prefix": empty}, {"encoded": encoded}, start, END, options, padding=PADDING)


# greedy search has neither penalty nor early stopping there
@pytest.mark.parametrize("beam_size, alpha, early", [(1, 1.0, True), *product([2, 4], [0.0, 1.0, 2.0], [True, False])])
@pytest.mark.parametrize("ngram, min_length", [(0, 0), (2, 0), (0, 4)])
def test_equals_transformers(beam_size, alpha, early, ngram, min_length):
    model = random_summarizer("bart", 24).eval()
    model.generation_config.forced_eos_token_id = None
    source = torch.randint(4, 24, (6, 9), generator=torch.Generator().manual_seed(5))
    sizes = {"beam_size": beam_size, "min_length": min_length, "max_length": 12}
    result = ours(model, source, DecodingOptions(**sizes, alpha=alpha, no_repeat_ngram=ngram, early_stopping=early))
    arguments = dict(num_beams=beam_size, max_new_tokens=12, min_new_tokens=min_length, no_repeat_ngram_size=ngram)
    if beam_size > 1:
        arguments |= dict(length_penalty=alpha, num_return_sequences=beam_size)
        arguments["early_stopping"] = early or "never"
    arguments |= dict(do_sample=False, output_scores=True, return_dict_in_generate=True, use_cache=False)
    theirs = model.generate(source, **arguments)
    sequences = theirs.sequences[:, 1:].view(len(source), beam_size, -1)  # without the start symbol
    for tokens, expected, length in zip(result.tokens.flatten(0, 1), sequences.flatten(0, 1), result.lengths.flatten()):
        assert tokens[:length].equal(expected[:length]) and expected[length:].eq(PADDING).all()
    if beam_size > 1:
        torch.testing.assert_close(result.scores.flatten(), theirs.sequences_scores, atol=1e-4, rtol=1e-4)
