"""ROUGE (Lin 2004): ROUGE-N, ROUGE-L and ROUGE-Lsum, of texts as lists of sentences."""

import multiprocessing
import re
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from itertools import starmap

from datamodules.text.rouge_counts import Counts, Score, count, score_of
from datamodules.text.rouge_words import Vocabulary, vocabulary, warn_without_words

VARIANTS = ("rouge1", "rouge2", "rougeLsum")
MULTI_REFERENCE = ("best", "mean", "pooled", "best_rouge1", "best_recall")

Sentences = Sequence[str]


def rouge_scores(
    prediction: Sentences,
    references: Sequence[Sentences],
    variants: Sequence[str] = VARIANTS,
    stem: bool | str = True,
    multi_reference: str = "best",
    language: str = "en",
    wordnet: str | None = None,
) -> dict[str, Score]:
    """Return the ROUGE precision, recall and F of one prediction for each variant.

    ROUGE-N is the clipped overlap of n-grams, ROUGE-L the longest common subsequence of the whole texts, ROUGE-Lsum
    the union of sentence-level subsequences (what ROUGE-1.5.5 calls ROUGE-L). With the defaults and one reference, the
    scores equal those of the package `rouge-score` with its stemmer.

    Args:
        prediction: sentences of the prediction; without any word it scores 0.
        references: each a list of sentences.
        variants: "rouge1", "rouge2", ..., "rougeL", "rougeLsum".
        stem: True for Porter as in `rouge-score`, "perl" for ROUGE-1.5.5's stemmer, False for none.
        multi_reference: how to combine several references: "best", the highest F of each variant (`rouge-score`);
            "mean", the means of precision, recall and F; "pooled", recall = sum of hits / sum of the references' units
            and precision = sum of hits / (references x units of the prediction) (ROUGE-1.5.5 -f A); "best_rouge1",
            every variant against the reference with the highest ROUGE-1 F (SciTLDR, Cachola et al. 2020);
            "best_recall", the highest recall of each variant (ROUGE-1.5.5 -f B). Ties go to the first reference.
        language: code of the language, which defines words and stems.
        wordnet: folder of WordNet's exception lists, for stem="perl".

    Raises:
        ValueError: for an empty reference (with its index), no reference, or an unknown variant or option.
        TypeError: if a text is a string instead of a list of sentences.
    """
    return _scores(None, prediction, references, variants, stem, multi_reference, language, wordnet)


def score_many(
    predictions: Sequence[Sentences],
    references: Sequence[Sequence[Sentences]],
    variants: Sequence[str] = VARIANTS,
    stem: bool | str = True,
    multi_reference: str = "best",
    language: str = "en",
    wordnet: str | None = None,
    num_proc: int = 1,
) -> list[dict[str, Score]]:
    """Return `rouge_scores` of many predictions, in order, computed by `num_proc` processes.

    Raises a `ValueError` as `rouge_scores` does, with the prediction's index, or if the lengths differ.
    """
    if len(predictions) != len(references):
        raise ValueError(f"{len(predictions)} predictions but {len(references)} lists of references")
    vocabulary(stem, language, wordnet)  # fills its cache: otherwise each process would repeat its warnings
    score = partial(
        _scores, variants=variants, stem=stem, multi_reference=multi_reference, language=language, wordnet=wordnet
    )
    jobs = zip(range(len(predictions)), predictions, references)  # first arguments of `_scores`
    if num_proc > 1 and len(predictions) > 1:
        with multiprocessing.get_context("fork").Pool(num_proc) as pool:  # fork: no second import of torch
            return pool.starmap(score, jobs)
    return list(starmap(score, jobs))


def signature(
    variant: str,
    stem: bool | str = True,
    multi_reference: str = "best",
    language: str = "en",
    wordnet: str | None = None,
    splitter: str = "given",
) -> str:
    """Return how a score was computed, such as "rougeLsum|stem:porter|tok:rouge|split:given|refs:best|precis:0.1.0".

    `splitter` names what splits texts into sentences, "given" for lists of sentences; the others: see `rouge_scores`.
    """
    _check_options((variant,), multi_reference)
    words = vocabulary(stem, language, wordnet)  # `description`: stemmer and tokenizer
    return f"{variant}|{words.description}|split:{splitter}|refs:{multi_reference}|precis:{suite_version()}"


