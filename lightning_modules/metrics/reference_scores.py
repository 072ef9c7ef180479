"""BLEU, chrF, METEOR and BERTScore of summaries, each computed by an established library.

All take the sentences of each prediction, and for each its references as lists of sentences; a text is its sentences
joined by spaces. Nothing is downloaded except models that are named by their name on the hub.
"""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.text.language import SPACELESS_LANGUAGES, language_of

Sentences = Sequence[str]
References = Sequence[Sequence[Sentences]]  # for each prediction, one or more references
_CHUNK = 500  # documents that sacrebleu counts at once, since it stores the n-grams of all their references


class CorpusScore(NamedTuple):
    """A corpus-level score that is not a mean over documents, such as BLEU."""

    statistics: NDArray[np.float64]  # K counts of each of N documents, such as n-gram matches, [N, K]
    score: Callable[[Sequence[float]], float]  # function from the sums of counts over documents to the score


class ScoreList(NamedTuple):
    """Scores x 100 of a set of predictions."""

    documents: list[float]  # score of each prediction; 0 for empty ones
    signature: str  # description of how the scores were computed
    corpus: CorpusScore | None = None  # score of the whole set, if it is not the mean over documents


def bleu(predictions: Sequence[Sentences], references: References, language: str = "en") -> ScoreList:
    """Return BLEU (Papineni et al. 2002) by `sacrebleu`, with summaries as segments, and its default smoothing.

    Its tokenizer is `zh` in Chinese, `char` in other languages without spaces between words, and else `13a`. Raises a
    `ModuleNotFoundError` without the library, a `ValueError` for empty references or lengths that differ.
    """
    metrics = _import_library("sacrebleu.metrics", score="BLEU", extra="bleu")
    primary = language_of(language).primary
    tokenizer = "char" if primary in SPACELESS_LANGUAGES else "13a"
    if primary == "zh":
        tokenizer = "zh"
    of_corpus = metrics.BLEU(force=True, tokenize=tokenizer)  # no warning about texts that look tokenized
    # a summary of under four words has no 4-gram: only the orders of n-grams that it has are averaged
    of_document = metrics.BLEU(effective_order=True, tokenize=tokenizer)
    return _sacrebleu("bleu", of_corpus, of_document, predictions, references)


def chrf(predictions: Sequence[Sentences], references: References) -> ScoreList:
    """Return chrF (Popović 2015) by `sacrebleu`; errors are those of `bleu`."""
    metric = _import_library("sacrebleu.metrics", score="chrF", extra="bleu").CHRF()
    return _sacrebleu("chrf", metric, metric, predictions, references)


def meteor(
    predictions: Sequence[Sentences], references: References, synonyms: bool = True, language: str = "en"
) -> ScoreList:
    """Return METEOR (Banerjee and Lavie 2005) by NLTK, on the words of the language, with the best reference.

    Exact words, Porter stems and, with `synonyms`, synonyms match; these need NLTK's WordNet data. Raises a
    `LookupError` if NLTK has no WordNet, and a `ValueError` as `bleu` does. An empty prediction scores 0.
    """
    from nltk.translate.meteor_score import meteor_score

    language_rules = language_of(language)
    _check_references(predictions, references)
    wordnet = _nltk_wordnet() if synonyms else SimpleNamespace(synsets=lambda word: [])  # finds no synonyms
    scores = []
    for prediction, targets in zip(predictions, references):
        target_words = [language_rules.words(_text(target)) for target in targets]
        predicted = language_rules.words(_text(prediction))
        scores.append(100 * meteor_score(target_words, predicted, wordnet=wordnet) if predicted else 0.0)
    matches = ("exact+stem+wordnet" if synonyms else "exact+stem") + language_rules.signature
    return ScoreList(scores, f"meteor|match:{matches}|refs:best|nltk:{metadata.version('nltk')}")


def has_wordnet() -> bool:
    """Return whether NLTK has WordNet; NLTK, slow to import, is not imported if no folder it searches has WordNet."""
    searched = [Path(name).expanduser() for name in os.environ.get("NLTK_DATA", "").split(os.pathsep) if name]
    parents = [Path.home(), Path(sys.prefix)]  # parents of NLTK's default folders
    parents += [Path(root, part) for root in (sys.prefix, "/usr", "/usr/local") for part in ("share", "lib")]
    searched += [parent / "nltk_data" for parent in parents]
    if "nltk" not in sys.modules and not any(list(folder.glob("corpora/wordnet*")) for folder in searched):
        return False
    try:
        _nltk_wordnet()
    except LookupError:
        return False
    return True


