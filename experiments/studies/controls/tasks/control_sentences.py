"""Building blocks of control corpora: real sentences of the built-in corpus, and made-up names."""

import functools
import random
import sysconfig

from datamodules.corpora.corpus import Corpus, make_document
from datamodules.corpora.docstrings import Docstrings
from datamodules.documents import BadRecord, UserError

SPLITS = ("train", "val", "test")
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


@functools.cache
def standard_library() -> Docstrings:
    """Return the docstrings of Python's standard library, the part of the built-in corpus that is always installed.

    The result is cached: the corpora of a process share one object, which reads the docstrings once.
    """
    return Docstrings([sysconfig.get_paths()["stdlib"]])


def real_sentences(corpus: Corpus, split: str, min_words: int = 5, max_words: int = 14) -> list[str]:
    """Return the distinct sentences of a split that have between `min_words` and `max_words` words.

    Raises:
        UserError: if there are fewer than ten.
    """
    sentences: dict[str, None] = {}
    for record in corpus.records(split):
        document = make_document(record)
        if not isinstance(document, BadRecord):
            sentences |= dict.fromkeys(s for s in document.sentences if min_words <= len(s.split()) <= max_words)
    if len(sentences) < 10:
        raise UserError(
            f"{corpus.title(split)}: {len(sentences)} sentences of {min_words} to {max_words} words; a control corpus "
            "needs ten, so give a larger corpus"
        )
    return list(sentences)


def made_up_name(rng: random.Random) -> str:
    """Return a random word of three syllables, such as "Zarubo", out of 343,000."""
    return "".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(3)).capitalize()
