"""Porter's stemmer (1980) in the two variants of ROUGE implementations, both by NLTK.

`nltk_porter` is NLTK's default variant, which `rouge-score` uses; `perl_porter` is the variant of ROUGE-1.5.5. Both
take lower-case words of more than three characters: ROUGE does not stem shorter ones.
"""

import importlib
import sys
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType

_STEP_4 = "al ance ence er ic able ible ant ement ou ism ate iti ous ive ize"


@cache
def _stemmers() -> tuple:
    """Return NLTK's stemmer and the stemmer of ROUGE-1.5.5; a function, so that NLTK is imported on first use."""
    PorterStemmer = _porter_module().PorterStemmer

    class PerlStemmer(PorterStemmer):
        """Porter (1980) with his later changes; as in ROUGE-1.5.5, -ment, -ent or -ion may be a second suffix."""

        def _ends_double_consonant(self, word: str) -> bool:
            return not word.endswith("y") and super()._ends_double_consonant(word)  # as in Porter's Perl program

        def _step4(self, word: str) -> str:
            def is_long(stem: str) -> bool:  # m > 1 in the paper: at least two vowel-consonant sequences
                return self._measure(stem) > 1

            word = self._apply_rule_list(word, [(suffix, "", is_long) for suffix in _STEP_4.split()])
            if word.endswith("ment") and is_long(word[:-4]):
                word = word[:-4]
            if word.endswith(("ent", "sion", "tion")) and is_long(word[:-3]):  # -ent, or -ion after s or t
                word = word[:-3]
            return word

    return PorterStemmer(), PerlStemmer(PorterStemmer.MARTIN_EXTENSIONS)


def _porter_module() -> ModuleType:
    """Return `nltk.stem.porter`, imported without running `nltk/__init__.py`, which takes 2 s of processor time."""
    name = "nltk.stem.porter"
    if "nltk" in sys.modules:  # another package has imported NLTK
        return importlib.import_module(name)
    path = None  # where to look for a package: `sys.path`, then the folders of its parent
    try:
        with suppress(ImportError, AttributeError):  # if the stemmer of an NLTK version needs more of the package
            for package in ("nltk", "nltk.stem"):
                spec = PathFinder.find_spec(package, path)
                path = spec.submodule_search_locations
                sys.modules[package] = module_from_spec(spec)  # a package whose `__init__.py` is not run
            return importlib.import_module(name)
    finally:  # later imports must get the real packages
        for loaded in [module for module in sys.modules if module.partition(".")[0] == "nltk"]:
            del sys.modules[loaded]
    return importlib.import_module(name)  # after an error, with the whole package


def nltk_porter(word: str) -> str:
    """Return the stem as NLTK computes it in its default mode."""
    return _stemmers()[0].stem(word)


def perl_porter(word: str) -> str:
    """Return the stem as ROUGE-1.5.5 computes it."""
    return _stemmers()[1].stem(word)