def bert_score(
    predictions: Sequence[Sentences],
    references: References,
    model: str,
    layer: int | None = None,
    batch_size: int = 64,
    device: str = "cpu",
) -> ScoreList:
    """Return BERTScore F1 (Zhang et al. 2020), without idf weights and rescaling, with the best reference of each text.

    It uses `bert-score`, as `torchmetrics` up to 1.9 sorts texts and references by length, which may mispair them.

    Args:
        model: folder, or name on the hub, which is downloaded.
        layer: hidden layer; None for the choice of the authors, or the last layer of models that they do not list.

    Raises:
        ModuleNotFoundError: without `bert-score`; the message says what to install.
        ValueError: for empty references, or if the numbers of predictions and of lists of references differ.
    """
    _check_references(predictions, references)
    scorer = bert_scorer(model, layer, batch_size, device)
    texts = [_text(prediction) for prediction in predictions]
    reference_texts = [[_text(reference) for reference in of_document] for of_document in references]
    scores = [100 * score for score in best_bert_scores(scorer, texts, reference_texts)]
    options = f"model:{model}|layer:{scorer.num_layers}|idf:no|rescaled:no|refs:best"
    version = metadata.version("bert-score")
    return ScoreList(scores, f"bertscore|{options}|bert-score:{version}")


def bert_scorer(model: str, layer: int | None, batch_size: int, device: str) -> Any:
    """Return the scorer of `bert-score` with a loaded model; arguments and errors as in `bert_score`."""
    from lightning_modules.networks.text_encoder import max_positions  # imports torch

    library = _import_library("bert_score", score="BERTScore", extra="bertscore")
    if layer is None:
        from transformers import AutoConfig

        layer = library.utils.model2layers.get(model) or AutoConfig.from_pretrained(model).num_hidden_layers
    device = None if device == "auto" else device  # None: `bert-score` takes a GPU if there is one
    scorer = library.BERTScorer(model_type=model, num_layers=layer, batch_size=batch_size, device=device)
    limit = max_positions(scorer._model.config) or 10**9  # the number of an unlimited tokenizer is too large
    scorer._tokenizer.model_max_length = min(scorer._tokenizer.model_max_length, limit)
    return scorer


def best_bert_scores(scorer: Any, texts: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """Return the F1 of each text with its best reference, in [0, 1]; 0 without a reference or text."""
    pairs = [
        (index, text, reference)
        for index, (text, targets) in enumerate(zip(texts, references))
        for reference in targets
        if text.strip() and reference.strip()
    ]
    best = [0.0] * len(texts)
    if pairs:
        _, _, f1 = scorer.score([text for _, text, _ in pairs], [reference for _, _, reference in pairs])
        for (index, _, _), value in zip(pairs, f1.tolist()):
            best[index] = max(best[index], value)
    return best


def _import_library(module: str, score: str, extra: str) -> ModuleType:
    """Import the module of a score's library; if missing, the error names the `extra` of this package to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ModuleNotFoundError(f"{score} needs {package}: pip install 'precis-suite[{extra}]'") from error


def _sacrebleu(
    name: str, corpus_metric: Any, document_metric: Any, predictions: Sequence[Sentences], references: References
) -> ScoreList:
    """Return scores of documents by a metric of sacrebleu, and the score of the corpus by another one."""
    _check_references(predictions, references)
    texts = [_text(prediction) for prediction in predictions]
    targets = [[_text(target) for target in targets] for targets in references]
    counts: list[list[int]] = []  # K counts for each document; an integer for each order of n-grams, and lengths
    for start in range(0, len(texts), _CHUNK):  # chunks bound memory
        chunk = slice(start, start + _CHUNK)
        counts += corpus_metric._extract_corpus_statistics(texts[chunk], _sacrebleu_references(targets[chunk]))
    documents = [document_metric._compute_score_from_stats(of_document).score for of_document in counts]
    statistics = np.array(counts, dtype=np.float64)                                  # [N, K]

    def score(sums: Sequence[float]) -> float:
        return corpus_metric._compute_score_from_stats([round(total) for total in sums]).score  # it needs integers

    # the signature states the fewest and most references of the last call, so this call is made for the signature only
    fewest_and_most = [min(targets, key=len), max(targets, key=len)]
    corpus_metric.corpus_score(["", ""], _sacrebleu_references(fewest_and_most))
    signature = f"{name}|{corpus_metric.get_signature()}"
    return ScoreList(documents, signature, CorpusScore(statistics, score))


def _sacrebleu_references(targets: Sequence[list[str]]) -> list[list[str | None]]:
    """Return references as sacrebleu takes them: the first of each document, then the second, ...; None if missing."""
    numbers = range(max(map(len, targets)))  # of the references of a document
    return [[target[number] if number < len(target) else None for target in targets] for number in numbers]


def _nltk_wordnet():
    """Return NLTK's WordNet; a `LookupError` says how to download it if it is missing."""
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except (LookupError, OSError):  # OSError: some of its files are missing
        raise LookupError(
            "METEOR's synonyms need NLTK's WordNet: python -m nltk.downloader wordnet (or synonyms=False)"
        ) from None
    return wordnet


def _check_references(predictions: Sequence[Sentences], references: References) -> None:
    """Raise a `ValueError` if the lengths differ, or if a prediction has no reference or an empty one."""
    if len(predictions) != len(references):
        raise ValueError(f"{len(predictions)} predictions but {len(references)} lists of references")
    for index, targets in enumerate(references):
        if not targets:
            raise ValueError(f"prediction {index} has no reference")
        for number, target in enumerate(targets):
            if not _text(target):
                raise ValueError(f"reference {number} of prediction {index} is empty")


def _text(sentences: Sentences) -> str:
    return " ".join(sentence.strip() for sentence in sentences).strip()
