"""Callback that writes predicted parses to a cache."""

from contextlib import ExitStack

from pytorch_lightning import Callback, LightningModule, Trainer

from datamodules.corpora.parallel import progress_bar
from datamodules.discourse.cache import ParseCache, ShardWriter
from datamodules.parsing import add_answers, count_tokens


class ParseWriter(Callback):
    """Writes predicted parses to shards of a cache, one sequence of shards for each rank.

    A run that is interrupted or fails writes its buffer; a killed run loses at most the parses since its last shard.
    Progress is counted in tokens, because long documents come first. The limits are those of `ShardWriter`.
    """

    def __init__(self, cache: ParseCache, **limits: float) -> None:
        self.cache = cache
        self.limits = limits
        self.interrupted = False
        self._writer: ShardWriter | None = None
        self._resources = ExitStack()

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._writer = ShardWriter(self.cache, trainer.global_rank, **self.limits)
        self._resources.callback(self._writer.flush)
        self._progress = None
        if trainer.is_global_zero:
            self._progress = self._resources.enter_context(progress_bar())
            tokens = getattr(trainer.predict_dataloaders, "tokens", None)
            self._task = self._progress.add_task("parsing tokens", total=tokens)

    def on_predict_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0) -> None:
        add_answers(self._writer.add, batch, outputs, pl_module)
        if self._progress is not None:
            self._progress.advance(self._task, sum(count_tokens(request.text) for request in batch))

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._resources.close()
        trainer.strategy.barrier("parses")  # the parses of all ranks are on disk before any process counts them

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.interrupted = isinstance(exception, KeyboardInterrupt)
        self._resources.close()
