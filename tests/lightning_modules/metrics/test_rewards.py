import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_modules.metrics import rewards
from lightning_modules.metrics.novelty import Extraction, extraction, fragments, novelty, repetition
from lightning_modules.metrics.rewards import Mixture, Novelty, Repetition, RewardInputs, RougeReward
from lightning_modules.metrics.rouge import rouge_scores

WORDS = ["storms", "storm", "damaged", "damage", "the", "old", "harbour", ",", "."]


def made_up(rng: random.Random, most: int) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randrange(most)))


@pytest.fixture(scope="module")
def written() -> RewardInputs:
    rng = random.Random(0)
    rows = [(f"doc-{i // 4}", made_up(rng, 12)) for i in range(80)]
    references = [[made_up(random.Random(f"{i // 4}-{n}"), 9) for n in range(i // 4 % 3)] for i in range(80)]
    sources = [made_up(random.Random(i // 4), 30) for i in range(80)]
    ids, texts = zip(*rows)
    return RewardInputs(ids, texts, references, sources)


@pytest.mark.parametrize("variant", ["rougeL", "rouge1", "rouge2"])
@pytest.mark.parametrize("stem", [True, False])
def test_rouge_of_the_best_reference(written, variant, stem):
    expected = []
    for text, references in zip(written.texts, written.references):
        worded = [[reference] for reference in references if any(map(str.isalnum, reference))]
        expected.append(rouge_scores([text], worded, (variant,), stem)[variant].fmeasure if worded else 0.0)
    found = RougeReward(variant, stem)(written)
    assert found == pytest.approx(expected, abs=1e-12)
    assert 0 in found and max(found) > 0.2


def test_default_is_rouge_l_and_wrong_arguments_are_refused():
    assert RougeReward()(RewardInputs(["a"], ["the storms damaged"], [["the storm", ". , ."]])) == [pytest.approx(0.8)]
    for kind, arguments, message in [
        (RougeReward, {"variant": "bleu"}, "unknown"),
        (RougeReward, {"variant": "rougeLsum"}, "rougeLsum needs sentences"),
        (Mixture, {"rewards": [RougeReward()], "weights": [1.0, 2.0]}, "a weight for each reward"),
        (Repetition, {"order": 0}, "at least 1, got 0"),
        (rewards.LengthTarget, {"words": 0, "tolerance": 0}, "at least 1 word.*0, 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            kind(**arguments)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_repetition_and_novelty_equal_a_plain_loop(written, order):
    def grams(text):
        words = text.replace(",", "").replace(".", "").split()
        return [tuple(words[i : i + order]) for i in range(len(words) - order + 1)]

    values = zip(Repetition(order)(written), Novelty(order)(written), strict=True)
    for text, source, (repeated, novel) in zip(written.texts, written.sources, values, strict=True):
        found, there = grams(text), grams(source)
        again = sum(gram in found[:i] for i, gram in enumerate(found))
        assert repeated == pytest.approx(again / len(found) if found else 0)
        assert novel == pytest.approx(sum(gram not in there for gram in found) / len(found) if found else 0)


def test_a_mixture_is_the_weighted_sum(written):
    parts = [RougeReward(), Repetition(2), Novelty(1)]
    columns = [part(written) for part in parts]
    found = Mixture(parts, [1.0, -0.5, 0.25])(written)
    assert found == pytest.approx([a - 0.5 * b + 0.25 * c for a, b, c in zip(*columns)])
    assert Mixture(parts)(written) == pytest.approx([sum(row) for row in zip(*columns)])
    assert Mixture(parts).reads_source and not Mixture(parts[:2]).reads_source


def test_a_length_target_has_a_tolerance_and_entities_are_of_the_source_or_the_summary():
    inputs = RewardInputs(list("abcdefg"), [" ".join(["w"] * n) for n in (0, 4, 8, 9, 10, 13, 30)], [[]] * 7)
    assert rewards.LengthTarget(10, 1)(inputs) == pytest.approx([0.1, 0.5, 0.9, 1, 1, 0.8, 0])
    assert rewards.LengthTarget(10)(inputs) == pytest.approx([0, 0.4, 0.8, 0.9, 1, 0.7, 0])
    assert rewards.LengthTarget(3)(RewardInputs(["zh"], ["今天好"], [[]])) == [1]  # without spaces, by characters
    # entities are Whitby, 1.5 and Kay; The and Storm begin sentences
    source = "The harbour of Whitby lost 1.5 metres. Storm Kay hit it"
    texts = ["whitby lost 1.5 metres", "In Whitby, Kay hit Leeds in 1999", "nothing", ""]
    inputs = RewardInputs(list("abcd"), texts, [[]] * 4, [source] * 4)
    covered = rewards.EntityCoverage()
    assert covered(inputs) == pytest.approx([2 / 3, 2 / 3, 0, 0])
    assert rewards.EntityCoverage("summary")(inputs) == pytest.approx([1, 2 / 4, 1, 1])
    assert covered(RewardInputs(["a"], ["x"], [[]], ["no names here"])) == [0]
    # the characters beside a number or name are no part of it; entities are 2019, 3.5 and Kay
    assert covered(RewardInputs(["zh"], ["2019年Kay有5个"], [[]], ["他与Kay在2019年买了3.5升水。"])) == [2 / 3]


LETTERS = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12)


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


@given(LETTERS, LETTERS)
@settings(max_examples=300)
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
