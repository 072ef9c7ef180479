"""`RunScorer`: a trained extractive model that proposes the candidates of another model."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import torch

from datamodules.batch import groups_by_length, pools
from datamodules.documents import Document, UserError
from datamodules.text.hashing import file_digest
from lightning_modules.checkpoints import best_checkpoint
from precis.runs.run_folder import Run, load_run

SCORES_VERSION = 2  # 2: sentences that the run never learned to score are ranked last


class RunScorer:
    """Scores sentences with the run of an extractive model (`BertSum`).

    Args:
        run: run folder.
        batch_tokens: maximum number of tokens in a batch, padding included; a longer document is a batch of its own.
        pool: number of documents that are in memory at a time, and are batched by length.

    Raises:
        ValueError: if `pool` is below 1.
        UserError: on use, if the folder has no checkpoint, or its model scores no sentences.
    """

    def __init__(self, run: Path, batch_tokens: int = 16_384, pool: int = 512) -> None:
        if pool < 1:
            raise ValueError(f"data.scorer.pool must be at least 1, got {pool}")
        self.run = Path(str(run))
        self.batch_tokens = batch_tokens
        self.pool = pool

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the best checkpoint of the run, with the version of the scorer."""
        return f"{file_digest(best_checkpoint(self.run))}-{SCORES_VERSION}"

    def sentence_scores(self, documents: Iterable[Document]) -> Iterator[list[float]]:
        """Yield for each document the scores of its sentences.

        Scores are in (0, 1). Sentences that the run has not learned to score have 0, so they are ranked last: sentences
        with fewer words than its `min_words`, with more than `max_words`, or after its `max_source`.
        """
        run = load_run(self.run)
        if not hasattr(run.model, "sentence_scores"):
            raise UserError(f"{self.run}: {type(run.model).__name__} scores no sentences; give a run of BertSum")
        run.model.to("cuda" if torch.cuda.is_available() else "cpu")
        # Not `yield`, which would delay the error above until the first scores are read.
        return (scores for pool in pools(documents, self.pool) for scores in self._pool_scores(run, pool))

    def _pool_scores(self, run: Run, documents: list[Document]) -> list[list[float]]:
        """Return the scores of each document's sentences (see `sentence_scores`); documents are batched by length."""
        # Without references, `encode` computes no labels, which only training needs.
        features = [run.data.encode(Document(d.id, d.parts)) | {"id": d.id, "references": []} for d in documents]
        scores = [[0.0] * len(document.sentences) for document in documents]
        for group in groups_by_length([each["length"] for each in features], self.batch_tokens):
            batch = run.data.collate([features[index] for index in group]).to(run.model.device)
            for index, values, is_candidate in zip(group, run.model.sentence_scores(batch), batch.candidates.tolist()):
                for sentence, value in enumerate(values):  # of the sentences within `max_source`
                    scores[index][sentence] = value if is_candidate[sentence] else 0.0  # otherwise too short or long
        return scores
