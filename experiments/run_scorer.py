"""`RunScorer`: a trained extractive model as the proposer of another's candidates."""

import hashlib
from functools import cached_property
from pathlib import Path

import torch

from datamodules.batch import alike
from datamodules.documents import CorpusError, Document
from experiments.run_folder import load_run
from lightning_modules.checkpoints import best_checkpoint


class RunScorer:
    """Scores of sentences by the run of an extractive model (`BertSum`).

    Args:
        run: its folder.
        batch_tokens: tokens that are read at a time, padding included, or one document.

    Raises:
        CorpusError: on use, if the folder has no checkpoint, or its model scores no sentences.
    """

    def __init__(self, run: Path, batch_tokens: int = 16_384) -> None:
        self.run, self.batch_tokens = Path(str(run)), batch_tokens

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the run's best checkpoint."""
        with best_checkpoint(self.run).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def sentence_scores(self, documents: list[Document]) -> list[list[float]]:
        """A score in [0, 1] for each sentence of each document; 0 for those that the run leaves out."""
        run = load_run(self.run)
        if not hasattr(run.model, "sentence_scores"):
            raise CorpusError(f"{self.run}: {type(run.model).__name__} scores no sentences; give a run of BertSum")
        model = run.model.to("cuda" if torch.cuda.is_available() else "cpu")
        # without references: nothing but the text is to be encoded
        rows = [run.data.encode(Document(d.id, d.parts)) | {"id": d.id, "references": []} for d in documents]
        scores: list[list[float]] = [[]] * len(rows)
        for group in alike([row["length"] for row in rows], self.batch_tokens):
            batch = run.data.collate([rows[index] for index in group]).to(model.device)
            for index, found in zip(group, model.sentence_scores(batch)):
                scores[index] = found + [0.0] * (len(documents[index].sentences) - len(found))
        return scores
