"""All measures over a list of outputs: a score for each document, and a signature."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Literal, NamedTuple

import numpy as np

from datamodules.corpora.parallel import progress_bar
from datamodules.documents import UserError
from datamodules.text.language import count_words, language_of
from datamodules.text.rouge_words import word_vocabulary
from lightning_modules.metrics import reference_scores
from lightning_modules.metrics.novelty import extraction, novelty, repetition
from lightning_modules.metrics.reference_scores import CorpusScore, ScoreList
from lightning_modules.metrics.rouge import score_many, signature, suite_version
from precis.evaluation.predictions import Prediction
from precis.statistics.statistics import Array


@dataclass(frozen=True)
class ScoreOptions:
    """Options of the measures.

    Attributes:
        variants: variants of ROUGE, separated by commas.
        stem: Porter stems as in `rouge-score`, those of ROUGE-1.5.5 ("perl"), or none (false).
        multi_reference: how ROUGE combines references: the best F (best) or mean (mean) of each variant, sums of counts
            (pooled, ROUGE-1.5.5 -f A), best recall (best_recall, -f B), or best ROUGE-1 (best_rouge1, SciTLDR).
        language: ISO code of the language, which says what a word is; in English, ROUGE counts a-z and 0-9 alone. The
            code xx stands for any language, and counts words of any script.
        wordnet: folder with the exception lists of WordNet, for stem=perl.
        rouge_parts: "f", or "prf" to include precision and recall.
        meteor_synonyms: whether METEOR matches synonyms of WordNet.
        bertscore_model: Hugging Face model, a folder or a name (which is downloaded).
        bertscore_layer: hidden layer; by default the choice of the authors, or the last one.
        summac_model: Hugging Face NLI model, a folder or a name (which is downloaded).
        summac_conv: file with the weights of SummaC-Conv; SummaC-ZS by default.
        consistency_model: Hugging Face classifier of source and claim, such as MiniCheck, a folder or a name (which is
            downloaded).
        batch_size: number of texts or sentence pairs in a batch of a model.
        device: device of models: cpu, cuda, ..., or "auto" for a GPU if available.
        num_proc: number of processes that compute ROUGE.
    """

    variants: str = "rouge1,rouge2,rougeL,rougeLsum"
    stem: bool | Literal["perl"] = True
    multi_reference: Literal["best", "mean", "pooled", "best_rouge1", "best_recall"] = "best"
    language: str = "en"
    wordnet: str | None = None
    rouge_parts: Literal["f", "prf"] = "f"
    meteor_synonyms: bool = True
    bertscore_model: str | None = None
    bertscore_layer: int | None = None
    summac_model: str | None = None
    summac_conv: str | None = None
    consistency_model: str | None = None
    batch_size: int = 32
    device: str = "auto"
    num_proc: int = 1


class Scores(NamedTuple):
    """Scores by one measure."""

    values: Array  # score of each of N documents, [N]; NaN if undefined, such as novel bigrams of a one-word summary
    signature: str  # how the scores were computed, such as `rouge1|stem:...`
    corpus: CorpusScore | None = None  # the score of all documents, if it is not the mean of `values`


def lacking(metric: str, predictions: Sequence[Prediction], options: ScoreOptions) -> str | None:
    """Return a message: what is missing for a metric and how to provide it; None if it can be computed."""
    if metric in NEED_REFERENCES and not any(prediction.references for prediction in predictions):
        return "there are no references: add --references FILE, or name their field with --fields.references"
    # `read_predictions` has checked that all outputs have a document, or none has.
    if (metric in NEED_DOCUMENTS or is_plug_in(metric)) and predictions[0].document is None:
        return "there are no documents: add --documents FILE or --run RUN"
    package, extra = NEED_PACKAGES.get(metric, (None, None))  # `extra`: the pip extra that installs the package
    if package and importlib.util.find_spec(package) is None:
        return f"{package} is not installed: pip install 'precis-suite[{extra}]'"
    if metric in ("bertscore", "summac", "consistency") and getattr(options, f"{metric}_model") is None:
        return f"it needs a model: --{metric}_model NAME_OR_FOLDER"
    if metric == "meteor" and options.meteor_synonyms and not reference_scores.has_wordnet():
        return "NLTK has no WordNet: python -m nltk.downloader wordnet, or --meteor_synonyms false"
    return None


def score(predictions: Sequence[Prediction], metrics: Sequence[str], options: ScoreOptions) -> dict[str, Scores]:
    """Return the scores of all outputs by measure; a metric, such as `rouge`, has one or more measures (`rouge1`, ...).

    Metrics are keys of `METRICS` or import paths. Empty outputs score 0 in comparisons with references or sources, and
    have NaN for novelty, copying and repetition. A `UserError` if an output lacks references that a metric needs.
    """
    scores = {}
    if any(metric in NEED_REFERENCES for metric in metrics):
        for prediction in predictions:
            if not prediction.references:
                message = "it has no reference, but others have; give it one or leave it out"
                raise UserError(f"{prediction.where}: {message}")  # `lacking` has checked that some have
    with progress_bar() as progress:
        for metric in progress.track(metrics, description="metrics"):
            if is_plug_in(metric):
                scores |= plug_in_scores(metric, predictions)
            else:
                scores |= METRICS[metric](predictions, options)
    return scores


def _rouge(predictions: Sequence[Prediction], options: ScoreOptions) -> dict[str, Scores]:
    """Return F1 x 100 by variant of ROUGE; for `rouge_parts` "prf", also precision and recall, as `rouge1_recall`."""
    variants = [variant for variant in options.variants.replace(" ", "").split(",") if variant]
    if not variants:
        raise UserError(f"--variants {options.variants!r} names no variant of ROUGE; give rouge1, rouge2, rougeL, ...")
    settings = {name: getattr(options, name) for name in ("stem", "multi_reference", "language", "wordnet")}
    by_document = score_many(*_texts(predictions), variants, num_proc=options.num_proc, **settings)
    parts = {"": "fmeasure"}  # suffix of the measure's name -> attribute of the ROUGE score
    if options.rouge_parts == "prf":
        parts |= {"_precision": "precision", "_recall": "recall"}
    elif options.rouge_parts != "f":
        raise UserError(f"rouge_parts is {options.rouge_parts!r}; give f or prf")
    scores = {}
    for variant in variants:
        signed = signature(variant, splitter=_splitter(predictions), **settings)  # rouge1|..., begins with the variant
        for suffix, part in parts.items():
            values = np.array([100 * getattr(document_scores[variant], part) for document_scores in by_document])
            scores[variant + suffix] = Scores(values, signed.replace(variant, variant + suffix, 1))
    return scores


def _fragments(predictions: Sequence[Prediction], options: ScoreOptions) -> dict[str, Scores]:
    """Return coverage (in percent), density and compression of Grusky et al. 2018; NaN for a summary without words."""
    words = word_vocabulary(options.language).description  # what a word is, for the signature
    statistics = [extraction(p.summary, p.document, options.language) for p in predictions]  # None without words
    scores = {}
    for name, factor in {"coverage": 100, "density": 1, "compression": 1}.items():
        values = [factor * getattr(each, name) if each else None for each in statistics]
        scores[name] = _sign_scores(name, values, predictions, words)
    return scores


def _bertscore(predictions: Sequence[Prediction], options: ScoreOptions) -> dict[str, Scores]:
    model = {"model": options.bertscore_model, "layer": options.bertscore_layer, "batch_size": options.batch_size}
    return {"bertscore": _scores_of(reference_scores.bert_score(*_texts(predictions), device=options.device, **model))}


def _summac(predictions: Sequence[Prediction], options: ScoreOptions) -> dict[str, Scores]:
    """Return SummaC x 100 (Laban et al. 2022): SummaC-Conv if options name its weights, else SummaC-ZS (zero-shot)."""
    from lightning_modules.metrics.summac import EntailmentModel, SummaCConv, summac_scores  # imports torch

    model = EntailmentModel(options.summac_model, options.batch_size, device=options.device)
    conv = SummaCConv.load(options.summac_conv) if options.summac_conv else None
    values = _score_in_parts("summac", predictions, partial(summac_scores, model, conv))
    kind = f"conv({options.summac_conv})" if options.summac_conv else "zs"
    kind += language_of(options.language).signature  # the language by whose rules documents are split into sentences
    return {"summac": _sign_scores("summac", values, predictions, f"model:{options.summac_model}|kind:{kind}")}


def _consistency(predictions: Sequence[Prediction], options: ScoreOptions) -> dict[str, Scores]:
    """Return consistency x 100 of summaries with sources, by a classifier of (source chunk, claim) like MiniCheck."""
    from lightning_modules.metrics.pair_classifier import CHUNK_WORDS, ConsistencyModel  # imports torch

    model = ConsistencyModel(options.consistency_model, options.batch_size, device=options.device)
    values = _score_in_parts("consistency", predictions, model.scores)
    supported_class = model.class_names[model.supported]  # class whose probability is the score
    settings = f"model:{options.consistency_model}|class:{supported_class}|chunk:{CHUNK_WORDS}"
    settings += language_of(options.language).signature  # of the sentence splitting
    return {"consistency": _sign_scores("consistency", values, predictions, settings)}


def _score_in_parts(
    name: str, predictions: Sequence[Prediction], scorer: Callable[[list[list[str]], list[list[str]]], list[float]]
) -> list[float]:
    """Return 100 x `scorer(summaries, documents)` for texts as lists of sentences; `name` labels the progress bar."""
    values: list[float] = []
    with progress_bar() as progress:
        for start in progress.track(range(0, len(predictions), DOCUMENTS_AT_A_TIME), description=name):
            part = predictions[start : start + DOCUMENTS_AT_A_TIME]  # to limit memory, which grows with sentence pairs
            values += scorer([prediction.summary for prediction in part], [p.document for p in part])
    return [100 * value for value in values]


METRICS: dict[str, Callable[[Sequence[Prediction], ScoreOptions], dict[str, Scores]]] = {
    "rouge": _rouge,
    "bleu": lambda predictions, options: {
        "bleu": _scores_of(reference_scores.bleu(*_texts(predictions), options.language))
    },
    "chrf": lambda predictions, options: {"chrf": _scores_of(reference_scores.chrf(*_texts(predictions)))},
    "meteor": lambda predictions, options: {
        "meteor": _scores_of(reference_scores.meteor(*_texts(predictions), options.meteor_synonyms, options.language))
    },
    "bertscore": _bertscore,
    "summac": _summac,
    "consistency": _consistency,
    "novelty": lambda predictions, options: _shares(
        predictions, options, [novelty(p.summary, p.document, language=options.language) for p in predictions]
    ),
    "fragments": _fragments,
    "repetition": lambda predictions, options: _shares(
        predictions, options, [repetition(p.summary, language=options.language) for p in predictions]
    ),
    "length": lambda predictions, options: {
        "words": _sign_scores("words", [count_words(p.summary) for p in predictions], predictions, "tok:whitespace")
    },
}
NEED_REFERENCES = {"rouge", "bleu", "chrf", "meteor", "bertscore"}
NEED_DOCUMENTS = {"novelty", "fragments", "summac", "consistency"}
NEED_PACKAGES = {"bleu": ("sacrebleu", "bleu"), "chrf": ("sacrebleu", "bleu"), "bertscore": ("bert_score", "bertscore")}
DOCUMENTS_AT_A_TIME = 64  # number of documents in a call of a scorer in `_score_in_parts`


def _texts(predictions: Sequence[Prediction]) -> tuple[list[list[str]], list[list[list[str]]]]:  # sentences
    return [prediction.summary for prediction in predictions], [prediction.references for prediction in predictions]


def _scores_of(result: ScoreList) -> Scores:
    return Scores(np.array(result.documents), result.signature, result.corpus)


def _shares(
    predictions: Sequence[Prediction], options: ScoreOptions, shares: list[dict[str, float | None]]
) -> dict[str, Scores]:
    """Return percentages by measure, NaN for None; `shares`: for each output, shares in [0, 1] by measure."""
    percentages = {name: [None if each[name] is None else 100 * each[name] for each in shares] for name in shares[0]}
    words = word_vocabulary(options.language).description  # what a word is, for the signature
    return {name: _sign_scores(name, values, predictions, words) for name, values in percentages.items()}


def _sign_scores(name: str, values: Sequence[float | None], predictions: Sequence[Prediction], settings: str) -> Scores:
    """Return `values`, NaN for None, as scores by a measure of this suite, with its `settings` in the signature."""
    signed = f"{name}|{settings}|split:{_splitter(predictions)}|precis:{suite_version()}"
    return Scores(np.array(values, dtype=np.float64), signed)


def _splitter(predictions: Sequence[Prediction]) -> str:
    """Return the name of the sentence splitter of outputs and references; several names are joined by +."""
    return "+".join(sorted({prediction.split for prediction in predictions}))


def is_plug_in(name: str) -> bool:
    """Return whether the name of a metric is the import path of a class."""
    return "." in name


def plug_in_scores(path: str, predictions: Sequence[Prediction]) -> dict[str, Scores]:
    """Return the scores of all summaries by a user's class, under the name of its measure.

    The class is named by its import path, also of a module in the working folder (the commands add it to `sys.path`),
    and constructed without arguments. Its method `score(documents, summaries)` returns a number for each pair of
    texts, NaN where there is none. Optional attributes: `name` of the measure, the class's name in lower case by
    default; `signature`, what the scores depend on, such as the name of a model.

    Raises:
        UserError: if there is no such class, or it returns anything but a number for each summary.
    """
    module, _, name = path.rpartition(".")
    try:
        metric_class = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"--metrics {path}: {error}; give the import path of a class, as my_metrics.Mine") from None
    if not callable(getattr(metric_class, "score", None)):
        raise UserError(f"--metrics {path}: it has no method score(documents, summaries); write one")
    metric = metric_class()  # a user's code, so its result is checked below
    documents = [" ".join(prediction.document) for prediction in predictions]
    returned = metric.score(documents, [" ".join(prediction.summary) for prediction in predictions])
    try:
        values = np.array(list(returned), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"--metrics {path}: its scores are not numbers ({error}); return one per summary") from None
    if values.shape != (len(predictions),):
        count = f"{len(values)} scores" if values.ndim == 1 else f"an array of shape {values.shape}"
        raise UserError(f"--metrics {path}: {count} for {len(predictions)} summaries; return a number per summary")
    measure = getattr(metric, "name", name.lower())
    settings = getattr(metric, "signature", "unknown")
    return {measure: Scores(values, f"{measure}|{path}|{settings}|split:{_splitter(predictions)}")}
