"""Gap sentences against a brute force that calls `rouge-score` for every candidate."""

import random

import pytest
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer

from datamodules.text.gap_selection import select

SCORER = RougeScorer(["rouge1"], use_stemmer=True)
WORDS = ["otter", "otters", "Naïve", "guards", "re-guarded", "mill's", "mills", "2", "the", "the", "the", "of", "a"]


def made_up(seed: int) -> list[str]:
    """Sentences with repeated words, inflected ones, none at all, and twins."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))).capitalize() + "." for _ in range(rng.randint(2, 8))]
    texts.insert(rng.randrange(len(texts)), "...")
    return [*texts, rng.choice(texts)]


def rouge(chosen: list[str], rest: list[str], unique: bool) -> float:
    predicted, reference = " ".join(chosen), " ".join(rest)
    if not unique:
        return SCORER.score(reference, predicted)["rouge1"].fmeasure
    words = DefaultTokenizer(use_stemmer=True)
    sets = [" ".join(sorted(set(words.tokenize(text)))) for text in (reference, predicted)]
    # stems are final here: they are not stemmed again
    return RougeScorer(["rouge1"], tokenizer=type("Plain", (), {"tokenize": staticmethod(str.split)})()).score(*sets)[
        "rouge1"
    ].fmeasure


def brute(sentences: list[str], number: int, greedy: bool, unique: bool) -> list[int]:
    def value(candidates: list[int]) -> float:
        rest = [text for i, text in enumerate(sentences) if i not in candidates]
        # `rouge-score` rounds equal scores differently in their last bit
        return round(rouge([sentences[i] for i in candidates], rest, unique), 12)

    if not greedy:
        scores = [value([i]) for i in range(len(sentences))]
        return sorted(sorted(range(len(sentences)), key=lambda i: -scores[i])[:number])
    chosen: list[int] = []
    for _ in range(number):
        left = [i for i in range(len(sentences)) if i not in chosen]
        chosen.append(max(left, key=lambda i: value([*chosen, i])))  # the first of equal ones
    return sorted(chosen)


@pytest.mark.parametrize("selection", ["ind-orig", "ind-uniq", "seq-orig", "seq-uniq"])
def test_equals_a_brute_force_with_rouge_score(selection):
    kind, counting = selection.split("-")
    different = 0
    for seed in range(15):
        sentences = made_up(seed)
        for number in {1, 2, len(sentences) // 2, len(sentences) - 1, len(sentences)}:
            expected = brute(sentences, number, kind == "seq", counting == "uniq")
            assert select(sentences, number, selection) == expected, (seed, number, sentences)
            different += expected != list(range(number))
    assert different > 4


def test_lead_and_random():
    sentences = made_up(1)
    assert select(sentences, 2, "lead") == [0, 1]
    drawn = [select(sentences, 3, "random", rng=random.Random(seed)) for seed in range(20)]
    assert all(len(set(chosen)) == 3 and chosen == sorted(chosen) for chosen in drawn)
    assert len({tuple(chosen) for chosen in drawn}) > 5
    assert select(sentences, 3, "random") == select(sentences, 3, "random")


def test_noise_is_another_factor_for_every_sentence():
    twins = ["the otter guards the mill", "a heron"] * 6  # the long ones share a score
    found = {tuple(select(twins, 3, "ind-orig", 0.2, random.Random(seed))) for seed in range(20)}
    assert len(found) > 10 and all(i % 2 == 0 for chosen in found for i in chosen)
    assert select(twins, 3, "ind-orig") == [0, 2, 4]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="no gap-sentence selection 'best'; choose one of ind-orig"):
        select(["one"], 1, "best")
    with pytest.raises(ValueError, match="at least 0"):
        select(["one"], -1)
    with pytest.raises(ValueError, match=r"got 1, 1\.5"):
        select(["one"], 1, noise=1.5)
