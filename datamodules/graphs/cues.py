"""Cues of discourse relations between sentences by word rules, for the parser-based cues of Christensen et al. 2013."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

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
_AUXILIARIES = "will would can could may might must should did does do don't didn't doesn't won't can't couldn't cannot"
_BEFORE_VERBS = frozenset(["to", *_AUXILIARIES.split()])  # a content word after one of these is a verb
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
# Suffixes of nouns derived from verbs, longest first; what precedes them need not be the whole verb.
_DEVERBAL = ("ication", "ization", "ation", "ition", "ssion", "sion", "tion", "ment", "ance", "ence", "ing", "ure",
             "age", "ion", "al")  # fmt: skip
_MIN_SHARED = 4  # letters that the stems of a noun and its verb share
_MAX_EXTRA = 2  # further letters of the longer one


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
    """Return each sentence's cues of discourse relations; without capitals, pairs of content words count as names."""
    texts = [sentence.replace("’", "'") for sentence in sentences]
    words = [WORD.findall(text) for text in texts]  # of each sentence
    verbs = [list(map(verb_of, ("", *sentence), sentence)) for sentence in words]  # stem of each verb; None: other word
    first_words = [sentence[0] for sentence in words if sentence]
    is_cased = 2 * sum(word[0].isupper() for word in first_words) > len(first_words)  # most sentences begin upper-case
    names = _cased_names(texts) if is_cased else list(map(_word_pairs, words, verbs))
    lowered = [[word.lower() for word in sentence] for sentence in words]
    return list(map(_cues, lowered, verbs, names))


def _cues(words: list[str], verbs: list[str | None], entities: frozenset[str]) -> Cues:
    """Return the cues of a sentence from its lower-cased words, the stem of a verb or None for each, and its names."""
    sizes = range(1, LONGEST_MARKER + 1)  # words of a discourse marker at the beginning of the sentence
    marker_length = max((size for size in sizes if tuple(words[:size]) in MARKERS), default=0)  # of the longest
    first_word = words[marker_length] if marker_length < len(words) else ""  # after the marker
    remaining_words = words[marker_length:]  # after the marker
    remaining_verbs = verbs[marker_length:]
    return Cues(
        marker=marker_length > 0,
        pronoun=first_word in PRONOUNS or first_word in DEMONSTRATIVES,
        entities=entities,
        verbs=frozenset(verb for verb in verbs if verb is not None),
        definite=frozenset(_nouns_after(remaining_words, remaining_verbs, DEFINITE)),  # nouns after "the", "this", ...
        indefinite=frozenset(_nouns_after(remaining_words, remaining_verbs, INDEFINITE)),  # after "a", "another", ...
    )


_PHRASE = re.compile(rf"(?:{WORD.pattern})(?:[ -](?:{WORD.pattern}))*")  # words without punctuation between them


def _cased_names(sentences: Sequence[str]) -> list[frozenset[str]]:
    """Return the names in each sentence: runs of capitalized words, and the last word of each run, in lower case.

    "Marie Curie" gives "marie curie" and "curie". A single capitalized word at the beginning of a sentence is a name if
    it is capitalized within another sentence, too.
    """
    runs = [_capitalized_runs(sentence) for sentence in sentences]
    capitalized: set[str] = set()  # words that are capitalized within a sentence
    for begins_sentence, run in chain.from_iterable(runs):
        capitalized.update(run[1:] if begins_sentence else run)  # the first word of a sentence always is
    names = []
    for sentence_runs in runs:
        name_runs = [run for begins, run in sentence_runs if not begins or len(run) > 1 or run[0] in capitalized]
        full_and_last = [name for run in name_runs for name in (" ".join(run), run[-1])]
        names.append(frozenset(name.lower() for name in full_and_last))
    return names


