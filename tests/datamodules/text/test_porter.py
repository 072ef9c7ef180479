import subprocess
import sys

import pytest
from nltk.stem.porter import PorterStemmer

from datamodules.text.porter import perl_porter

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


def test_perl_takes_several_suffixes_off_in_its_fourth_step():
    assert AUTHORS.stem("complementment") == "complement"  # -ment alone
    assert perl_porter("complementment") == "complem"  # -ment, then -ent


def test_perl_has_no_double_y():
    """ROUGE-1.5.5 shortens double consonants by a pattern without y; NLTK counts the second y as a consonant."""
    assert AUTHORS.stem("tyyed") == "ty"
    assert perl_porter("tyyed") == "tyi"


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
