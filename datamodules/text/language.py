"""`Language`: how a language divides text into sentences and words, and how words become text again."""

import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property, partial
from itertools import chain, islice
from typing import NamedTuple

import regex

from datamodules.documents import UserError
from datamodules.text import words
from datamodules.text.sentences import Splitter, split_sentences
from datamodules.text.words import CLOSING_MARKS, NO_SPACE_AFTER, NO_SPACE_BEFORE, SENTENCE_ENDS, WordTokenization

Segmenter = Callable[[str], list[str]]


def _jieba() -> Segmenter:
    """Load jieba without its `initialize`, which unmarshals a file in the temporary folder that any user may write."""
    import jieba

    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())  # word frequencies and their sum
    tokenizer.initialized = True
    return tokenizer.lcut


def _fugashi() -> Segmenter:
    import fugashi
    import unidic_lite

    tagger = fugashi.Tagger(f'-d "{unidic_lite.DICDIR}"')
    return lambda text: [word.surface for word in tagger(text)]  # the words as they are written


def _pythainlp() -> Segmenter:
    from pythainlp.tokenize import word_tokenize

    return partial(word_tokenize, engine="newmm")  # maximal matching with a dictionary


SEGMENTERS = {"zh:jieba": _jieba, "ja:fugashi": _fugashi, "th:pythainlp": _pythainlp}


@cache
def load_segmenter(code: str) -> Segmenter:
    """Load the word segmenter of a language code such as `zh:jieba`, once per process.

    Raises:
        UserError: if the code is not one of `SEGMENTERS`, or the package of the segmenter is not installed.
    """
    if code not in SEGMENTERS:
        raise UserError(f"language {code!r}: the segmenters of words are {', '.join(SEGMENTERS)}; name one of them")
    package = code.partition(":")[2]  # also the name of the optional dependency ("extra") of this project
    try:
        return SEGMENTERS[code]()
    except ImportError as error:
        install = f"pip install 'precis-suite[{package}]'"
        raise UserError(f"language {code} needs the package {package} ({error}); run {install}") from error


ANY = "xx"
SPACELESS_LANGUAGES = frozenset({"zh", "yue", "wuu", "ja", "th", "lo", "km", "my"})

_EAST = r"\p{Han}\p{Hiragana}\p{Katakana}ー"  # the long vowel mark belongs to both kana
_SOUTH_EAST = r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"  # written with spaces between phrases or sentences
SPACELESS = rf"[{_EAST}{_SOUTH_EAST}]"

# A character of a script without spaces is a word, with its marks: a grapheme cluster. All other words are runs of
# letters, marks and digits, with the joiners of Persian and Indic scripts.
_CHARACTER = rf"(?={SPACELESS})(?=[\p{{L}}\p{{N}}])\X\p{{M}}*"
_RUN = rf"[[\p{{L}}\p{{N}}]--{SPACELESS}][[\p{{L}}\p{{M}}\p{{N}}\u200c\u200d]--{SPACELESS}]*+"
# Tokens keep marks inside words, as in English, and Hebrew abbreviations; spaces beside Thai are tokens, because they
# separate phrases; every other visible grapheme, such as an emoji with its joiners, is a token.
_INNER = r"""['’.,٫٬:/@&_·׳״–-]|(?<=\p{Hebrew})"(?=\p{Hebrew})"""
_PHRASE_SPACE = rf"[ ](?=[{_SOUTH_EAST}])|(?<=[{_SOUTH_EAST}])[ ]"
_OTHER_TOKEN = rf"{_RUN}(?:(?:{_INNER}){_RUN})*+|{_PHRASE_SPACE}|—+|…+|(?!\s)\X"
_WORD = regex.compile(rf"(?V1){_CHARACTER}|{_RUN}")
_TOKEN = regex.compile(rf"(?V1){_CHARACTER}|{_OTHER_TOKEN}")
# The same with runs of characters, for a segmenter.
_LONG_WORD = regex.compile(rf"(?V1)(?:{_CHARACTER})++|{_RUN}")
_LONG_TOKEN = regex.compile(rf"(?V1)(?:{_CHARACTER})++|{_OTHER_TOKEN}")
_UNSPACED = regex.compile(rf"(?V1){SPACELESS}|[\u3000-\u303f\uff00-\uffef ]")
_CONTAINS_SPACELESS = regex.compile(rf"(?V1){SPACELESS}")
_EAST_ASIAN = rf"[{_EAST}\u3000-\u303f\uff00-\uffef]"