def _check_options(variants: Sequence[str], multi_reference: str) -> None:
    """Raise a ValueError for unknown variants or options."""
    for variant in variants:
        if not re.fullmatch("rouge([1-9][0-9]*|L|Lsum)", variant):
            raise ValueError(f"unknown ROUGE variant {variant!r}; write rouge1, rouge2, ..., rougeL or rougeLsum")
    if multi_reference not in MULTI_REFERENCE:
        choices = ", ".join(MULTI_REFERENCE)
        raise ValueError(f"unknown combination of references {multi_reference!r}; choose one of {choices}")


def suite_version() -> str:
    """Return the version of the suite's package, or "source" if it is not installed."""
    try:
        return metadata.version("precis-suite")
    except metadata.PackageNotFoundError:
        return "source"


def has_text(sentences: Sentences) -> bool:
    return any(sentence and not sentence.isspace() for sentence in sentences)


def _scores(
    index: int | None,
    prediction: Sentences,
    references: Sequence[Sentences],
    variants: Sequence[str],
    stem: bool | str,
    multi_reference: str,
    language: str,
    wordnet: str | None,
) -> dict[str, Score]:
    """Return the result of `rouge_scores`; errors name the prediction by its `index`, None if it is the only one."""
    words = vocabulary(stem, language, wordnet)  # splits texts into words, stems and numbers them
    _check_options(variants, multi_reference)
    if isinstance(prediction, str) or isinstance(references, str):
        raise TypeError(f"ROUGE takes lists of sentences; {_where(index)} or its references are a text")
    if not references:
        raise ValueError(f"{_where(index)} has no reference")
    by_sentence = "rougeLsum" in variants
    hypothesis = _encode(prediction, words, by_sentence)
    counted = [*variants, "rouge1"] if multi_reference == "best_rouge1" else variants
    counts = []  # for each reference and variant, the numbers of shared, predicted and reference n-grams or words
    for number, reference in enumerate(references):
        if isinstance(reference, str):
            raise TypeError(f"ROUGE takes lists of sentences; reference {number} of {_where(index)} is a text")
        target = _encode(reference, words, by_sentence)
        if not any(target):  # no sentence has a word
            if not has_text(reference):
                raise ValueError(f"reference {number} of {_where(index)} is empty")
            warn_without_words(words.language)  # the text may be in another language
        counts.append(count(counted, hypothesis, target))
    if multi_reference == "best_rouge1":  # keep the same reference for all variants
        counts = [max(counts, key=lambda by_variant: score_of(*by_variant["rouge1"]).fmeasure)]
    return {variant: _combine([by_variant[variant] for by_variant in counts], multi_reference) for variant in variants}


def _encode(sentences: Sentences, words: Vocabulary, by_sentence: bool) -> list[list[int]]:
    """Encode words as integers: a list for each sentence or, if not `by_sentence`, one list for the whole text."""
    return [words.encode(sentence) for sentence in sentences] if by_sentence else [words.encode(" ".join(sentences))]


def _where(index: int | None) -> str:
    return "the prediction" if index is None else f"prediction {index}"


def _combine(counts: list[Counts], multi_reference: str) -> Score:
    """Score counts of shared, predicted and reference units (n-grams, words) of each reference; see `rouge_scores`."""
    if len(counts) == 1:
        return score_of(*counts[0])
    if multi_reference == "pooled":
        return score_of(*map(sum, zip(*counts)))  # sums of hits, predicted and reference units
    scores = [score_of(*reference_counts) for reference_counts in counts]
    if multi_reference == "mean":
        return Score(*(sum(values) / len(scores) for values in zip(*scores)))  # of precision, recall and F
    return max(scores, key=lambda score: score.recall if multi_reference == "best_recall" else score.fmeasure)
