import pytest
import torch

from lightning_modules.decoding.options import DecodingOptions, forbid, repeated_continuations


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam_size": 0}, "beam_size must be at least 1, got 0"),
        ({"max_length": 0, "min_length": 0}, "max_length must be at least 1"),
        ({"min_length": 120}, "min_length must be at least 0 and below max_length 120, got 120"),
        ({"alpha": -1.0}, "alpha must not be negative"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram must not be negative"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"top_k": -1}, "top_k must not be negative"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\]"),
    ],
)
def test_impossible_options_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        DecodingOptions(**arguments)


def test_penalties_are_their_formulas():
    assert DecodingOptions(length_penalty="none").penalty(7) == 1
    assert DecodingOptions(length_penalty="mean").penalty(7) == 7
    assert DecodingOptions(length_penalty="gnmt", alpha=0.5).penalty(7) == pytest.approx((12 / 6) ** 0.5)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_repeated_continuations_equal_a_plain_loop(size):
    torch.manual_seed(size)
    for length in range(9):
        tokens = torch.randint(0, 3, (2, 3, length))
        found = repeated_continuations(tokens, size)
        for row, banned in zip(tokens.flatten(0, 1).tolist(), found.flatten(0, 1).tolist()):
            grams = {tuple(row[i : i + size]) for i in range(length - size + 1)}
            expected = {w for w in range(3) if (*row[length - size + 1 :], w)[-size:] in grams and length >= size}
            assert set(banned) - {-1} == expected


@pytest.mark.parametrize("tokens", [[], [0], [-1], [0, -1], [-1, 0, 2], [3, 3, -1]])
def test_forbid_takes_the_listed_tokens_out_and_nothing_else(tokens):
    log_probs = torch.randn(2, 3, 4)
    listed = torch.tensor(tokens, dtype=torch.long).expand(2, 3, -1)
    expected = [w in tokens for w in range(4)]
    assert forbid(log_probs, None, listed).isneginf()[0, 0].tolist() == expected
    ids = torch.tensor([2, 0, 3, 1, 0]).expand(2, 3, -1)
    sparse = forbid(torch.randn(2, 3, 5), ids, listed)
    assert sparse.isneginf()[1, 2].tolist() == [w in tokens for w in (2, 0, 3, 1, 0)]