_ENDS = (*SENTENCE_ENDS, *"。！？｡؟۔।॥።։។៕။")
_CLOSING = NO_SPACE_BEFORE | set("»،؛…°") | set(_ENDS)
_OPENING = NO_SPACE_AFTER | set("«¿¡„‚")
_LOW_HIGH_QUOTES = frozenset({"bg", "cs", "da", "de", "et", "hr", "is", "lt", "ru", "sk", "sl", "sr", "uk"})  # „so“

_SNOWBALL = {
    "ar": "arabic", "da": "danish", "de": "german", "es": "spanish", "fi": "finnish", "fr": "french",
    "hu": "hungarian", "it": "italian", "nl": "dutch", "no": "norwegian", "nb": "norwegian", "pt": "portuguese",
    "ro": "romanian", "ru": "russian", "sv": "swedish",
}  # fmt: skip

# The code to suggest for a script; that of its most frequent language where there are several.
_SCRIPTS = {
    "Latin": "en", "Cyrillic": "ru", "Greek": "el", "Arabic": "ar", "Hebrew": "he", "Devanagari": "hi",
    "Bengali": "bn", "Tamil": "ta", "Telugu": "te", "Gujarati": "gu", "Gurmukhi": "pa", "Kannada": "kn",
    "Malayalam": "ml", "Sinhala": "si", "Thai": "th", "Lao": "lo", "Khmer": "km", "Myanmar": "my", "Hangul": "ko",
    "Georgian": "ka", "Armenian": "hy", "Ethiopic": "am", "Han": "zh", "Hiragana": "ja", "Katakana": "ja",
}  # fmt: skip
_LETTER = regex.compile("|".join(rf"(?P<{name}>(?=\p{{L}})\p{{{name}}})" for name in _SCRIPTS))  # grouped by script


