"""Words of ROUGE: tokenization, stemming, and encoding as integers."""

import itertools
import string
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from datamodules.text.language import language_of
from datamodules.text.porter import nltk_porter, perl_porter

# Translation table: ASCII letters in lower case and digits stay, every other byte becomes a space.
_WORD_BYTES = string.ascii_letters + string.digits
_TABLE = bytes(ord(chr(byte).lower()) if chr(byte) in _WORD_BYTES else ord(" ") for byte in range(256))


def _latin(text: str) -> list[bytes]:
    """Return runs of a-z and 0-9 of the lower-cased text; a byte table takes half the time of a regular expression."""
    # `lower` turns some other letters, such as the Kelvin sign, into ASCII; the table lower-cases ASCII.
    raw = text.encode() if text.isascii() else text.lower().encode("ascii", "replace")
    return raw.translate(_TABLE).split()


STEMMERS = ("none", "porter", "perl")
WORDNET_FOLDERS = ("/usr/share/wordnet", "/usr/local/share/wordnet")

# `vocabulary` empties one that has outgrown this: stemming again is cheaper than the memory.
MAX_WORDS = 1_000_000


class Vocabulary(dict):
    """Growing map from words to integers: each word is stemmed once, and words with the same stem share an integer.

    `split` returns the lower-cased words of a text, as bytes if that is faster. Words of at most three characters are
    not stemmed, as in ROUGE-1.5.5. `description` is part of signatures of scores, such as "stem:porter|tok:rouge".
    """

    def __init__(
        self, split: Callable[[str], list], stem: Callable[[str], str] | None, description: str, language: str = "en"
    ) -> None:
        super().__init__()
        self.split = split
        self.stem = stem
        self.description = description
        self.language = language
        self._numbers: dict[str, int] = {}  # integer of each stem
        self._unused = itertools.count()  # new integers; continues after `clear`, so that none has two meanings

    def __missing__(self, word: str | bytes) -> int:
        """Return the integer of a new word and store it; `dict` calls this for words that it lacks."""
        letters = word if isinstance(word, str) else word.decode("ascii")  # `split` only returns bytes of ASCII words
        stem = self.stem(letters) if self.stem and len(letters) > 3 else letters
        number = self._numbers.get(stem)
        if number is None:  # no word with this stem yet
            number = self._numbers[stem] = next(self._unused)
        self[word] = number
        return number

    def encode(self, text: str) -> list[int]:
        """Return the integers of the words of a text."""
        return list(map(self.__getitem__, self.split(text)))

    def clear(self) -> None:
        """Remove all words and their integers."""
        super().clear()
        self._numbers.clear()


def vocabulary(stem: bool | str = True, language: str = "en", wordnet: str | None = None) -> Vocabulary:
    """Return the vocabulary of a language and a stemmer, shared by the whole process.

    Each call empties it if it has more than `MAX_WORDS` words, which makes earlier integers invalid. Texts that are
    compared have to be encoded after the same call.

    Args:
        stem: False or "none"; True or "porter" for the Porter stemmer of NLTK and `rouge-score`; "perl" for the Porter
            stemmer of ROUGE-1.5.5 with the exception list of WordNet. Instead of "porter", languages other than English
            have their Snowball stemmer, if there is one.
        language: code of the language; in English, words are runs of a-z and 0-9, as ROUGE has them, so that text in
            other scripts has no words; for all others see `Language.words`.
        wordnet: folder with the `*.exc` files of WordNet, for "perl"; by default the folder of Debian's package.
            Without it, irregular forms ("said", "children") are not mapped to their base, so that ROUGE-1.5.5 scores
            some tenths of a point higher; a warning is logged.

    Raises:
        ValueError: for an unknown stemmer, one of another language, or a WordNet folder without exception lists.
    """
    name = {True: "porter", False: "none"}.get(stem, stem)  # a name is unchanged
    if name not in STEMMERS:
        raise ValueError(f"unknown ROUGE stemmer {stem!r}; take True, False or one of {', '.join(STEMMERS)}")
    if name == "perl" and not language_of(language).is_english:
        raise ValueError(f"the stemmer 'perl' is English; take another one for language {language!r}")
    if wordnet is not None and name != "perl":
        raise ValueError(f"WordNet's exception list belongs to the stemmer 'perl', not to {name!r}")
    words = _vocabulary(name, language, wordnet)
    if len(words) > MAX_WORDS:
        words.clear()
    return words


@cache
def _vocabulary(stemmer: str, language: str, wordnet: str | None) -> Vocabulary:
    """Return the vocabulary for arguments that `vocabulary` has checked."""
    rules = language_of(language)  # a `Language`, whose method `words` splits a text, as `_latin` does
    if not rules.is_english:
        stem = rules.stem if stemmer == "porter" else None  # the Snowball stemmer, if there is one
        return Vocabulary(rules.words, stem, f"stem:{'snowball' if stem else 'none'}|tok:{language}", language)
    if stemmer == "perl":
        bases = read_exceptions(wordnet)
        description = f"stem:perl{'+' if bases else '-'}wordnet|tok:rouge"
        # `MorphStem` of ROUGE-1.5.5: the base form in the exception list, or else the Porter stem
        return Vocabulary(_latin, lambda word: bases.get(word) or perl_porter(word), description)
    return Vocabulary(_latin, nltk_porter if stemmer == "porter" else None, f"stem:{stemmer}|tok:rouge")


@cache
def word_vocabulary(language: str = "en") -> Vocabulary:
    """Return the vocabulary of the words of a language without stemming; words of any script count in English, too."""
    rules = language_of(language)
    return Vocabulary(rules.words, None, "tok:unicode" if rules.is_english else f"tok:{language}")


def warn_without_words(language: str) -> None:
    """Warn that a reference has no word of a language; Python shows the same warning once."""
    remedy = "set data.language of a run, or --language of evaluate, compare, report and baseline (xx for any)"
    warnings.warn(f"a reference has no word in language {language!r}, and scores 0; {remedy}", stacklevel=3)


def read_exceptions(folder: str | None = None) -> dict[str, str]:
    """Return the base form of each irregular word form ("said" -> "say") in the exception lists of WordNet.

    A form that is listed under several parts of speech has the base of the last one, as in ROUGE-1.5.5: "best" has the
    base "good" of the adjective. Without lists in the default folders, the result is empty, with a warning.

    Raises:
        ValueError: if `folder` has no exception list.
    """
    for candidate in [folder] if folder else WORDNET_FOLDERS:
        base_of: dict[str, str] = {}
        for part_of_speech in ("adv", "adj", "noun", "verb"):  # later lists replace bases of earlier ones
            path = Path(candidate) / f"{part_of_speech}.exc"
            if path.is_file():
                for line in path.read_text(encoding="utf-8").split("\n"):
                    form, *bases = line.split() or [""]  # "said say"; an empty line has no bases
                    if bases:  # several if the form is ambiguous, of which the first one counts
                        base_of[form] = bases[0]
        if base_of:
            return base_of
    if folder:
        raise ValueError(f"{folder} has no WordNet exception list (noun.exc, verb.exc, ...)")
    problem = "no WordNet exception list found: the stems of irregular words differ from ROUGE-1.5.5's"
    remedy = "install the Debian package wordnet-base or give the folder with noun.exc, verb.exc, ..."
    warnings.warn(f"{problem}; {remedy}", stacklevel=5)  # located at the call of `rouge_scores`
    return {}
