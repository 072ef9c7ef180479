"""Novelty of summaries: novel n-grams and sentences, extractive fragments, repetition."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from datamodules.text.rouge_words import word_vocabulary

ORDERS = (1, 2, 3, 4)  # orders n of n-grams

Sentences = Sequence[str]


class Extraction(NamedTuple):
    """Extractiveness of a summary (Grusky et al. 2018, equations 1 to 3)."""

    coverage: float  # fraction of the summary's words that are in fragments copied from the source, in [0, 1]
    density: float  # mean over the summary's words of the length of their fragment, sum_f |f|^2 / |S|, in words
    compression: float  # words of the source for each word of the summary


def novelty(
    summary: Sentences, source: Sentences, orders: Sequence[int] = ORDERS, language: str = "en"
) -> dict[str, float | None]:
    """Return the fractions of n-grams and sentences of a summary that its source lacks (See et al. 2017, section 6.2).

    Every occurrence in the summary counts. N-grams do not cross sentences: they would be novel wherever the summary
    leaves out a sentence. A sentence is novel if no sentence of the source has exactly the same words. Words are
    lower-cased and not stemmed, punctuation is dropped. The fractions, in [0, 1], are named "novel_1" (and so on, for
    each n in `orders`) and "novel_sentences"; None if the summary has no such n-gram or sentence.
    """
    words, source_words = _encoded(summary, language), _encoded(source, language)  # integers, for each sentence
    shares = {f"novel_{n}": _novel_share(_ngrams(words, n), set(_ngrams(source_words, n))) for n in orders}
    sentences = [tuple(sentence) for sentence in words if sentence]
    shares["novel_sentences"] = _novel_share(sentences, set(map(tuple, source_words)))
    return shares


def _novel_share(units: Sequence[tuple[int, ...]], in_source: set[tuple[int, ...]]) -> float | None:
    """Return the fraction of units (n-grams or sentences) that the source lacks; None if there are no units."""
    return sum(unit not in in_source for unit in units) / len(units) if units else None


def repetition(summary: Sentences, orders: Sequence[int] = ORDERS, language: str = "en") -> dict[str, float | None]:
    """Return the fractions of repeated n-grams and sentences of a summary (See et al. 2017, figure 4).

    They are named "repeated_1" (to 4 by default) and "repeated_sentences": 1 - distinct / all, in [0, 1); None for a
    summary without such units. N-grams do not cross sentences, but are compared over the whole summary.
    """
    words = _encoded(summary, language)  # integers, for each sentence
    units_by_name = {f"repeated_{n}": _ngrams(words, n) for n in orders}
    units_by_name["repeated_sentences"] = [tuple(sentence) for sentence in words if sentence]
    return {name: 1 - len(set(units)) / len(units) if units else None for name, units in units_by_name.items()}


def repeated_ngrams(words: list[str], size: int = 3) -> float:
    """Return the fraction of n-grams, n = `size`, that repeat an earlier one, in [0, 1); 0 for fewer than n words."""
    ngrams = [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]
    return 1 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def extraction(summary: Sentences, source: Sentences, language: str = "en") -> Extraction | None:
    """Return coverage, density and compression of a summary (Grusky et al. 2018); None if it has no words."""
    words, source_words = (list(chain(*_encoded(text, language))) for text in (summary, source))
    if not words:
        return None
    lengths = [length for _, _, length in fragments(words, source_words)]  # lengths of copied fragments
    squares = sum(length * length for length in lengths)  # for density: each of a fragment's words counts its length
    return Extraction(sum(lengths) / len(words), squares / len(words), len(source_words) / len(words))


def fragments(summary: Sequence[Any], source: Sequence[Any]) -> list[tuple[int, int, int]]:
    """Return start in the summary, start in the source, and length of each extractive fragment, greedily in order.

    At each word, the longest matching sequence of the source is taken, the first one of equal ones. As in the paper
    (Grusky et al. 2018, figure 2), the search in the source skips matches, so it misses longer ones that begin inside.
    """
    positions: dict[Any, list[int]] = {}  # positions of each token in the source
    for position, token in enumerate(source):
        positions.setdefault(token, []).append(position)
    result, start = [], 0
    while start < len(summary):
        longest = longest_position = 0
        end = 0  # end of the previous match in the source
        for position in positions.get(summary[start], ()):
            if position < end:  # inside the previous match, skipped as in figure 2
                continue
            length, limit = 1, min(len(summary) - start, len(source) - position)  # the first tokens are equal
            while length < limit and summary[start + length] == source[position + length]:
                length += 1
            end = position + length
            if length > longest:
                longest, longest_position = length, position
        if longest:
            result.append((start, longest_position, longest))
        start += max(longest, 1)  # a word that the source lacks is in no fragment
    return result


def _encoded(sentences: Sentences, language: str) -> list[list[int]]:
    """Return the words of each sentence as integers, equal for equal words."""
    encode = word_vocabulary(language).encode
    return [encode(sentence) for sentence in sentences]


def _ngrams(sentences: list[list[int]], n: int) -> list[tuple[int, ...]]:
    return [gram for sentence in sentences for gram in zip(*(sentence[start:] for start in range(n)))]
