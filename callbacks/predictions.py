"""Writes what a model says: predictions.jsonl."""

import json
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer


class PredictionWriter(Callback):
    """Writes a line a document: id, summary, references, scores.

    Lines are written as batches are done, to a file a rank; at the end the ranks' files become one, in the order of the
    documents, under the final name; `predictions.signatures.json` says beside it how each score was computed, and
    `predictions.checkpoint.json` which weights were scored. While a model is trained nothing is written.

    Args:
        path: of the file for `validate`, `test` and `predict`.
        checkpoint: plain values that describe the weights; no such file is written if not given.
    """

    def __init__(self, path: Path, checkpoint: dict[str, Any] | None = None) -> None:
        self.path, self.checkpoint = Path(path), checkpoint
        self._file = None

    def _part(self, rank: int) -> Path:
        return self.path.with_name(f".{self.path.name}.rank{rank}")

    def _open(self, trainer: Trainer) -> None:
        if trainer.state.fn != "fit":
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._part(trainer.global_rank).open("w", encoding="utf-8")

    def _write(self, summaries: list) -> None:
        if self._file is not None:
            for summary in summaries or []:
                self._file.write(json.dumps(summary.record(), ensure_ascii=False) + "\n")

    def _close(self, trainer: Trainer) -> None:
        if self._file is None:
            return
        self._file.close()
        self._file = None
        trainer.strategy.barrier("predictions")
        if trainer.is_global_zero:
            parts = [self._part(rank) for rank in range(trainer.world_size)]
            shares = [part.read_text(encoding="utf-8").splitlines() for part in parts]
            # rank r of n has documents r, r + n, ...: dealt out in turn, they come back in turn
            lines = [share[i] for i in range(max(map(len, shares))) for share in shares if i < len(share)]
            parts[0].write_text("".join(line + "\n" for line in lines), encoding="utf-8")
            parts[0].replace(self.path)
            signatures = trainer.lightning_module.rouge["test"].signatures
            beside = self.path.with_suffix(".signatures.json")
            beside.write_text(json.dumps(signatures, indent=1) + "\n", encoding="utf-8")
            if self.checkpoint is not None:
                beside = self.path.with_suffix(".checkpoint.json")
                beside.write_text(json.dumps(self.checkpoint, indent=1) + "\n", encoding="utf-8")
            for part in parts[1:]:
                part.unlink()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._open(trainer)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._open(trainer)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._open(trainer)

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0) -> None:
        self._write(outputs)

    def on_test_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0) -> None:
        self._write(outputs)

    def on_predict_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0) -> None:
        self._write(outputs)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close(trainer)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close(trainer)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._part(trainer.global_rank).unlink(missing_ok=True)
