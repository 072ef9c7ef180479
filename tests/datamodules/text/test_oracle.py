"""ROUGE's words, and the oracles and gap sentences that it selects, against brute force with `rouge-score`."""

import random
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import pytest
from conftest import write
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer

from datamodules.text import rouge_words
from datamodules.text.gap_selection import select
from datamodules.text.oracle import greedy_oracle, sentence_scores, text_scores
from datamodules.text.porter import perl_porter
from datamodules.text.rouge_words import read_exceptions, vocabulary

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


def best_mean(variants: list[str], references: list[list[str]], text: str) -> float:
    """The mean F1 of `rouge-score` with the best reference."""
    scorer = RougeScorer(variants, use_stemmer=True)
    scores = [scorer.score(" ".join(reference), text).values() for reference in references]
    return max(sum(score.fmeasure for score in one) / len(variants) for one in scores)


def set_oracle(sentences: list[str], references: list[list[str]], k: int | None) -> list[int]:
    """Greedy selection over sets of n-grams with plain precision and recall, one set of sentences at a time."""

    def grams(words: list[str]) -> list[set]:
        return [set(words), set(pairwise(words))]

    def f1(predicted: set, reference: set) -> float:
        return 2 * len(predicted & reference) / max(len(predicted) + len(reference), 1)

    def score(chosen: list[int]) -> float:
        unions = [set().union(*(grams(sentences[i].split())[n] for i in chosen)) for n in (0, 1)]
        wholes = [grams(" ".join(reference).split()) for reference in references]
        return max(sum(f1(union, gold) for union, gold in zip(unions, whole)) for whole in wholes)

    return greedily(score, len(sentences), k)


@given(TEXT, REFERENCES, st.none() | st.integers(1, 3))
# Beside the second sentence, the first one scores 2/3 + 2/15, and the third one 4/5 + 0: the first one is chosen
@example(["g a f g d", "h h b d d", "g", "e e"], [["b c e g d h e d"]], 2)
@settings(max_examples=80)
def test_oracles_and_scores_equal_brute_force_and_rouge_score(sentences, references, k):
    def score(chosen):
        return best_mean(["rouge1", "rouge2"], references, " ".join(sentences[i] for i in sorted(chosen)))

    assert greedy_oracle(sentences, references, k) == greedily(score, len(sentences), k)
    assert greedy_oracle(sentences, references, k, stem=False, counts="set") == set_oracle(sentences, references, k)
    for variants in (["rouge1", "rouge2"], ["rouge1", "rouge2", "rougeL"]):
        singles = text_scores([[text] for text in sentences], references, variants)
        assert singles == pytest.approx([best_mean(variants, references, text) for text in sentences])
        assert variants[-1] == "rougeL" or sentence_scores(sentences, references) == singles
        whole = best_mean(variants, references, " ".join(sentences))
        assert text_scores([sentences], references, variants) == pytest.approx([whole])


SCORER, STEMS = RougeScorer(["rouge1"], use_stemmer=True), DefaultTokenizer(use_stemmer=True)
# stems are final: they are not stemmed again
OF_STEMS = RougeScorer(["rouge1"], tokenizer=SimpleNamespace(tokenize=str.split))
FORMS = ["otter", "otters", "Naïve", "guards", "re-guarded", "mill's", "mills", "2", "the", "the", "the", "of", "a"]


