"""Cues of discourse relations between sentences, by word rules.

The cues are those of Christensen et al. 2013 (NAACL), who use a parser, WordNet and a coreference resolver.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from datamodules.text.content_words import STOP_WORDS, WORD, stem

# Discourse markers at the beginning of a sentence, which relate it to the preceding one.
_ONE_WORD = """
    however but yet nevertheless nonetheless still instead rather otherwise conversely unlike though although whereas
    therefore thus hence consequently accordingly so moreover furthermore additionally besides also likewise similarly
    then later afterwards afterward subsequently meanwhile previously earlier finally eventually next soon indeed
    specifically namely
"""
_SEVERAL = """
    as a result, as a consequence, for this reason, because of this, because of that, in addition, in contrast,
    by contrast, on the contrary, on the other hand, even so, despite this, despite that, for example, for instance,
    in particular, in fact, in other words, that is, at the same time, in the meantime, after that, before that,
    since then, in turn, in short, in sum, in conclusion, to this end, in this way, in response
"""
MARKERS = frozenset(tuple(phrase.split()) for phrase in (*_ONE_WORD.split(), *_SEVERAL.split(",")))
LONGEST_MARKER = max(map(len, MARKERS))
PRONOUNS = frozenset(("he", "she", "it", "they", "him", "her", "them", "his", "its", "their"))
DEMONSTRATIVES = frozenset(("this", "that", "these", "those", "such"))
DEFINITE = DEMONSTRATIVES | {"the"}
INDEFINITE = frozenset(("a", "an", "another", "some", "several"))

_REPORTING = frozenset(("said", "says", "say", "saying", "told"))  # in every other sentence of news
_VERB_MARKS = """
    to will would can could may might must should did does do don't didn't doesn't won't can't couldn't cannot
"""
_BEFORE_VERBS = frozenset(_VERB_MARKS.split())  # a content word after one of these is a verb
_NO_VERB_FORMS = """
    thing something nothing anything everything morning evening building king ring spring string during according
    including following regarding wing ceiling hundred indeed need feed seed speed breed greed weed united red bed
    based related alleged used
"""
_NOT_VERBS = frozenset(_NO_VERB_FORMS.split()) | _REPORTING
_PASTS = """
    won>win lost>lose took>take taken>take gave>give given>give made>make found>find held>hold left>leave led>lead
    met>meet paid>pay sold>sell bought>buy brought>bring built>build caught>catch came>come chose>choose chosen>choose
    drove>drive driven>drive fell>fall fallen>fall felt>feel fled>flee flew>fly fought>fight grew>grow grown>grow
    hid>hide hidden>hide kept>keep knew>know known>know rose>rise risen>rise ran>run saw>see seen>see sent>send
    shot>shoot shook>shake showed>show shown>show slept>sleep spoke>speak spoken>speak spent>spend stole>steal
    stolen>steal stood>stand swore>swear taught>teach thought>think threw>throw thrown>throw understood>understand
    went>go gone>go withdrew>withdraw withdrawn>withdraw wrote>write written>write began>begin begun>begin broke>break
    broken>break died>die
