"""Corpora made of another one: its own sentences as references for pre-training, and folds for cross-validation."""

import random
from collections.abc import Iterator
from dataclasses import replace

from datamodules.corpora.corpus import Corpus, make_document
from datamodules.documents import BadRecord, Record
from datamodules.text.gap_selection import Selection, select
from datamodules.text.language import language_of


class OwnSentences(Corpus):
    """Whole documents of another corpus, each with some of its own sentences as the reference.

    Pre-training on these pairs teaches a generative model to find and copy sentences; with `lead`, a few hundred steps
    suffice. It helps even where summaries are too few for a model without pre-training to learn to use the document.
    `GapSentenceData` is similar but removes the sentences from the document. Sentences are split and selected in one
    process, while the corpus is read.

    Args:
        corpus: corpus of the documents; references are not read.
        selection: `lead`, `random`, or a gap-sentence selection, see `gap_selection.select`.
        number: number of sentences, or all if a document has fewer; in the order of the document.
        language: code of the language, the same as in the DataModule.

    Raises:
        ValueError: if the selection does not exist, or the number is below 1.
    """

    def __init__(self, corpus: Corpus, selection: Selection = "lead", number: int = 1, language: str = "en") -> None:
        select([], 0, selection)  # raises an error if there is no such selection
        if number < 1:
            raise ValueError(f"corpus.number must be at least 1, got {number}")
        self.corpus = corpus
        self.selection = selection
        self.number = number
        self.language = language_of(language)

    def splits(self) -> list[str]:
        return self.corpus.splits()

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        for record in self.corpus.records(split):
            document = make_document(record, language=self.language.code)
            if isinstance(document, BadRecord):
                yield record  # unchanged: `build_documents` meets the same problem, and raises an error or skips it
                continue
            sentences = document.sentences
            rng = random.Random(record.id)  # so that a random choice does not depend on the documents before this one
            chosen = select(sentences, self.number, self.selection, rng=rng, language=self.language.code)
            yield replace(record, parts=document.parts, references=[[sentences[i] for i in chosen]])

    def fingerprint(self, split: str) -> str:  # identifies content and arguments, for the cache key
        arguments = " ".join([self.selection, str(self.number), *self.language.setting.values()])
        return f"own sentences 2 {arguments} of {self.corpus.fingerprint(split)}"  # 2: version of this class


class Folds(Corpus):
    """K-fold cross-validation on the training documents of another corpus.

    Record i of that corpus's `train`, counted from 0, belongs to fold i mod K, so that all folds are alike even if the
    corpus is sorted by source or date. `val` is one of the folds and `train` the others. The corpus's own `val` and
    `test` are not read: they are for the final score of the variant that is chosen by cross-validation.

    Args:
        corpus: corpus whose training documents are divided.
        fold: number of the fold that is held out, from 0 to `folds` - 1.
        folds: K.

    Raises:
        ValueError: if `folds` is below 2, or there is no such fold.
    """

    def __init__(self, corpus: Corpus, fold: int, folds: int = 5) -> None:
        if folds < 2 or not 0 <= fold < folds:
            raise ValueError(
                f"corpus.folds must be at least 2 and corpus.fold one of 0 to folds - 1; got {folds} and {fold}"
            )
        self.corpus = corpus
        self.fold = fold
        self.folds = folds

    def splits(self) -> list[str]:
        return ["train", "val"]

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        for index, record in enumerate(self.corpus.records("train")):
            split_of_record = "val" if index % self.folds == self.fold else "train"
            if split_of_record == split:
                yield record

    def fingerprint(self, split: str) -> str:  # identifies content and arguments, for the cache key
        return f"folds 1 {split} {self.fold} of {self.folds} of {self.corpus.fingerprint('train')}"  # 1: version
