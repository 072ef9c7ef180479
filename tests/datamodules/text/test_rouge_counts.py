from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.text.rouge_counts import clipped, lcs_length, ngram_ends, position_masks, positions, union_lcs

TOKENS = st.lists(st.integers(0, 4), max_size=14)
TEXT = st.lists(TOKENS, max_size=4)


def table(one: list[int], other: list[int]) -> list[list[int]]:
    """The dynamic programme as the textbook has it."""
    lengths = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, left in enumerate(one):
        for j, right in enumerate(other):
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if left == right else max(lengths[i][j + 1], lengths[i + 1][j])
    return lengths


def marked(reference: list[int], prediction: list[int]) -> set[int]:
    """Positions of the reference on the way back from the end, with ROUGE's choice among equals."""
    lengths, (i, j), found = table(reference, prediction), (len(reference), len(prediction)), set()
    while i and j:
        if reference[i - 1] == prediction[j - 1]:
            i, j = i - 1, j - 1
            found.add(i)
        elif lengths[i][j - 1] > lengths[i - 1][j]:
            j -= 1
        else:
            i -= 1
    return found


@given(TOKENS, TOKENS)
@settings(deadline=None)
def test_length_equals_the_table(one, other):
    assert lcs_length(one, *position_masks(other)) == table(one, other)[-1][-1]


@given(TEXT, TEXT)
@settings(max_examples=500, deadline=None)
def test_union_equals_walking_back_through_every_table(prediction, reference):
    masks, fields, _ = positions(reference)
    union = union_lcs([[masks.get(token) for token in sentence] for sentence in prediction], fields)
    reference = [sentence for sentence in reference if sentence]
    offset = 0
    for sentence in reference:
        expected = set().union(*(marked(sentence, tokens) for tokens in prediction))
        assert {index for index in range(len(sentence)) if union >> offset + index & 1} == expected
        offset += len(sentence) + 1
    assert union >> offset == 0


@given(TOKENS, TEXT, st.integers(1, 4))
@settings(deadline=None)
def test_ngram_hits_equal_the_intersection_of_counts(prediction, reference, n):
    masks, _, ends = positions(reference)
    flat = [token for sentence in reference for token in sentence]
    ours, theirs = (
        Counter(tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1))
        for tokens in (prediction, flat)
    )
    assert clipped(ngram_ends([masks.get(token) for token in prediction], ends, n)) == (ours & theirs).total()
