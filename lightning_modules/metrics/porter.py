"""Porter's stemmer (1980) in the two variants that ROUGE is computed with, both by NLTK.

`nltk_porter` is NLTK's own variant, which `rouge-score` uses, and `perl_porter` that of ROUGE-1.5.5. Both take
lower-case words of more than three characters: ROUGE leaves shorter ones alone.
"""

from functools import cache

_STEP_4 = "al ance ence er ic able ible ant ement ou ism ate iti ous ive ize"


@cache
def _stemmers() -> tuple:
    """Return NLTK's stemmer and the one of ROUGE-1.5.5; importing NLTK takes 0.8 s, so it waits for the first word."""
    from nltk.stem.porter import PorterStemmer

    class PerlStemmer(PorterStemmer):
        """Porter 1980 with the departures of its author's later versions and ROUGE's own in step 4.

        There -ment and -ent are tried after the other suffixes rather than in their place, so that several can go.
        """

        def _ends_double_consonant(self, word: str) -> bool:
            return not word.endswith("y") and super()._ends_double_consonant(word)

        def _step4(self, word: str) -> str:
            long = lambda stem: self._measure(stem) > 1  # noqa: E731
            word = self._apply_rule_list(word, [(suffix, "", long) for suffix in _STEP_4.split()])
            if word.endswith("ment") and long(word[:-4]):
                word = word[:-4]
            if word.endswith(("ent", "sion", "tion")) and long(word[:-3]):
                word = word[:-3]
            return word

    return PorterStemmer(), PerlStemmer(PorterStemmer.MARTIN_EXTENSIONS)


def nltk_porter(word: str) -> str:
    """Return the stem as NLTK computes it in its default mode."""
    return _stemmers()[0].stem(word)


def perl_porter(word: str) -> str:
    """Return the stem as ROUGE-1.5.5 computes it."""
    return _stemmers()[1].stem(word)
