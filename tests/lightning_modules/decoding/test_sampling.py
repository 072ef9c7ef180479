import math
from collections import Counter
from itertools import pairwise, product

import pytest
import torch

from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.decoding.sampling import rescore, sample, truncate

STOP, START, V = 0, 1, 4
TABLE = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.2, 0.2], [0.3, 0.3, 0.3, 0.1]]).log()


def step(tokens, state, memory, count):
    assert count is None
    return None, TABLE[tokens], state


def draw(options, documents=1, forbidden=()):
    torch.manual_seed(0)
    return sample(step, {}, {}, torch.full((documents,), START), STOP, options, forbidden, padding=-1)


def test_frequencies_are_the_model_s_probabilities():
    options = DecodingOptions(beam_size=500, min_length=0, max_length=2, sample=True, length_penalty="none")
    counts = Counter(tuple(row) for row in draw(options, documents=40).tokens.flatten(0, 1).tolist())
    total, probability = counts.total(), TABLE.exp().tolist()
    for first, second in [*product(range(1, V), range(V)), (STOP, -1)]:
        p = probability[START][first] * (probability[first][second] if first != STOP else 1)
        standard_error = math.sqrt(p * (1 - p) / total)  # of 20,000 draws
        assert counts[(first, second)] / total == pytest.approx(p, abs=5 * standard_error)


def test_scores_are_log_probabilities_in_float32_whatever_the_default_dtype_is(default_dtype):
    options = DecodingOptions(beam_size=20, min_length=0, max_length=6, sample=True, alpha=0.3)
    in_half = draw(options)
    torch.set_default_dtype(torch.float32)
    result = draw(options)
    assert torch.equal(in_half.tokens, result.tokens) and torch.equal(in_half.scores, result.scores)
    for words, length, score in zip(result.tokens[0].tolist(), result.lengths[0].tolist(), result.scores[0].tolist()):
        total = sum(TABLE[a, b].item() for a, b in zip([START, *words[: length - 1]], words[:length]))
        assert score == pytest.approx(total / length**0.3, abs=1e-5)
        assert STOP not in words[: length - 1] and all(word == -1 for word in words[length:])


def test_the_first_hypothesis_may_be_the_greedy_one():
    options = DecodingOptions(beam_size=40, min_length=0, max_length=5, sample=True, greedy_first=True)
    result = draw(options, documents=3)
    likeliest = [3]
    while len(likeliest) < 5 and likeliest[-1] != STOP:
        likeliest.append(int(TABLE[likeliest[-1]].argmax()))
    for rows, lengths in zip(result.tokens.tolist(), result.lengths.tolist()):
        assert rows[0][: lengths[0]] == likeliest and lengths[0] == len(likeliest)
        assert len({tuple(row) for row in rows[1:]}) > 10  # the others are drawn


def test_documents_that_are_done_are_left_out_of_the_steps():
    ends, sizes = torch.tensor([0, 1, 1, 6, 3, 0]), []

    def until(tokens, state, memory, count):
        sizes.append(len(tokens))
        assert (state["document"] == memory["document"].unsqueeze(1)).all()
        over = state["time"] >= memory["ends"].unsqueeze(1)  # [b, K]
        word = memory["document"].unsqueeze(1) + 1
        log_probs = torch.full((*tokens.shape, 8), float("-inf"))
        log_probs.scatter_(-1, torch.where(over, STOP, word).unsqueeze(-1), 0.0)
        return None, log_probs, state | {"time": state["time"] + 1}

    options = DecodingOptions(beam_size=2, min_length=0, max_length=5, sample=True)
    state = {"time": torch.zeros(6, dtype=torch.long), "document": torch.arange(6)}
    memory = {"ends": ends, "document": torch.arange(6)}
    result = sample(until, state, memory, torch.full((6,), START), STOP, options, padding=-1)
    for document, end in enumerate(ends.tolist()):
        expected = ([document + 1] * min(end, 5) + [STOP])[:5]
        assert result.tokens[document].tolist() == [expected + [-1] * (5 - len(expected))] * 2
        assert result.lengths[document].tolist() == [len(expected)] * 2
    assert sizes == [6, 4, 2, 2, 1]


def test_constraints_hold_in_every_draw_and_what_leaves_nothing_to_draw_is_an_error():
    options = DecodingOptions(beam_size=200, min_length=3, max_length=5, no_repeat_ngram=2, sample=True)
    for words in draw(options, forbidden=(2,)).tokens[0].tolist():
        assert 2 not in words and STOP not in words[:3]
        drawn = [word for word in words if word >= 0]
        assert len(set(pairwise(drawn))) == len(drawn) - 1
    options = DecodingOptions(beam_size=50, min_length=0, max_length=4, no_repeat_ngram=1, sample=True)
    assert draw(options).lengths.max() <= V  # one word and the end symbol: whoever has drawn both has ended
    with pytest.raises(ValueError, match="loosen the decoding options"):
        draw(options, forbidden=(STOP, 3))


def test_temperature_top_k_and_top_p_shape_the_distribution_and_drawn_tokens_are_rescored_with_the_allowed_ones():
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    for options, expected in [
        ({"temperature": 0.5}, probabilities**2 / (probabilities**2).sum()),
        ({"top_k": 2}, torch.tensor([0.625, 0.375, 0, 0])),
        ({"top_p": 0.75}, torch.tensor([0.625, 0.375, 0, 0])),  # of 0.5 + 0.3
        ({"top_p": 0.01}, torch.tensor([1.0, 0, 0, 0])),
    ]:
        torch.testing.assert_close(truncate(probabilities.log(), DecodingOptions(**options)).exp(), expected)
    # a drawn token beyond the limit, within which two are: the third one's share is that among three, STOP's among two
    probabilities, tokens = torch.tensor([0.4, 0.3, 0.2, 0.1]), torch.tensor([[[3, STOP]]])
    for truncation in ({"top_k": 2}, {"top_p": 0.6}):
        options = DecodingOptions(min_length=0, max_length=2, sample=True, **truncation)
        arguments = (lambda rows: probabilities.log().expand(len(rows), -1), tokens, torch.tensor([[2]]), STOP, options)
        torch.testing.assert_close(rescore(*arguments).exp(), torch.tensor([[[0.1 / 0.8, 0.4 / 0.7]]]))
        assert rescore(*arguments, (3,))[0, 0, 0] == float("-inf")
