"""ROUGE's words, stems and counts."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer

from datamodules.text import rouge_words
from datamodules.text.porter import perl_porter
from datamodules.text.rouge_counts import clipped, lcs_length, ngram_ends, position_masks, positions, union_lcs
from datamodules.text.rouge_words import read_exceptions, vocabulary


def write_lists(folder, **lists):
    for part, lines in lists.items():
        (folder / f"{part}.exc").write_text(lines, encoding="utf-8")


def test_exceptions_go_before_the_stemmer_and_adjectives_before_adverbs(tmp_path):
    write_lists(tmp_path, adj="best good\n", adv="best well\n", verb="said say\nsewn sew\n\n", noun="men man boy")
    assert read_exceptions(str(tmp_path)) == {"best": "good", "said": "say", "sewn": "sew", "men": "man"}
    words = vocabulary("perl", wordnet=str(tmp_path))
    assert words.encode("said best") == words.encode("say good")
    assert words.encode("generation") == words.encode("generated")
    assert words.description == "stem:perl+wordnet|tok:rouge"


def test_a_missing_list_is_an_error_where_it_was_asked_for_and_a_warning_elsewhere(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"has no WordNet exception list"):
        read_exceptions(str(tmp_path))
    monkeypatch.setattr(rouge_words, "WORDNET_FOLDERS", (str(tmp_path),))
    with pytest.warns(UserWarning, match="wordnet-base"):
        assert read_exceptions() == {}
    with pytest.raises(ValueError, match="belongs to the stemmer 'perl'"):
        vocabulary(True, wordnet=str(tmp_path))


def test_a_full_vocabulary_starts_again(monkeypatch):
    monkeypatch.setattr(rouge_words, "MAX_WORDS", 3)
    words = rouge_words.Vocabulary(rouge_words._latin, None, "")
    assert words.encode("a b c d e") == words.encode("a b c d e")
    words.limit_size()
    assert len(words) == 0
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


@pytest.mark.integration
def test_the_stemmer_alone_is_that_of_the_whole_package():
    """In a process of its own, where NLTK has not been imported: the stemmer does not import the package either."""
    script = (
        "import sys; from datamodules.text.porter import nltk_porter\n"
        "words = ['relational', 'running', 'skies', 'dying', 'electricity', 'proceed']\n"
        "stems = [nltk_porter(word) for word in words]\n"
        "assert not any(name.partition('.')[0] in ('nltk', 'sklearn') for name in sys.modules)\n"
        "from nltk import PorterStemmer; assert stems == [PorterStemmer().stem(word) for word in words], stems"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
