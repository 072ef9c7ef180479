"""Folds of the training documents of a corpus, for cross-validation."""

from collections.abc import Iterator

from datamodules.corpora.corpus import Corpus
from datamodules.documents import BadRecord, Record


class Folds(Corpus):
    """K-fold cross-validation on the training documents of another corpus.

    Record i of that corpus's `train`, counted from 0, belongs to fold i mod K: in a corpus sorted by source or date all
    folds are alike. `val` is one of the folds and `train` the others. The corpus's own `val` and `test` are not read:
    variants are chosen on the folds, and the chosen one is scored on them once.

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
        self.corpus, self.fold, self.folds = corpus, fold, folds

    def splits(self) -> list[str]:
        return ["train", "val"]

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        for number, record in enumerate(self.corpus.records("train")):
            held_out = number % self.folds == self.fold
            if held_out == (split == "val"):
                yield record

    def fingerprint(self, split: str) -> str:
        return f"folds 1 {split} {self.fold} of {self.folds} of {self.corpus.fingerprint('train')}"