"""
_IRREGULAR = dict(pair.split(">") for pair in _PASTS.split())
# Suffixes of deverbal nouns, longest first; the rest need not be the whole verb.
_DEVERBAL = ("ication", "ization", "ation", "ition", "ssion", "sion", "tion", "ment", "ance", "ence", "ing", "ure",
             "age", "ion", "al")  # fmt: skip
_MIN_SHARED, _MAX_EXTRA = 4, 2  # letters that the stems of noun and verb share, and further letters of the longer


@dataclass(frozen=True)
class Cues:
    """Cues of a sentence."""

    marker: bool  # whether it begins with a discourse marker
    pronoun: bool  # whether it begins with a pronoun or demonstrative, possibly after a marker
    entities: frozenset[str]  # names
    verbs: frozenset[str]  # stems of the verbs
    definite: frozenset[str]  # nouns with a definite article or a demonstrative ("the attack")
    indefinite: frozenset[str]  # nouns with an indefinite article


def cues(sentences: Sequence[str]) -> list[Cues]:
    """Return the cues of the sentences of a document.

    Names are detected by capital letters; in lower-cased text, two consecutive content words count as a name ("new
    delhi").
    """
    texts = [sentence.replace("’", "'") for sentence in sentences]
    words = [WORD.findall(text) for text in texts]
    verbs = [[verb_of(before, word) for before, word in zip(("", *row), row)] for row in words]
    first_words = [row[0] for row in words if row]
    cased = 2 * sum(word[0].isupper() for word in first_words) > len(first_words)
    names = _cased_names(texts) if cased else list(map(_word_pairs, words, verbs))
    lowered = [[word.lower() for word in row] for row in words]
    return list(map(_cues, lowered, verbs, names))


def _cues(words: list[str], verbs: list[str | None], entities: frozenset[str]) -> Cues:
    # number of words of the longest discourse marker at the beginning of the sentence
    sizes = range(1, LONGEST_MARKER + 1)
    marker_length = max((size for size in sizes if tuple(words[:size]) in MARKERS), default=0)
    first = words[marker_length] if marker_length < len(words) else ""
    words, remaining_verbs = words[marker_length:], verbs[marker_length:]
    return Cues(
        marker=marker_length > 0,
        pronoun=first in PRONOUNS or first in DEMONSTRATIVES,
        entities=entities,
        verbs=frozenset(verb for verb in verbs if verb is not None),
        definite=frozenset(_nouns_after(words, remaining_verbs, DEFINITE)),
        indefinite=frozenset(_nouns_after(words, remaining_verbs, INDEFINITE)),
    )


# Names -----------------------------------------------------------------------------------------------------------

_RUN = re.compile(rf"(?:{WORD.pattern})(?:[ -](?:{WORD.pattern}))*")


def _cased_names(sentences: Sequence[str]) -> list[frozenset[str]]:
    """Return runs of capitalised words, and the last word of each ("Marie Curie", "Curie"), in lower case."""
    # the first word of a sentence counts before a capitalised word, or if it is one inside another sentence
    runs = [_runs(sentence) for sentence in sentences]
    inside = {word for row in runs for initial, run in row for word in (run[1:] if initial else run)}
    names = []
    for row in runs:
        name_runs = [run for initial, run in row if not initial or len(run) > 1 or run[0] in inside]
        names.append(frozenset(name.lower() for run in name_runs for name in (" ".join(run), run[-1])))
    return names


def _runs(sentence: str) -> list[tuple[bool, list[str]]]:
    """Return runs of capitalised content words, each with whether it begins the sentence."""
    runs: list[tuple[bool, list[str]]] = []
    for piece in _RUN.finditer(sentence):  # runs do not cross punctuation
        last = None
        for number, match in enumerate(WORD.finditer(piece.group())):
            word = match.group().removesuffix("'s")
            if not word[0].isupper() or word.lower() in STOP_WORDS or len(word) == 1:
                last = None
            elif last is not None:
                last.append(word)
            else:
                last = [word]
                runs.append((number == 0 and not sentence[: piece.start()].strip("\"'`“‘( "), last))
    return runs


def _word_pairs(words: Sequence[str], verbs: Sequence[str | None]) -> frozenset[str]:
    """Return pairs of neighbouring content words that are not verbs."""
    content = [_content(word.lower()) and verb is None for word, verb in zip(words, verbs)]
    neighbours = zip(pairwise(words), pairwise(content))
    return frozenset(f"{first} {second}".lower() for (first, second), is_content in neighbours if all(is_content))


def _content(word: str) -> bool:
    return word not in STOP_WORDS and word not in _REPORTING and len(word) > 1


# Verbs and nouns -------------------------------------------------------------------------------------------------


def verb_of(previous: str, word: str) -> str | None:
    """Return the stem of a verb, or None for other words; verbs are detected by ending, preceding word or a list.

    The preceding word is empty at the beginning of a sentence; words capitalised inside a sentence are not verbs.
    """
    lower, previous = word.lower(), previous.lower()
    if (previous and word[0].isupper()) or lower in STOP_WORDS or lower in _NOT_VERBS or not word.isalpha():
        return None
    if lower in _IRREGULAR:
        return stem(_IRREGULAR[lower])
    has_ending = len(lower) > 4 and lower.endswith(("ed", "ing")) and previous not in DEFINITE
    return stem(lower) if has_ending or previous in _BEFORE_VERBS else None


def _nouns_after(words: Sequence[str], verbs: Sequence[str | None], determiners: frozenset[str]) -> list[str]:
    """Return the last of up to three content words that follow a determiner, before a verb ("the old *mill* burnt")."""
    heads = []
    for index, word in enumerate(words):
        if word not in determiners:
            continue
        phrase: list[str] = []
        for noun, verb in zip(words[index + 1 : index + 4], verbs[index + 1 : index + 4]):
            if not _content(noun) or not noun.isalpha() or (verb is not None and phrase):
                break
            phrase.append(noun)
        # a word that ends in -s may be a verb ("the otter swims"), so the preceding word is returned as well
        heads += phrase[-2:] if phrase and phrase[-1].endswith("s") else phrase[-1:]
    return heads


def deverbal(noun: str, verb: str) -> bool:
    """Return whether a noun may be derived from a verb, given by its stem: "resignation" from "resign".

    Either their stems are equal; or one of the noun without a suffix such as -ation, -ment or -al, and the stem of the
    verb is a prefix of the other, of at least four letters and at most two letters shorter.
    """
    if stem(noun) == verb:
        return True
    for ending in _DEVERBAL:
        if noun.endswith(ending) and len(noun) - len(ending) >= _MIN_SHARED:
            base = noun.removesuffix(ending)
            short, long = sorted((base, verb), key=len)
            return len(short) >= _MIN_SHARED and long.startswith(short) and len(long) - len(short) <= _MAX_EXTRA
    return False
