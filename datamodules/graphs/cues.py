"""What the sentences of a document have that ties them to each other, by rules over words alone.

The cues are those of Christensen et al. 2013 (NAACL), there found with a parser, WordNet and a co-reference resolver.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from datamodules.text.content_words import STOP_WORDS, WORD, stem

# Words that a sentence may begin with to say how it goes on from the one before.
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
_BEFORE_VERBS = frozenset(_VERB_MARKS.split())  # what is no function word behind one of these is a verb
_NO_VERB_FORMS = """
    thing something nothing anything everything morning evening building king ring spring string during according
    including following regarding wing ceiling hundred indeed need feed seed speed breed greed weed united red bed
    based related alleged used
"""
_NO_VERBS = frozenset(_NO_VERB_FORMS.split()) | _REPORTING
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
# Endings that make a noun of a verb, the longest first; what is left need not be the whole verb.
_DEVERBAL = ("ication", "ization", "ation", "ition", "ssion", "sion", "tion", "ment", "ance", "ence", "ing", "ure",
             "age", "ion", "al")  # fmt: skip
_LEAST, _SLACK = 4, 2  # letters that a noun's and a verb's stem share; how many more one of them may have


@dataclass(frozen=True)
class Cues:
    """What is found in a sentence.

    Attributes:
        marker: whether it begins with a discourse marker.
        pronoun: whether it begins with a pronoun or demonstrative, behind a marker perhaps.
        entities: names.
        verbs: stems of the verbs.
        definite: nouns with a definite article or a demonstrative ("the attack").
        indefinite: nouns with an indefinite article.
    """

    marker: bool
    pronoun: bool
    entities: frozenset[str]
    verbs: frozenset[str]
    definite: frozenset[str]
    indefinite: frozenset[str]


def cues(sentences: Sequence[str]) -> list[Cues]:
    """The cues of the sentences of a document.

    Names are found by capitals; in a text where most sentences begin without one, two content words in a row count as a
    name ("new delhi").
    """
    texts = [sentence.replace("’", "'") for sentence in sentences]
    found = [WORD.findall(text) for text in texts]
    beginnings = [words[0] for words in found if words]
    cased = 2 * sum(word[0].isupper() for word in beginnings) > len(beginnings)
    acting = [[verb_of(before, word) for before, word in zip(("", *words), words)] for words in found]
    names = _cased_names(texts) if cased else [_word_pairs(*pair) for pair in zip(found, acting)]
    return [_cues([word.lower() for word in words], *rest) for words, *rest in zip(found, acting, names)]


def _cues(words: list[str], acting: list[str | None], entities: frozenset[str]) -> Cues:
    skipped = _marker(words)
    first = words[skipped] if skipped < len(words) else ""
    return Cues(
        skipped > 0,
        first in PRONOUNS or first in DEMONSTRATIVES,
        entities,
        frozenset(verb for verb in acting if verb is not None),
        frozenset(_behind(words[skipped:], acting[skipped:], DEFINITE)),
        frozenset(_behind(words[skipped:], acting[skipped:], INDEFINITE)),
    )


def _marker(words: list[str]) -> int:
    """How many words the marker has that a sentence begins with."""
    return max((size for size in range(1, LONGEST_MARKER + 1) if tuple(words[:size]) in MARKERS), default=0)


# Names -----------------------------------------------------------------------------------------------------------

_RUN = re.compile(rf"(?:{WORD.pattern})(?:[ -](?:{WORD.pattern}))*")


def _cased_names(sentences: Sequence[str]) -> list[frozenset[str]]:
    """Runs of capitalised words, and the last word of each ("Marie Curie", "Curie"), in lower case.

    The first word of a sentence counts if another capitalised word follows, or it is capitalised within another one.
    """
    runs = [_runs(sentence) for sentence in sentences]
    within = {word for found in runs for first, run in found for word in (run[1:] if first else run)}
    names = []
    for found in runs:
        kept = [run for first, run in found if not first or len(run) > 1 or run[0] in within]
        names.append(frozenset(name.lower() for run in kept for name in (" ".join(run), run[-1])))
    return names


def _runs(sentence: str) -> list[tuple[bool, list[str]]]:
    """Runs of capitalised words that are no function words, each with whether it begins the sentence."""
    runs: list[tuple[bool, list[str]]] = []
    for piece in _RUN.finditer(sentence):  # a run goes over no mark
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


def _word_pairs(words: Sequence[str], acting: Sequence[str | None]) -> frozenset[str]:
    """Neighbours that are content words, and no verbs."""
    content = [_content(word.lower()) and verb is None for word, verb in zip(words, acting)]
    both = zip(pairwise(words), pairwise(content))
    return frozenset(f"{one} {other}".lower() for (one, other), kept in both if all(kept))


def _content(word: str) -> bool:
    return word not in STOP_WORDS and word not in _REPORTING and len(word) > 1


# Verbs and nouns -------------------------------------------------------------------------------------------------


def verb_of(before: str, word: str) -> str | None:
    """The stem of a word that is a verb by its ending, by the word before it, or by a list; None of another.

    Args:
        before: the word before, empty at the beginning of a sentence.
        word: as it is written; one with a capital within a sentence is no verb.
    """
    lower, before = word.lower(), before.lower()
    if (before and word[0].isupper()) or lower in STOP_WORDS or lower in _NO_VERBS or not word.isalpha():
        return None
    if lower in _IRREGULAR:
        return stem(_IRREGULAR[lower])
    ends = len(lower) > 4 and lower.endswith(("ed", "ing")) and before not in DEFINITE
    return stem(lower) if ends or before in _BEFORE_VERBS else None


def _behind(words: Sequence[str], acting: Sequence[str | None], determiners: frozenset[str]) -> list[str]:
    """The last of up to three content words behind a determiner and before a verb: "the recent attack" is about an
    attack, so is "the attack occurred". As -s may be a verb's ending ("the otter swims"), the word before one counts
    too."""
    found = []
    for place, word in enumerate(words):
        if word not in determiners:
            continue
        nouns: list[str] = []
        for noun, verb in zip(words[place + 1 : place + 4], acting[place + 1 : place + 4]):
            if not _content(noun) or not noun.isalpha() or (verb is not None and nouns):
                break
            nouns.append(noun)
        found += nouns[-2:] if nouns and nouns[-1].endswith("s") else nouns[-1:]
    return found


def deverbal(noun: str, verb: str) -> bool:
    """Whether a noun may be made of a verb: "resignation" of "resign", "the attack" of "attack".

    Either their stems are equal; or, without an ending that makes nouns (-ation, -ment, -al ...), the noun's beginning
    and the verb's stem begin alike: one is the beginning of the other, with four letters at least and two more at most.

    Args:
        noun: in lower case.
        verb: a verb's stem.
    """
    if stem(noun) == verb:
        return True
    for ending in _DEVERBAL:
        if noun.endswith(ending) and len(noun) - len(ending) >= _LEAST:
            base = noun.removesuffix(ending)
            short, long = sorted((base, verb), key=len)
            return len(short) >= _LEAST and long.startswith(short) and len(long) - len(short) <= _SLACK
    return False
