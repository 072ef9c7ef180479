"""Writes what a discourse parser predicts into a cache of parses."""

import sys
import time
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from datamodules.discourse.cache import ParseCache, ShardWriter
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.parsing import add_answers


class ParseWriter(Callback):
    """Shards of parses, written while a parser predicts: every rank its own, by `documents`, size and time.

    A run that is interrupted, or fails, writes what it has; one that is killed loses at most what it parsed since its
    last shard. Progress in documents and EDUs a second: a bar on a terminal, else a line every `every` seconds.

    Args:
        cache: where to.
        progress: whether to show any.
        every: seconds between lines.
        limits: when a shard is written, see `ShardWriter`.
    """

    def __init__(self, cache: ParseCache, progress: bool = True, every: float = 30, **limits: float) -> None:
        self.cache, self.progress, self.every, self.limits = cache, progress, every, limits
        self.documents = self.edus = self.total = 0
        self.seconds = 0.0
        self.interrupted = False
        self._writer: ShardWriter | None = None
        self._bar: Progress | None = None

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._writer = self.cache.writer(trainer.global_rank, **self.limits)
        self._start = self._said = time.monotonic()
        self.total = getattr(trainer.predict_dataloaders, "documents", 0)
        if self.progress and trainer.is_global_zero and sys.stderr.isatty():
            columns = (TextColumn("parsing"), BarColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=self.total)
            self._bar.start()

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: list[DiscourseParse],
        batch: list[ParseRequest],
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        add_answers(self._writer.add, batch, outputs, pl_module)
        self.documents += len(outputs)
        self.edus += sum(parse.size for parse in outputs)
        now = time.monotonic()
        self.seconds = now - self._start
        if self._bar is not None:
            self._bar.update(self._task, completed=self.documents, description=self.said())
        elif self.progress and trainer.is_global_zero and now - self._said >= self.every:
            self._said = now
            print(f"parsing: {self.said()}", file=sys.stderr, flush=True)

    def said(self) -> str:
        """How far this rank is, and how fast."""
        rate = self.documents / max(1e-9, self.seconds)
        left = round((self.total - self.documents) / rate) if rate else 0
        time_left = f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"
        speed = f"{rate:,.1f} documents/s, {self.edus / max(1e-9, self.seconds):,.0f} EDUs/s"
        return f"{self.documents:,} of {self.total:,} documents, {speed}, {time_left}"

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.flush()

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end()
        trainer.strategy.barrier("parses")  # who counts them afterwards finds every rank's

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.interrupted = isinstance(exception, KeyboardInterrupt)
        self._end()

    def state_dict(self) -> dict[str, Any]:
        """Nothing: what is done is in the cache."""
        return {}
