from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer

from lightning_modules.metrics.porter import nltk_porter, perl_porter

NLTK = PorterStemmer()
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
SUFFIXES = """
ational tional enci anci izer bli alli entli eli ousli ization ation ator alism iveness fulness ousness aliti iviti
biliti logi icate ative alize iciti ical ful ness al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous
ive ize ed ing eed s ies ied fulli sses y e ll
"""
ENDED = st.builds(
    lambda start, ends: start + "".join(ends),
    st.text("aeiouybtslz1", max_size=5),
    st.lists(st.sampled_from(SUFFIXES.split()), min_size=1, max_size=3),
)


@given(ENDED | st.text("aeioybtslz", min_size=1, max_size=8) | st.sampled_from(RULES.split()))
@settings(max_examples=2000, deadline=None)
def test_stems_are_nltks(word):
    if len(word) > 3:
        assert nltk_porter(word) == NLTK.stem(word)


def test_perl_stems_are_those_of_the_authors_own_version():
    for word in RULES.split():
        assert perl_porter(word) == AUTHORS.stem(word), word


def test_perl_takes_several_suffixes_off_in_its_fourth_step():
    assert AUTHORS.stem("complementment") == "complement"  # -ment alone
    assert perl_porter("complementment") == "complem"  # -ment, then -ent