class Language:
    """Sentences, words and spelling of a language.

    English has rules of its own in `sentences`, `words` and `rouge_words` (runs of a-z and 0-9). In all other
    languages a word is a run of letters, marks and digits of any script, or a character where the script has no spaces
    (Chinese, Japanese, Thai, Lao, Khmer, Burmese); text becomes NFC, and `sentencex` splits it by the language's rules.
    Use `language_of`, which returns the same object for the same code.

    Args:
        code: ISO 639 code such as `en`, `ru` or `zh`, possibly with a region or script (`zh-Hant`); `xx` for any. A
            code with a segmenter (`zh:jieba`, see `SEGMENTERS`) divides scripts without spaces into words instead.

    Raises:
        UserError: if it does not look like a code, or there is no such segmenter, or its package is not installed.
    """

    def __init__(self, code: str) -> None:
        if not regex.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]+)*(:\w+)?", str(code)):  # `str`, as YAML reads `no` as False
            raise UserError(f"language {code!r}: give an ISO code, such as en, ru or zh; or {ANY} for any language")
        self.code = code
        self.primary = regex.split("[-:]", code)[0]  # without region, script and segmenter
        if len(self.primary) == 3:
            from nltk.langnames import iso639short  # imports much of NLTK, so only where it is needed

            self.primary = iso639short.get(self.primary, self.primary)  # `deu` has the rules of `de`
        self.segments = ":" in code  # whether a word segmenter is named
        if self.segments:
            load_segmenter(code)  # so that a missing package is reported now, not at the first text
        self.is_english = self.primary == "en"
        self.sentence_ends = SENTENCE_ENDS if self.is_english else _ENDS
        if self.primary == "el":
            self.sentence_ends += (";", "\u037e")  # the Greek question mark, in ASCII and in Unicode
        elif self.primary in ("th", "lo"):
            self.sentence_ends += (" ",)  # Thai and Lao separate sentences by a space
        self._no_space_before = _CLOSING  # punctuation, for `detokenize`
        self._no_space_after = _OPENING
        if self.primary == "fr":  # French has spaces inside guillemets and before these marks: « Quoi ? »
            self._no_space_before = _CLOSING - set(";:!?»")
            self._no_space_after = _OPENING - {"«"}
        elif self.primary in _LOW_HIGH_QUOTES:  # the marks that open a quote in English close it here: „so“
            self._no_space_before = _CLOSING | set("“‘")
            self._no_space_after = _OPENING - set("“‘")

    @property
    def setting(self) -> dict[str, str]:
        """The language as part of a cache key or state; empty for English, as before there were other languages."""
        return {} if self.is_english else {"language": self.code}

    @property
    def signature(self) -> str:
        """The language as part of the signature of a score; empty for English, as in `setting`."""
        return "" if self.is_english else f"|tok:{self.code}"

    def normalize(self, text: str) -> str:
        """Return text in NFC, so that an accent is part of its letter; English stays as it is."""
        return text if self.is_english else unicodedata.normalize("NFC", text)

    def split_sentences(self, text: str, splitter: Splitter = "auto") -> list[str]:
        """Split a text into sentences, see `sentences.split_sentences`."""
        return split_sentences(self.normalize(text), splitter, self.primary)

    def lower(self, text: str) -> str:
        """Return text in lower case, in Turkish and Azeri with İ -> i and I -> ı."""
        if self.primary in ("tr", "az"):
            text = self.normalize(text).replace("İ", "i").replace("I", "ı")  # NFC, as İ may be I and a dot
        return text.lower()

    def words(self, text: str) -> list[str]:
        """Return the words of a text in lower case, without punctuation, as ROUGE counts them outside English."""
        if self.is_english:
            return re.findall(r"[^\W_]+", text.lower())
        return self._find_words(self.normalize(self.lower(text)), _WORD, _LONG_WORD)

    def _find_words(self, text: str, pattern: regex.Pattern, run_pattern: regex.Pattern) -> list[str]:
        """Return the matches of `pattern`; with a segmenter, of `run_pattern`, with spaceless runs cut into words."""
        if not self.segments:  # each character of a script without spaces is a word
            return pattern.findall(text)
        segment = load_segmenter(self.code)
        pieces: list[str] = []
        for run in run_pattern.findall(text):
            pieces += segment(run) if _CONTAINS_SPACELESS.match(run) else [run]  # a run is all spaceless or not at all
        return pieces

    def tokenize(self, text: str, tokenizer: WordTokenization = "words", lowercase: bool = True) -> list[str]:
        """Split a text into words and punctuation marks; `tokenizer="whitespace"` splits at spaces only."""
        if self.is_english:
            return words.tokenize(text, tokenizer, lowercase)
        text = self.normalize(self.lower(text) if lowercase else text)
        return text.split() if tokenizer == "whitespace" else self._find_words(text, _TOKEN, _LONG_TOKEN)

    def detokenize(self, tokens: Sequence[str], tokenizer: WordTokenization = "words") -> str:
        """Join the tokens of `tokenize` to a text, with spaces as usual in the language, but none at its end."""
        if self.is_english:
            return words.detokenize(tokens, tokenizer)
        return words.detokenize(tokens, tokenizer, self._no_space_before, self._no_space_after, _UNSPACED).strip()

    def sentences_of(self, tokens: Sequence[str]) -> list[list[str]]:
        """Split the tokens of a generated text into sentences after their marks; the last may lack its end."""
        sentences: list[list[str]] = [[]]
        for token in tokens:
            is_closing = token in CLOSING_MARKS and not sentences[-1] and len(sentences) > 1
            sentences[-2 if is_closing else -1].append(token)
            if token in self.sentence_ends:
                sentences.append([])
        return [sentence for sentence in sentences if sentence]  # without the empty one after the last mark

    @cached_property
    def stem(self) -> Callable[[str], str] | None:
        """The Snowball stemmer of the language; None if NLTK has none, and for English, which uses Porter's stemmer."""
        return partial(_snowball_stem, _SNOWBALL[self.primary]) if self.primary in _SNOWBALL else None  # as for English


def _snowball_stem(name: str, word: str) -> str:
    """Return the stem of a word by the Snowball stemmer of a language, such as "arabic"."""
    from nltk.stem.snowball import SnowballStemmer  # imports much of NLTK, so only where it is needed

    return SnowballStemmer(name).stem(word)  # a new object: NLTK's Arabic stemmer keeps flags of the word before


