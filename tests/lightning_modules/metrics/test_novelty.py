import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_modules.metrics.novelty import Extraction, extraction, fragments, novelty, repetition

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12)


def fragments_of_the_paper(summary: list[str], source: list[str]) -> list[tuple[int, int, int]]:
    """Figure 2 of Grusky et al. 2018, position by position."""
    found, i = [], 0
    while i < len(summary):
        longest, where, j = 0, 0, 0
        while j < len(source):
            if summary[i] != source[j]:
                j += 1
                continue
            k = 0
            while i + k < len(summary) and j + k < len(source) and summary[i + k] == source[j + k]:
                k += 1
            if k > longest:
                longest, where = k, j
            j += k
        if longest:
            found.append((i, where, longest))
        i += max(longest, 1)
    return found


@given(WORDS, WORDS)
@settings(max_examples=300, deadline=None)
def test_fragments_equal_the_papers_procedure(summary, source):
    assert fragments(summary, source) == fragments_of_the_paper(summary, source)


def test_extraction_novelty_and_repetition_by_hand():
    # Fragments "the cat sat" and "home" of five words; the source has eight.
    cut = extraction(["The cat sat, home.", "Purring"], ["Yesterday the cat sat on a mat,", "home!"])
    assert cut == pytest.approx(Extraction(4 / 5, (9 + 1) / 5, 8 / 5))
    assert extraction(["..."], ["a b"]) is None
    assert extraction(["a b"], []) == Extraction(0, 0, 0)
    # New are the word "dog", the bigrams "the dog", "dog sat" and "it sat", and the first two sentences.
    shares = novelty(["The dog sat.", "It sat", "a cat"], ["the cat sat", "it was", "A cat!"])
    assert [shares[f"novel_{n}"] for n in (1, 2, 3, 4)] == [pytest.approx(1 / 7), pytest.approx(3 / 4), 1, None]
    assert shares["novel_sentences"] == pytest.approx(2 / 3)
    # n-grams do not span sentences, and words of other scripts count
    assert novelty(["b c", "a b"], ["a b", "b c"], orders=(2,)) == {"novel_2": 0, "novel_sentences": 0}
    assert novelty(["Привет мир"], ["мир"])["novel_1"] == 0.5
    assert novelty(["今天好"], ["今天"], language="zh")["novel_1"] == pytest.approx(1 / 3)
    # repetition
    shares = repetition(["the cat the cat", "The cat.", "the cat"])
    # of the bigrams the cat, cat the, the cat, the cat, the cat, three
    assert [shares[f"repeated_{n}"] for n in (1, 2, 4, "sentences")] == pytest.approx([6 / 8, 3 / 5, 0, 1 / 3])
    assert set(repetition([" "]).values()) == {None}
    assert repetition(["so " * 5000], orders=(1,))["repeated_1"] == pytest.approx(1 - 1 / 5000)
