"""Trained runs from Python: the same loading, decoding and scoring as in the commands."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any, overload

import pandas as pd
from jsonargparse import ArgumentError

from datamodules.corpora.corpus import Corpus, as_document
from datamodules.corpora.files import Files
from datamodules.corpora.texts import Records
from datamodules.documents import Document, UserError
from datamodules.summarization import SummarizationData
from lightning_modules.extractive.lexrank import LexRank
from lightning_modules.summarizer import Summarizer, Summary
from precis.api.arguments import Text, checked, metric_names, text_row, text_rows
from precis.config.parse_errors import explain
from precis.evaluation.evaluate import evaluate_predictions
from precis.evaluation.predictions import Prediction
from precis.evaluation.scorers import ScoreOptions
from precis.runs.run_folder import run_documents
from precis.statistics.statistics import RESAMPLES
from precis.summarizing.hugging_face import HuggingFaceSummarizer, TextDocuments
from precis.summarizing.summarizing import changed_options, load_model, quiet_progress, summarize_all
from precis.summarizing.summary_options import PretrainedOptions


@dataclass(frozen=True)
class Evaluation:
    """Summaries of documents with references, and their scores.

    Attributes:
        summaries: one for each document, with its own `scores`.
        scores: a row for each measure: `mean`, `low` and `high` (95 % bootstrap interval over documents), `documents`
            (number of those with a score) and `signature` (how it was computed).
        left_out: for each metric that was not computed, the reason.
    """

    summaries: list[Summary]
    scores: pd.DataFrame
    left_out: dict[str, str]


class Run:
    """A model with its tokenizer and options, ready to summarize; arguments and errors as in `precis.load`."""

    def __init__(self, path: str | Path, checkpoint: str | Path | None = None, **options: Any) -> None:
        checked("path", path, str | Path, "the folder of a run, or the name of a model")
        checked("checkpoint", checkpoint, str | Path | None, "the file of a checkpoint")
        self.path = Path(path)
        self._folder = TemporaryDirectory(prefix="precis-")  # cache of parses and features, removed with this object
        self._lock = RLock()  # options of the model are changed during a call, so only one thread may use it
        checkpoint_path = Path(checkpoint) if checkpoint else None  # None: the best one
        try:
            pretrained = PretrainedOptions(**options)  # of which a run of this suite takes only `generation`
            # no limit on evaluated documents, whatever the config of the run says
            loaded = load_model(path, checkpoint_path, options=pretrained, cache_dir=self._folder.name, max_eval=None)
        except ArgumentError as error:  # a config of the run that this version does not read
            raise UserError(f"{self.path}: {explain(str(error), 'fit')}") from None  # its remedy is `precis fit --help`
        except TypeError as error:  # an unknown name in `options`
            options_of_models = ", ".join(PretrainedOptions.__dataclass_fields__)
            raise UserError(f"{error}; a model of Hugging Face has {options_of_models}") from None
        self.model: Summarizer | HuggingFaceSummarizer | LexRank = loaded.model
        self.data: SummarizationData | TextDocuments = loaded.data
        self.config: dict[str, Any] = loaded.config
        self._generation = pretrained.generation if self.config else {}  # a model of Hugging Face has them by now

    def __repr__(self) -> str:
        return f"<precis.Run {str(self.path)!r}: {type(self.model).__name__}>"

    @overload
    def summarize(self, texts: Text, *, batch_size: int = 16, **options: Any) -> Summary: ...
    @overload
    def summarize(self, texts: Sequence[Text], *, batch_size: int = 16, **options: Any) -> list[Summary]: ...

    def summarize(
        self, texts: Text | Sequence[Text], *, batch_size: int = 16, **options: Any
    ) -> Summary | list[Summary]:
        """Summarize a text, or several.

        Args:
            texts: a text, or a list of texts. A mapping with `document` (a string, or a list of paragraphs or source
                documents) and perhaps `id` and `summary` (the reference) may stand for a text.
            batch_size: number of documents that go through the model together.
            options: changed decoding options, such as `beam_size=4` or `max_length=60`, or options of sentence
                selection for extractive models, such as `k=2`; generation settings for a model of Hugging Face.

        Returns:
            A `Summary`, or a list of them, with `text` and `sentences`; for models that copy words from the document,
            `words` and whether each is `copied`; for extractive models, `positions` (of the selected sentences),
            `sentence_scores` and `document`; `scores` if there is a reference.

        Raises:
            UserError: if a text is empty, or the model has no such option.
        """
        is_single = isinstance(texts, (str, Mapping, Document))
        with self._data_over(Records(text_rows(texts)), batch_size) as data:
            summaries = self._summarize(data, options)
        return summaries[0] if is_single else summaries

    def evaluate(
        self,
        documents: str | Path | Corpus | Sequence[Text] = "test",
        *,
        metrics: str | Sequence[str] | None = None,
        batch_size: int = 16,
        resamples: int = RESAMPLES,
        seed: int = 0,
        score_options: ScoreOptions | None = None,
        **options: Any,
    ) -> Evaluation:
        """Summarize documents that have references, and score the summaries as `precis evaluate` does.

        Args:
            documents: a split of the run's own corpus (`"test"`, `"val"`), a file of records (`.jsonl`, `.csv`,
                `.parquet`), a corpus with a test split, or a list of mappings with `document` and `summary`.
            metrics: names of `precis evaluate --metrics`; by default all that can be computed.
            batch_size: number of documents that are summarized together.
            resamples: number of resamples of the bootstrap.
            seed: seed of the bootstrap.
            score_options: options of the metrics; by default the defaults of `ScoreOptions`, in the run's language.
            options: as in `summarize`.

        Raises:
            UserError: if the documents cannot be read, or a score cannot be computed.
        """
        names = metric_names(metrics)
        checked("resamples", resamples, int, "a whole number")
        checked("seed", seed, int, "a whole number")
        checked("score_options", score_options, ScoreOptions | None, "a ScoreOptions")
        with self._data_over(self._corpus(documents), batch_size) as data:
            # `data` has the documents as its test split, even if they come from another split of a corpus
            sources = {record["id"]: as_document(record).sentences for record in data.documents("test")}
            summaries = self._summarize(data, options)
        predictions = []
        for summary in summaries:
            where, source = f"document {summary.id!r}", sources[summary.id]  # where: names it in error messages
            predictions.append(Prediction(summary.id, where, summary.sentences, summary.references, source))
        score_options = score_options or ScoreOptions(language=self.model.language)
        evaluated = evaluate_predictions(predictions, names, score_options, resamples, seed)
        frame = pd.DataFrame(evaluated.means).drop(columns="system").set_index("measure")  # this run is the only system
        return Evaluation(summaries, frame, evaluated.left_out)  # left_out: reasons by metric

    def _corpus(self, documents: str | Path | Corpus | Sequence[Text]) -> Corpus:
        """Return a corpus whose test split is the argument `documents` of `evaluate`."""
        if isinstance(documents, Corpus):
            return documents
        if isinstance(documents, str) and documents in ("train", "val", "test"):
            if not (self.path / "config.yaml").is_file():  # a model by its name, which brings no documents along
                raise UserError(f"{self.path}: it has no documents of its own; give a file, a corpus or a list")
            return Records([text_row(as_document(record)) for record in run_documents(self.path, documents)])
        if isinstance(documents, (str, Path)):
            return Files(test=str(documents))
        return Records(text_rows(documents))

    @contextmanager
    def _data_over(self, corpus: Corpus, batch_size: int) -> Iterator[SummarizationData | TextDocuments]:
        """Yield the run's DataModule with the test split of `corpus`; files that it caches are removed at the end."""
        if checked("batch_size", batch_size, int, "a whole number") < 1:
            raise UserError(f"batch_size must be at least 1, got {batch_size}")
        with TemporaryDirectory(dir=self._folder.name) as cache, quiet_progress():
            yield self.data.with_corpus(corpus, Path(cache), batch_size)

    def _summarize(self, data: SummarizationData, options: Mapping[str, Any]) -> list[Summary]:
        """Summarize the test split of `data`, in order; `options` replace those of the model during this call."""
        with self._lock, changed_options(self.model, {**self._generation, **options}):
            return self.model.scored(list(summarize_all(self.model, data)))  # with ROUGE where there are references


def load(path: str | Path, checkpoint: str | Path | None = None, **options: Any) -> Run:
    """Load a summarizer.

    Args:
        path: the name of a model that comes with the suite (`extractive`, `small`, `lexrank`, or `docstring` for Python
            docstrings), a run folder of `precis fit`, a folder of `precis export`, the name of an exported model on the
            hub, or the folder or name of a summarizer or chat model of Hugging Face.
        checkpoint: path of a checkpoint to use instead of the run's best one.
        options: of a model of Hugging Face, see `PretrainedOptions`: `generation`, `prompt`, `long_documents` ...;
            `lexrank` takes `language`, a run decoding options as `generation`.

    Raises:
        UserError: if there is no such model, its checkpoint does not fit, or an option is refused.
    """
    return Run(path, checkpoint, **options)