@cache
def language_of(code: str) -> Language:
    """Return the `Language` of a code, one object per process."""
    return Language(code)


def length_words(*sentences: str) -> list[str]:
    """Return what counts for the length of sentences: words between spaces, or words and marks in spaceless scripts."""
    tokenize = language_of(ANY).tokenize
    split = (tokenize(text) if _CONTAINS_SPACELESS.search(text) else text.split() for text in sentences)
    return [word for part in split for word in part if word != " "]  # tokens of Thai include spaces between phrases


def count_words(sentences: Iterable[str]) -> int:
    """Return the length of sentences in words, see `length_words`."""
    return len(length_words(*sentences))


def first_words(sentences: Iterable[str], count: int) -> list[str]:
    """Return the sentences within the first `count` words, see `length_words`; the last one may be truncated."""
    complete: list[str] = []  # sentences
    for sentence in sentences:
        matches = _TOKEN.finditer(sentence) if _CONTAINS_SPACELESS.search(sentence) else re.finditer(r"\S+", sentence)
        ends = [match.end() for match in matches if match[0] != " "]  # of each word
        if len(ends) > count:  # the sentence up to the last word that is allowed
            return [*complete, " ".join(sentence[: ends[count - 1]].split())] if count else complete
        complete.append(sentence)
        count -= len(ends)
    return complete


def join_sentences(sentences: Iterable[str]) -> str:
    """Join sentences to a text, separated by a space, or by nothing after a Chinese or Japanese character."""
    text = ""
    for sentence in sentences:
        text += space_after(text) + sentence
    return text


def space_after(text: str) -> str:
    """Return the separator between a text and the next sentence: empty after a Chinese or Japanese character."""
    return "" if not text or regex.match(_EAST_ASIAN, text[-1]) else " "


def close_up(text: str) -> str:
    """Remove the spaces that tokenizers like BERT's write between Chinese or Japanese characters."""
    return regex.sub(rf"(?<={_EAST_ASIAN}) (?={_EAST_ASIAN}|[“”‘’—…])|(?<=[“”‘’—…]) (?={_EAST_ASIAN})", "", text)


ENGLISH_PARSER = "the discourse parsers and EDU segmenters of the suite are English"


def warn_if_not_english(what: str, texts: Iterable[str] = (), language: str = "en") -> None:
    """Warn if a model or rule for English is applied to texts of another language; Python prints the warning once.

    It does so if `language` is not English or under half of a text's letters are Latin; `what` is like "X are English".
    """
    scripts = (script_of([text[:2000]]) for text in islice(texts, 100))  # of a sample, for speed; None without letters
    if not language_of(language).is_english or any(script and script.latin < 0.5 for script in scripts):
        warnings.warn(f"{what}, and these texts are not: see docs/languages.md for other languages", stacklevel=1)


def space_after_word(word: str) -> str:
    """Return the separator between a word and the next one: empty in scripts without spaces."""
    return "" if _UNSPACED.match(word[-1:]) else " "


class Script(NamedTuple):
    """Most frequent script of some texts."""

    name: str  # its name in Unicode
    share: float  # its share of the letters, in [0, 1]
    latin: float  # share of Latin letters
    language: str  # code of the language to set, or of a likely one


def script_of(texts: Iterable[str]) -> Script | None:
    """Return the most frequent script of the letters in texts; None if no letter belongs to a script of `_SCRIPTS`."""
    letter_counts: Counter[str] = Counter()  # per script
    for character, number in Counter(chain.from_iterable(texts)).items():  # each distinct character once
        if match := _LETTER.match(character):
            letter_counts[match.lastgroup] += number
    total = letter_counts.total()
    if not total:
        return None
    name, number = letter_counts.most_common(1)[0]
    kana = letter_counts["Hiragana"] + letter_counts["Katakana"]
    # Japanese has many kana, though perhaps more kanji (Han); Chinese has few, in foreign names at most.
    code = "ja" if name == "Han" and kana > 0.05 * total else _SCRIPTS[name]
    return Script(name, number / total, letter_counts["Latin"] / total, code)