def _capitalized_runs(sentence: str) -> list[tuple[bool, list[str]]]:
    """Return (whether it begins the sentence, words) for each run of capitalized content words, such as a name."""
    runs: list[tuple[bool, list[str]]] = []
    for phrase in _PHRASE.finditer(sentence):  # words without punctuation between them, which ends a run
        begins_sentence = not sentence[: phrase.start()].strip("\"'`“‘( ")  # only quotes and brackets before it
        open_run = None  # the run of the preceding word, the last one in `runs`; None if that word is in no run
        for number, match in enumerate(WORD.finditer(phrase.group())):
            word = match.group().removesuffix("'s")
            if not word[0].isupper() or word.lower() in STOP_WORDS or len(word) == 1:  # no content word, or an initial
                open_run = None
            elif open_run is not None:
                open_run.append(word)
            else:
                open_run = [word]
                runs.append((number == 0 and begins_sentence, open_run))
    return runs


def _word_pairs(words: Sequence[str], verbs: Sequence[str | None]) -> frozenset[str]:
    """Return pairs of neighboring content words that are not verbs, as candidates for names in lower-cased text."""
    may_be_name = [_is_content_word(word.lower()) and verb is None for word, verb in zip(words, verbs)]
    neighbors = zip(pairwise(words), pairwise(may_be_name))
    return frozenset(f"{first} {second}".lower() for (first, second), may_be in neighbors if all(may_be))


def _is_content_word(word: str) -> bool:
    return word not in STOP_WORDS and word not in _REPORTING and len(word) > 1


def verb_of(previous: str, word: str) -> str | None:
    """Return the stem of a verb, or None for other words; verbs are found by ending, preceding word or a list.

    The preceding word is empty at the beginning of a sentence; words capitalized inside a sentence are not verbs.
    """
    lower, previous = word.lower(), previous.lower()
    is_name = previous and word[0].isupper()  # the first word of a sentence has a capital in any case
    if is_name or lower in STOP_WORDS or lower in _NOT_VERBS or not word.isalpha():
        return None
    if lower in _IRREGULAR:
        return stem(_IRREGULAR[lower])
    is_participle = len(lower) > 4 and lower.endswith(("ed", "ing"))  # shorter words, such as "bed" and "king", are not
    is_noun = previous in DEFINITE  # "the wounded"
    return stem(lower) if (is_participle and not is_noun) or previous in _BEFORE_VERBS else None  # "to", "will"


def _nouns_after(words: Sequence[str], verbs: Sequence[str | None], determiners: frozenset[str]) -> list[str]:
    """Return the last of up to three content words that follow a determiner, before a verb ("the old *mill* burnt").

    `verbs` has a stem for each verb, else None. If the word ends in -s, it may be a verb: the one before it comes, too.
    """
    nouns = []
    for index, word in enumerate(words):
        if word not in determiners:
            continue
        phrase: list[str] = []
        for candidate, verb in zip(words[index + 1 : index + 4], verbs[index + 1 : index + 4]):
            is_verb = verb is not None and phrase  # directly after a determiner it is a noun: "the accused"
            if not _is_content_word(candidate) or not candidate.isalpha() or is_verb:
                break
            phrase.append(candidate)
        # a last word in -s may be a verb ("the otter swims"), and the word before it the noun: take both
        nouns += phrase[-2:] if phrase and phrase[-1].endswith("s") else phrase[-1:]
    return nouns


def deverbal(noun: str, verb: str) -> bool:
    """Return whether a noun may be derived from a verb, such as "resignation" from "resign"; `verb` is a stem.

    Either their stems are equal, or the noun without a suffix such as -ation, -ment or -al and the stem of the verb are
    nearly equal: one is a prefix of the other, has at least four letters and is at most two letters shorter.
    """
    if stem(noun) == verb:
        return True
    for suffix in _DEVERBAL:  # longest first; only the first that fits is tried
        if noun.endswith(suffix) and len(noun) - len(suffix) >= _MIN_SHARED:
            base = noun.removesuffix(suffix)
            short, long = sorted((base, verb), key=len)
            return len(short) >= _MIN_SHARED and long.startswith(short) and len(long) - len(short) <= _MAX_EXTRA
    return False
