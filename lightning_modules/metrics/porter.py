"""Porter's stemmer (1980) in the two variants that ROUGE is computed with.

`perl_porter` is that of ROUGE-1.5.5, `nltk_porter` the one of NLTK, which `rouge-score` uses. Both take lower-case
words of more than three characters: ROUGE leaves shorter ones alone. NLTK's own code gives the same stems in four times
the time, which shows where texts bring many new words.
"""

import re
from collections.abc import Callable

# Consonants and vowels in turn, [C](VC)^m[V]. A y is a vowel behind a consonant; an initial one is written Y.
_C, _V = "[^aeiou][^aeiouy]*", "[aeiouy][aeiou]*"
_has_vowel = re.compile(f"(?:{_C})?[aeiouy]").match
_m_over_0 = re.compile(f"(?:{_C})?{_V}{_C}").match
_m_is_1 = re.compile(f"(?:{_C})?{_V}{_C}(?:{_V})?$").match
_m_over_1 = re.compile(f"(?:{_C})?{_V}{_C}{_V}{_C}").match
_short = re.compile(f"{_C}[aeiouy][^aeiouwxy]$").match
_double = re.compile(r"([^aeiouylsz])\1$").search


def _rules(table: str) -> tuple[Callable, dict[str, str]]:
    """A search for the longest suffix of a table "suffix>replacement ...", and the replacements."""
    replace = dict(rule.split(">") for rule in table.split())
    return re.compile(f"(?:{'|'.join(sorted(replace, key=len, reverse=True))})$").search, replace


_STEP_2 = (
    "ational>ate tional>tion enci>ence anci>ance izer>ize bli>ble alli>al entli>ent eli>e ousli>ous ization>ize "
    "ation>ate ator>ate alism>al iveness>ive fulness>ful ousness>ous aliti>al iviti>ive biliti>ble"
)
_perl_2 = _rules(f"{_STEP_2} logi>log")
_nltk_2 = _rules(f"{_STEP_2} fulli>ful")
_step_3 = _rules("icate>ic ative> alize>al iciti>ic ical>ic ful> ness>")
_STEP_4 = "al> ance> ence> er> ic> able> ible> ant> ement> ou> ism> ate> iti> ous> ive> ize>"
_perl_4 = _rules(_STEP_4)
_nltk_4 = _rules(f"{_STEP_4} ment> ent> sion>s tion>t")

_NLTK_IRREGULAR = {
    **dict.fromkeys(("sky", "skies"), "sky"),
    **{"dying": "die", "lying": "lie", "tying": "tie"},
    **{"innings": "inning", "outings": "outing", "cannings": "canning"},
    **{word: word for word in ("news", "inning", "outing", "canning", "howe", "proceed", "exceed", "succeed")},
}


def perl_porter(word: str) -> str:
    """The stem as ROUGE-1.5.5 computes it.

    Porter 1980 with the two departures of its author's later versions (-bli, -logi), and with one of ROUGE's own: in
    step 4, -ment and -ent are tried after the other suffixes rather than in their place, so that several can go.
    """
    if starts_with_y := word[0] == "y":
        word = "Y" + word[1:]
    word = _past_and_progressive(_plural(word), _short, _double)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _apply(_perl_2, _m_over_0, word)
    word = _apply(_step_3, _m_over_0, word)
    word = _apply(_perl_4, _m_over_1, word)
    if word.endswith("ment") and _m_over_1(word[:-4]):
        word = word[:-4]
    if word.endswith("ent"):
        word = word[:-3] if _m_over_1(word[:-3]) else word
    elif word.endswith(("sion", "tion")) and _m_over_1(word[:-3]):
        word = word[:-3]
    word = _final_e_and_l(word, _short)
    return "y" + word[1:] if starts_with_y else word


def nltk_porter(word: str) -> str:
    """The stem as NLTK computes it in its default mode.

    Porter 1980 with a list of irregular words, and with other rules for -ies, -ied, a final y, -alli, -fulli, -logi and
    words of two letters.
    """
    if word in _NLTK_IRREGULAR:
        return _NLTK_IRREGULAR[word]
    if starts_with_y := word[0] == "y":
        word = "Y" + word[1:]
    word = word[:-1] if len(word) == 4 and word.endswith("ies") else _plural(word)
    if word.endswith("ied"):
        word = word[:-1] if len(word) == 4 else word[:-2]
    else:
        word = _past_and_progressive(word, _nltk_short, _nltk_double)
    if word.endswith("y") and len(word) > 2 and _ends_in_consonant(word[:-1]):
        word = word[:-1] + "i"
    while word.endswith("alli") and _m_over_0(word[:-4]):
        word = word[:-2]
    if word.endswith("logi"):
        word = word[:-1] if _m_over_0(word[:-3]) else word
    else:
        word = _apply(_nltk_2, _m_over_0, word)
    word = _apply(_step_3, _m_over_0, word)
    word = _apply(_nltk_4, _m_over_1, word)
    word = _final_e_and_l(word, _nltk_short)
    return "y" + word[1:] if starts_with_y else word


def _nltk_short(stem: str) -> bool:
    """Consonant, vowel, consonant at the end of a stem of m = 1; in NLTK also a vowel and a consonant alone."""
    return bool(_short(stem)) or (len(stem) == 2 and stem[0] in "aeiou" and stem[1] not in "aeiou")


def _nltk_double(stem: str) -> bool:
    """A double consonant other than l, s and z at the end; in NLTK yy too, where its second y is a consonant."""
    return stem[-1:] == stem[-2:-1] and stem[-1:] not in "lsz" and _ends_in_consonant(stem)


def _ends_in_consonant(word: str) -> bool:
    """Whether the last letter is a consonant: of several y in a row every other one is."""
    before = word.rstrip("y")
    if before == word:
        return word[-1] not in "aeiou"
    vowel_first = bool(before) and before[-1] not in "aeiou"
    return (len(word) - len(before)) % 2 == (0 if vowel_first else 1)


def _apply(rules: tuple[Callable, dict[str, str]], long_enough: Callable, word: str) -> str:
    """Replaces the longest suffix of a step's rules, if what is left is long enough."""
    search, replace = rules
    if found := search(word):
        stem, suffix = word[: found.start()], found.group()
        ending = replace[suffix]
        if long_enough(stem + ending if suffix in ("sion", "tion") else stem):
            return stem + ending
    return word


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past_and_progressive(word: str, short: Callable, double: Callable) -> str:
    """Step 1b: -eed, -ed, -ing."""
    if word.endswith("eed"):
        return word[:-1] if _m_over_0(word[:-3]) else word
    if not word.endswith(("ed", "ing")):
        return word
    stem = word[:-2] if word.endswith("ed") else word[:-3]
    if not _has_vowel(stem):
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if double(stem):
        return stem[:-1]
    return stem + "e" if short(stem) else stem


def _final_e_and_l(word: str, short: Callable) -> str:
    """Step 5."""
    if word.endswith("e"):
        stem = word[:-1]
        if _m_over_1(stem) or (_m_is_1(stem) and not short(stem)):
            word = stem
    return word[:-1] if word.endswith("ll") and _m_over_1(word) else word
