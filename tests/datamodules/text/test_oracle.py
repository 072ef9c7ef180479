from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from datamodules.text.oracle import greedy_oracle, sentence_scores, text_scores

WORDS = ["storm", "storms", "coast", "night", "town", "rescue", "1990", "the"]
TEXT = st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), max_size=6)
REFERENCES = st.lists(TEXT.filter(any), min_size=1, max_size=2)


def greedily(score: Callable[[list[int]], float], count: int, k: int | None) -> list[int]:
    """Add the item that raises the score most, the first of equals, until none raises it or there are k."""
    chosen, best = [], 0.0
    while k is None or len(chosen) < k:
        scores = {i: score([*chosen, i]) for i in range(count) if i not in chosen}
        if not scores or max(scores.values()) <= best + 1e-12:
            break
        best = max(scores.values())
        chosen.append(next(i for i, value in scores.items() if value >= best - 1e-12))
    return sorted(chosen)


def brute_force(sentences: list[str], references: list[list[str]], k: int | None) -> list[int]:
    """The definition: `rouge-score` on every set that is one sentence larger."""
    scorer = RougeScorer(["rouge1", "rouge2"], use_stemmer=True)

    def score(chosen) -> float:
        summary = " ".join(sentences[i] for i in sorted(chosen))
        return max(
            sum(found.fmeasure for found in scorer.score(" ".join(reference), summary).values())
            for reference in references
        )

    return greedily(score, len(sentences), k)


@given(TEXT, REFERENCES, st.none() | st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_equals_brute_force_with_rouge_score(sentences, references, k):
    assert greedy_oracle(sentences, references, k) == brute_force(sentences, references, k)


@given(TEXT, REFERENCES)
@settings(max_examples=50, deadline=None)
def test_scores_of_sentences_and_texts_equal_rouge_score(sentences, references):
    for variants in (("rouge1", "rouge2"), ("rouge1", "rouge2", "rougeL")):
        scorer = RougeScorer(list(variants), use_stemmer=True)

        def mean(text: str, scorer=scorer, variants=variants) -> float:
            means = [scorer.score(" ".join(reference), text) for reference in references]
            return max(sum(found.fmeasure for found in one.values()) / len(variants) for one in means)

        singles = text_scores([[text] for text in sentences], references, variants)
        assert singles == pytest.approx([mean(text) for text in sentences])
        assert variants[-1] == "rougeL" or sentence_scores(sentences, references) == singles
        assert text_scores([sentences], references, variants) == pytest.approx([mean(" ".join(sentences))])


def set_oracle(sentences: list[str], references: list[list[str]], k: int | None) -> list[int]:
    """Greedy selection over sets of n-grams with plain precision and recall, one set of sentences at a time."""

    def grams(words: list[str]) -> list[set]:
        return [{(word,) for word in words}, {tuple(words[i : i + 2]) for i in range(len(words) - 1)}]

    def f1(predicted: set, reference: set) -> float:
        hits = len(predicted & reference)
        precision, recall = hits / max(len(predicted), 1), hits / max(len(reference), 1)
        return 2 * precision * recall / (precision + recall) if hits else 0.0

    def score(chosen: list[int]) -> float:
        unions = [set().union(*(grams(sentences[i].split())[n] for i in chosen)) for n in (0, 1)]
        wholes = [grams(" ".join(reference).split()) for reference in references]
        return max(sum(f1(union, gold) for union, gold in zip(unions, whole)) for whole in wholes)

    return greedily(score, len(sentences), k)


@given(TEXT, REFERENCES, st.none() | st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_the_oracle_over_sets_is_that_of_a_plain_loop(sentences, references, k):
    assert greedy_oracle(sentences, references, k, stem=False, counts="set") == set_oracle(sentences, references, k)


def test_ties_go_to_the_first_sentence():
    # Beside the second sentence, the first one scores 2/3 + 2/15, and the third one 4/5 + 0.
    sentences, reference = ["g a f g d", "h h b d d", "g", "e e"], ["b c e g d h e d"]
    assert greedy_oracle(sentences, [reference], 2, stem=False, counts="set") == [0, 1]
