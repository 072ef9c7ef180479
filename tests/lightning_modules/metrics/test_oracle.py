import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from lightning_modules.metrics.oracle import greedy_oracle, sentence_scores, text_scores

WORDS = ["storm", "storms", "coast", "night", "town", "rescue", "1990", "the"]
TEXT = st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), max_size=6)
REFERENCES = st.lists(TEXT.filter(any), min_size=1, max_size=2)


def brute_force(sentences: list[str], references: list[list[str]], k: int | None) -> list[int]:
    """The definition: `rouge-score` on every set that is one sentence larger."""
    scorer = RougeScorer(["rouge1", "rouge2"], use_stemmer=True)

    def score(chosen) -> float:
        summary = " ".join(sentences[i] for i in sorted(chosen))
        return max(
            sum(found.fmeasure for found in scorer.score(" ".join(reference), summary).values())
            for reference in references
        )

    chosen, best = [], 0.0
    while k is None or len(chosen) < k:
        gains = {i: score([*chosen, i]) for i in range(len(sentences)) if i not in chosen}
        if not gains or max(gains.values()) <= best + 1e-12:
            break
        best = max(gains.values())
        chosen.append(next(i for i, gain in gains.items() if gain >= best - 1e-12))
    return sorted(chosen)


@given(TEXT, REFERENCES, st.none() | st.integers(1, 3))
@settings(max_examples=200, deadline=None)
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

        assert sentence_scores(sentences, references, variants) == pytest.approx([mean(text) for text in sentences])
        assert text_scores([sentences], references, variants) == pytest.approx([mean(" ".join(sentences))])


def test_edges():
    assert greedy_oracle([], [["a"]]) == []
    assert greedy_oracle(["", "..."], [["a storm"]]) == []
    assert greedy_oracle(["nothing shared"], [["a storm"]]) == []
    assert greedy_oracle(["a storm"] * 4, [["a storm"]]) == [0]  # a repetition gains nothing
    assert greedy_oracle(["the storm", "hit us"], [["storm hit"]], 1) == [0]
    assert greedy_oracle(["the storm", "hit us"], [["storm hit"]]) == [0, 1]  # the bigram over the sentence's end
    assert sentence_scores(["a storm"], []) == [0.0]
