"""ROUGE's words and stems."""

import subprocess
import sys

import pytest
from nltk.stem.porter import PorterStemmer

from datamodules.text import rouge_words
from datamodules.text.porter import perl_porter
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