def made_up(seed: int) -> list[str]:
    """Sentences with repeated words, inflected ones, none at all, and twins."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(FORMS, k=rng.randint(1, 9))).capitalize() + "." for _ in range(rng.randint(2, 8))]
    texts.insert(rng.randrange(len(texts)), "...")
    return [*texts, rng.choice(texts)]


def brute(sentences: list[str], number: int, greedy: bool, unique: bool) -> list[int]:
    def value(candidates: list[int]) -> float:
        rest = [text for i, text in enumerate(sentences) if i not in candidates]
        texts = [" ".join(rest), " ".join(sentences[i] for i in candidates)]
        if unique:
            texts = [" ".join(sorted(set(STEMS.tokenize(text)))) for text in texts]
        # `rouge-score` rounds equal scores differently in their last bit
        return round((OF_STEMS if unique else SCORER).score(*texts)["rouge1"].fmeasure, 12)

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


def test_lead_random_noise_and_what_is_refused():
    sentences = made_up(1)
    assert select(sentences, 2, "lead") == [0, 1]
    drawn = [select(sentences, 3, "random", rng=random.Random(seed)) for seed in range(20)]
    assert all(len(set(chosen)) == 3 and chosen == sorted(chosen) for chosen in drawn)
    assert len({tuple(chosen) for chosen in drawn}) > 5
    assert select(sentences, 3, "random") == select(sentences, 3, "random")
    # noise is another factor for every sentence
    twins = ["the otter guards the mill", "a heron"] * 6  # the long ones share a score
    found = {tuple(select(twins, 3, "ind-orig", 0.2, random.Random(seed))) for seed in range(20)}
    assert len(found) > 10 and all(i % 2 == 0 for chosen in found for i in chosen)
    assert select(twins, 3, "ind-orig") == [0, 2, 4]
    with pytest.raises(ValueError, match="no gap-sentence selection 'best'; choose one of ind-orig"):
        select(["one"], 1, "best")
    for number, noise, message in ((-1, 0.0, "at least 0"), (1, 1.5, r"got 1, 1\.5")):
        with pytest.raises(ValueError, match=message):
            select(["one"], number, noise=noise)


def test_exceptions_go_before_the_stemmer_and_a_missing_list_is_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"has no WordNet exception list"):
        read_exceptions(str(tmp_path))
    monkeypatch.setattr(rouge_words, "WORDNET_FOLDERS", (str(tmp_path),))
    with pytest.warns(UserWarning, match="wordnet-base"):
        assert read_exceptions() == {}
    with pytest.raises(ValueError, match="belongs to the stemmer 'perl'"):
        vocabulary(True, wordnet=str(tmp_path))
    # adjectives go before adverbs
    lists = {"adj": "best good\n", "adv": "best well\n", "verb": "said say\nsewn sew\n\n", "noun": "men man boy"}
    for part, lines in lists.items():
        write(tmp_path / f"{part}.exc", lines)
    assert read_exceptions(str(tmp_path)) == {"best": "good", "said": "say", "sewn": "sew", "men": "man"}
    words = vocabulary("perl", wordnet=str(tmp_path))
    assert words.encode("said best") == words.encode("say good")
    assert words.encode("generation") == words.encode("generated")
    assert words.description == "stem:perl+wordnet|tok:rouge"


def test_a_full_vocabulary_starts_again(monkeypatch):
    monkeypatch.setattr(rouge_words, "MAX_WORDS", 3)
    words = vocabulary("none")
    assert words.encode("a b c d e") == words.encode("a b c d e")
    assert len(vocabulary("none")) == 0
    one, other, again = words.encode("a e a")
    assert one == again != other


AUTHORS = PorterStemmer(PorterStemmer.MARTIN_EXTENSIONS)

# One word or more for every rule of the paper (Porter 1980), and words that each rule must leave alone.
RULES = """
caresses ponies caress cats feed agreed plastered bled motoring sing conflated troubled sized hopping tanned falling
hissing fizzed failing filing happy relational conditional rational valenci hesitanci digitizer conformabli radicalli
differentli vileli analogousli vietnamization predication operator feudalism decisiveness hopefulness callousness
formaliti sensitiviti sensibiliti triplicate formative formalize electriciti electrical hopeful goodness revival
allowance inference airliner gyroscopic adjustable defensible irritant replacement adoption homologou communism activate
angulariti homologous effective bowdlerize probate rate cease controll roll yields yellowing playing toying syzygy 1990s
apology archaeology dying skies cannings proceed dies flies spied tied hopefulli enjoy spy using used yyyying
"""


def test_perl_stems_equal_those_of_the_authors_own_version():
    for word in RULES.split():
        assert perl_porter(word) == AUTHORS.stem(word), word
    # Perl takes several suffixes off in its fourth step: -ment, then -ent
    assert (AUTHORS.stem("complementment"), perl_porter("complementment")) == ("complement", "complem")
    # ROUGE-1.5.5 shortens double consonants by a pattern without y; NLTK counts the second y as a consonant
    assert (AUTHORS.stem("tyyed"), perl_porter("tyyed")) == ("ty", "tyi")
