"""Callback that writes predicted parses to a cache."""

import sys
import time

from pytorch_lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from datamodules.discourse.cache import ParseCache, ShardWriter
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.parsing import add_answers, count_tokens
from datamodules.text.lines import counted


class ParseWriter(Callback):
    """Writes predicted parses to shards of a cache, one sequence of shards for each rank.

    A run that is interrupted or fails writes its buffer; a killed run loses at most the parses since its last shard.
    Progress in documents and EDUs per second is a bar on terminals, else a line every `every` seconds. The remaining
    time is estimated from the remaining tokens, because long documents come first.

    Args:
        cache: cache to write to.
        progress: whether to show progress.
        every: seconds between lines of progress.
        limits: limits of a shard, see `ShardWriter`.
    """

    def __init__(self, cache: ParseCache, progress: bool = True, every: float = 30, **limits: float) -> None:
        self.cache, self.progress, self.every, self.limits = cache, progress, every, limits
        self.documents = self.edus = self.tokens = 0
        self.total_documents = self.total_tokens = 0
        self.seconds = 0.0
        self.interrupted = False
        self._writer: ShardWriter | None = None
        self._bar: Progress | None = None

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._writer = self.cache.writer(trainer.global_rank, **self.limits)
        self._start = self._last_line = time.monotonic()
        self.total_documents = getattr(trainer.predict_dataloaders, "documents", 0)
        self.total_tokens = getattr(trainer.predict_dataloaders, "tokens", 0)
        if self.progress and trainer.is_global_zero and sys.stderr.isatty():
            columns = (TextColumn("parsing"), BarColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=self.total_tokens)
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
        self.tokens += sum(count_tokens(request.text) for request in batch)
        now = time.monotonic()
        self.seconds = now - self._start
        if self._bar is not None:
            self._bar.update(self._task, completed=self.tokens, description=self.progress_line())
        elif self.progress and trainer.is_global_zero and now - self._last_line >= self.every:
            self._last_line = now
            print(f"parsing: {self.progress_line()}", file=sys.stderr, flush=True)

    def progress_line(self) -> str:
        """Return a line with the progress of this rank, its speed, and the remaining time."""
        seconds = max(1e-9, self.seconds)
        seconds_left = round(seconds * (self.total_tokens - self.tokens) / self.tokens) if self.tokens else 0
        time_left = f"{seconds_left // 3600}:{seconds_left // 60 % 60:02d}:{seconds_left % 60:02d} left"
        speed = f"{self.documents / seconds:,.1f} documents/s, {self.edus / seconds:,.0f} EDUs/s"
        documents = f"{self.documents:,} of {counted(self.total_documents, 'document')}"
        return f"{documents}, {self.tokens:,} of {counted(self.total_tokens, 'token')}, {speed}, {time_left}"

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.flush()

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end()
        trainer.strategy.barrier("parses")  # the parses of all ranks are on disk before any process counts them

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.interrupted = isinstance(exception, KeyboardInterrupt)
        self._end()
