"""Callback that writes predictions.jsonl."""

import json
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

from pytorch_lightning import Callback, LightningModule, Trainer

from callbacks.results_path import results_path
from datamodules.atomic_write import atomic_write, naming_full_disk
from datamodules.documents import UserError
from datamodules.file_locks import release_lock, take_lock
from datamodules.summarization import SummarizationData
from datamodules.text.hashing import file_digest
from datamodules.text.lines import json_line
from lightning_modules.metrics.lead import lead_scores


class PredictionWriter(Callback):
    """Writes a line for each document: id, summary, references, scores.

    Each rank writes its lines to a separate file, batch by batch. At the end they are merged in the order of the
    documents. Besides `NAME.jsonl`, it writes `NAME.signatures.json` (signatures of scores, and the SHA-256 of the
    predictions), `NAME.checkpoint.json` (description of the weights, if given) and `NAME.results.json` (mean scores and
    `source`; `results.json` for `predictions.jsonl`). Nothing is written during training.

    Args:
        path: output file of `validate`, `test` and `predict`; must end in `.jsonl`.
        checkpoint: plain values that describe the weights, such as path and step; None to write no file of them.
        source: plain values that describe the documents, such as `split`; written with the mean scores.
    """

    def __init__(
        self, path: Path, checkpoint: dict[str, Any] | None = None, source: dict[str, Any] | None = None
    ) -> None:
        self.path = Path(path)
        self.checkpoint = checkpoint
        self.source = source or {}
        self._file: IO[str] | None = None  # this rank's lines, while predictions are written
        self._lock: int | None = None  # of that file, against other commands

    def _rank_file(self, rank: int) -> Path:  # hidden file with the lines of one rank
        return self.path.with_name(f".{self.path.name}.rank{rank}")

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":  # a validation during training
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = take_lock(self._rank_file(trainer.global_rank))
        if self._lock is None:
            raise UserError(f"{self.path}: another process is writing it; wait until it ends, or pass another --out")
        self._file = self._rank_file(trainer.global_rank).open("w", encoding="utf-8")

    def on_test_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0) -> None:
        if self._file is not None:
            with naming_full_disk(self.path):
                self._file.writelines(json_line(summary.record()) for summary in outputs or [])

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Merge the files of all ranks, and write the files that accompany the predictions, on rank 0."""
        if self._file is None:  # a validation during training
            return
        with naming_full_disk(self.path):  # the error of a full disk names `path`
            self._file.close()
            trainer.strategy.barrier("predictions")  # waits until all ranks have closed their files
            if trainer.is_global_zero:
                ids = self._merge(trainer.world_size)  # of the documents with a prediction
                self._write_descriptions(trainer, ids)
        trainer.strategy.barrier("merged")  # the lock of each rank's file holds until rank 0 has read it
        release_lock(self._lock)
        self._file = None

    on_validation_start = on_predict_start = on_test_start
    on_validation_batch_end = on_predict_batch_end = on_test_batch_end
    on_validation_end = on_predict_end = on_test_end

    def _merge(self, world_size: int) -> set[str]:
        """Merge the files of all ranks into one, which appears when it is complete; return the ids of its documents."""
        parts = [self._rank_file(rank) for rank in range(world_size)]
        # split at line feeds only; `str.splitlines` would also split at separators inside texts
        lines_of_ranks = [part.read_text(encoding="utf-8").split("\n")[:-1] for part in parts]
        # rank r of n has documents r, r + n, ..., so taking one line from each rank in turn restores the order
        lines = [line for turn in zip_longest(*lines_of_ranks) for line in turn if line is not None]
        atomic_write(self.path, "".join(line + "\n" for line in lines))
        for part in parts:
            part.unlink()
        return {json.loads(line)["id"] for line in lines}

    def _write_descriptions(self, trainer: Trainer, ids: set[str]) -> None:
        """Write signatures, description of the weights (if any) and mean scores, each file as a whole."""
        contents = {  # signatures (settings of ROUGE) are the same for all splits
            self.path.with_suffix(".signatures.json"): {
                "sha256": file_digest(self.path), **trainer.lightning_module.rouge["test"].signatures
            },
            self.path.with_suffix(".checkpoint.json"): self.checkpoint,
            results_path(self.path): {
                **self.source, "documents": len(ids), "predictions": self.path.name,
                "scores": {name: float(value) for name, value in trainer.callback_metrics.items()},
                **self._lead_scores(trainer, ids),  # language, and scores of a baseline
            },
        }  # fmt: skip
        for path, content in contents.items():
            if content is not None:  # `checkpoint` may be None
                atomic_write(path, json.dumps(content, indent=1) + "\n")

    def _lead_scores(self, trainer: Trainer, ids: set[str]) -> dict[str, Any]:
        """Return the language and ROUGE of first sentences, a baseline; {} without references, or for `predict`."""
        data = getattr(trainer, "datamodule", None)  # None if loaders are passed to the trainer
        split = "val" if trainer.state.fn == "validate" else "test"
        if trainer.state.fn == "predict" or not isinstance(data, SummarizationData):
            return {}
        documents = (document for document in data.scored_documents(split) if document.id in ids)
        lead = lead_scores(documents, data.language.code)
        return {"language": data.language.code, "lead1": lead} if lead else {}

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Remove the file of this rank, whose predictions are incomplete."""
        if self._file is None:
            return
        with suppress(OSError):  # on a full disk `close` fails, too; `exception` already reports it
            self._file.close()
        self._rank_file(trainer.global_rank).unlink(missing_ok=True)
        release_lock(self._lock)
        self._file = None
