"""Stems of content words."""

import re
from functools import lru_cache

from datamodules.text.language import language_of
from datamodules.text.porter import nltk_porter

# letters and digits of any script, with inner apostrophes ("don't"; "n't" is a separate token in tokenized text)
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")

# Articles, pronouns, prepositions, conjunctions, auxiliaries and common adverbs.
_STOP_WORDS = """
a an the this that these those such some any no none each every either neither both all half other another same own
i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself we us
our ours ourselves they them their theirs themselves one ones who whom whose which what whatever whoever
and or but nor so yet if then else than because although though unless until while whereas whether as since
of in on at by for with without within about above below over under up down out off into onto from to toward towards
through during before after again against between among along across around behind beside besides beyond near per
via upon except despite like unlike
am is are was were be been being have has had having do does did doing done will would shall should can could may
might must ought cannot
not never ever only just also too very more most much many few less least several enough quite rather almost even
still already again further here there where when why how now once always often sometimes usually
n't 's 're 've 'll 'd 'm s t d ll m re ve
ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't mightn't mustn't needn't shan't
shouldn't wasn't weren't won't wouldn't i'm i've i'd i'll you're you've you'd you'll he's he'd he'll she's she'd
she'll it's it'd it'll we're we've we'd we'll they're they've they'd they'll that's that'd there's there'd who's
who'd who'll what's let's
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, with ' for ’ and without punctuation."""
    return WORD.findall(text.replace("’", "'").lower())


def content_stems(text: str, language: str = "en") -> list[str]:
    """Return the stems of the words of a text in order; in English, function words and single letters are left out."""
    rules = language_of(language)
    if not rules.is_english:  # no list of function words, and some languages have no stemmer
        return [rules.stem(word) if rules.stem else word for word in rules.words(text)]
    return [stem(word) for word in words(text) if word not in STOP_WORDS and (len(word) > 1 or word.isdigit())]


@lru_cache(maxsize=262_144)
def stem(word: str) -> str:
    """Return the Porter stem of a lower-case word; words of at most three characters or with digits stay unchanged."""
    word = word.removesuffix("'s")
    return nltk_porter(word) if len(word) > 3 and word.isalpha() else word
