"""LexRank as a model without weights, for texts in any language."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from datamodules.batch import Batch, pair_mask
from datamodules.documents import Document
from datamodules.text.language import language_of, warn_if_not_english
from datamodules.text.sentence_layout import pairs_with_common_ngram
from datamodules.text.term_vectors import stem_counts, tf_idf
from lightning_modules.extractive.baselines import lexrank_scores
from lightning_modules.extractive.scoring import cosines, document_cosine
from lightning_modules.extractive.selection import Relations, SelectionOptions
from lightning_modules.extractive.summary import ExtractiveSummary, extract
from lightning_modules.summarizer import Summarizer


class LexRank(nn.Module):
    """LexRank (Erkan and Radev 2004) with the length limits and selectors of trained extractive models.

    Args:
        language: code of the language, which defines words and stems.

    Attributes:
        selection: how many sentences are selected, and by which selector.
    """

    scored = Summarizer.scored

    def __init__(self, language: str = "en") -> None:
        super().__init__()
        self.language = language_of(language).code  # a `UserError` if it is none
        self.selection = SelectionOptions()

    def sentence_scores(self, sentences: Sequence[str]) -> Tensor:
        """Return the LexRank of L sentences, divided by the highest one, in [0, 1], [L]."""
        ranks = torch.from_numpy(lexrank_scores(sentences, language=self.language))
        return (ranks / ranks.max()).round(decimals=9)  # makes ranks equal that differ by rounding only

    def summarize(self, batch: Batch) -> list[ExtractiveSummary]:
        """Return a summary of each of `batch.documents`."""
        if language_of(self.language).is_english:
            texts = (document.text for document in batch.documents)
            warn_if_not_english(f"sentences and words of LexRank in language {self.language!r} are English", texts)
        return [self._summarize(document) for document in batch.documents]

    def _summarize(self, document: Document) -> ExtractiveSummary:
        sentences = document.sentences
        scores = self.sentence_scores(sentences).unsqueeze(0)                        # [1, L]
        relations = None if self.selection.selector == "top_k" else self._relations(sentences)
        candidates = torch.ones_like(scores, dtype=torch.bool)  # all sentences
        references = [document.references]
        return extract([document.id], references, [sentences], scores, candidates, relations, self.selection)[0]

    def _relations(self, sentences: Sequence[str]) -> Relations:
        """Return similarities and shared trigrams of L sentences, by tf-idf, as a batch of one document."""
        vectors = torch.from_numpy(tf_idf(stem_counts(sentences, self.language))).unsqueeze(0)  # [1, L, words]
        tokens = list(map(language_of(self.language).tokenize, sentences))
        return Relations(
            similarity=cosines(vectors, vectors),
            to_document=document_cosine(vectors, vectors.sum(1)),
            shared=pair_mask([pairs_with_common_ngram(tokens)], len(sentences)),
        )
