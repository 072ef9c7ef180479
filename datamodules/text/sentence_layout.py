"""Layout of documents: where sentences stand, how long they are, whether they are prose, and which share trigrams."""

import math
from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from datamodules.batch import pad
from datamodules.text.language import language_of, length_words
from datamodules.text.term_vectors import common_terms, cosines, pagerank, stem_counts, tf_idf

NUM_FEATURES = 13
TEXTRANK = 11  # index of TextRank; LexRank, weighted by the cosine, is the last
_DAMPING = 0.85  # of TextRank and LexRank, as in PageRank
_RANKED = 1000  # sentences that are compared with each other, since time and memory grow with the square
PROSE = 4  # index of the feature that is 1 for sentences of prose
LOG_BEFORE = 1  # index of log(1 + sentences of prose before) / 3
LOG_SIZE = 5  # index of log(sentences of prose) / 5
_MIN_WORDS = 4  # of a sentence of prose; shorter lines are headings, greetings or signatures
_MAX_WORDS = 80  # longer sentences count as this long
_ENDS = tuple(".!?\"'”’:)：）」』")


def layout_features(documents: Sequence[Sequence[str]], language: str = "en") -> Tensor:
    """Return 13 features of up to L sentences of B documents: position, length, final mark, ranks, [B, L, 13].

    Positions count sentences of at least 4 words with a final mark (prose), not titles and greetings. Padding is 0.
    """
    is_sentence = pad([[1] * len(sentences) for sentences in documents]).float()  # 0 at padding, [B, L]
    # number of words, [B, L]; 1 for sentences that end with a stop, quote or bracket, [B, L]
    words = pad([[min(len(length_words(text)), _MAX_WORDS) for text in sentences] for sentences in documents]).float()
    marks = (*_ENDS, *language_of(language).sentence_ends)  # in Thai and Lao with the space, which ends each sentence
    is_end = [[" " in marks or text.rstrip().endswith(marks) for text in sentences] for sentences in documents]
    ends = pad(is_end, dtype=torch.float)
    prose = (words >= _MIN_WORDS) * ends  # 1 for sentences of prose, 0 for titles, bylines, ..., [B, L]
    before = prose.cumsum(1) - prose  # number of sentences of prose before each one, [B, L]
    size = prose.sum(1, keepdim=True).clamp(min=1)  # number of sentences of prose, [B, 1]
    averaged = torch.where(prose.any(1, keepdim=True), prose, is_sentence)  # all if no sentence is prose, [B, L]
    mean_words = (words * averaged).sum(1, keepdim=True) / averaged.sum(1, keepdim=True).clamp(min=1)  # [B, 1]
    ranks = [_ranks(sentences, language) for sentences in documents]  # (TextRank, LexRank) of each document
    features = torch.stack(
        [
            before / size,  # relative position
            (before + 1).log() / 3,  # the divisors 3, 5 and 25 bring features of usual documents to about [0, 1]
            (size - before).clamp(min=1).log() / 5,  # sentences of prose from this one on
            (before == 0) * prose,  # the first sentence of prose
            prose,
            size.log().expand_as(before) / 5,  # sentences of prose in the document
            words.clamp(min=1).log() / math.log(_MAX_WORDS),  # length
            (words < _MIN_WORDS).float(),  # a heading, greeting or signature
            ends,  # whether it ends with a stop, quote or bracket
            (mean_words / 25).expand_as(before),  # mean length of the document's sentences
            (words > 2 * mean_words).float(),  # an unusually long sentence
            *(pad(kind, dtype=torch.float) for kind in zip(*ranks)),  # TextRank and LexRank
        ],
        -1,
    )
    return features * is_sentence.unsqueeze(-1)


def _ranks(sentences: Sequence[str], language: str) -> tuple[list[float], list[float]]:
    """Return TextRank and LexRank of each sentence in its part (`_RANKED` sentences), scaled to a mean of 1."""
    textrank, lexrank = [], []
    for start in range(0, len(sentences), _RANKED):  # in parts: time and memory grow with the square of the number
        counts = stem_counts(sentences[start : start + _RANKED], language)  # of V stems in L sentences, [L, V]
        textrank += (len(counts) * pagerank(common_terms(counts), _DAMPING)).tolist()
        lexrank += (len(counts) * pagerank(cosines(tf_idf(counts)), _DAMPING)).tolist()
    return textrank, lexrank


def pairs_with_common_ngram(words: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Return sorted index pairs (i, j), i < j, of sentences (as words) that share a trigram, for trigram blocking."""
    sentences_with: dict[tuple[str, ...], set[int]] = {}  # trigram -> indices of sentences
    for index, sentence in enumerate(words):
        for trigram in zip(sentence, sentence[1:], sentence[2:]):
            sentences_with.setdefault(trigram, set()).add(index)
    pairs: set[tuple[int, int]] = set()
    for indices in sentences_with.values():
        pairs.update(combinations(sorted(indices), 2))
    return sorted(pairs)
