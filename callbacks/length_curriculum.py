"""Length curriculum: documents and summaries grow during training, as See et al. 2017 do."""

from jsonargparse.typing import PositiveInt, restricted_number_type
from pytorch_lightning import LightningModule, Trainer

from callbacks.schedules import Scheduled, Switch

AtLeastTwo = restricted_number_type("AtLeastTwo", int, (">=", 2))


class LengthCurriculum(Scheduled):
    """Increases the maximum lengths of documents and summaries in equal stages.

    Stage k of n, from 1, truncates to first + (last - first) (k - 1) / (n - 1); the last lengths are `max_source` and
    `max_target` of the DataModule. The stage is a pure function of the optimizer step.

    Args:
        source: maximum number of words of a document in the first stage.
        target: maximum number of tokens of a summary in the first stage.
        stages: number of stages, the last one at full length.
        steps: number of optimizer steps of each stage.

    Raises:
        ValueError: in training, if the DataModule has no `lengths_now`, the (source, target) lengths to which it
            truncates batches, or uses worker processes (`num_workers`), which would not notice that they change.
    """

    def __init__(self, source: PositiveInt, target: AtLeastTwo, steps: PositiveInt, stages: AtLeastTwo = 4) -> None:
        self.source = int(source)
        self.target = int(target)
        self.steps = steps
        self.stages = stages

    def lengths_at(self, step: int, last: tuple[int, int]) -> tuple[int, int]:
        """Return (source, target) lengths at an optimizer step; `last` has both lengths of the last stage."""
        share = min(step // self.steps, self.stages - 1) / (self.stages - 1)  # 0 in the first stage, 1 in the last
        first = (min(self.source, last[0]), min(self.target, last[1]))  # not above the last lengths
        return tuple(round(start + (end - start) * share) for start, end in zip(first, last))

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        data = trainer.datamodule
        if stage != "fit":
            return
        if not hasattr(data, "lengths_now"):
            raise ValueError(f"LengthCurriculum: {type(data).__name__} does not truncate documents by `lengths_now`")
        if data.num_workers:
            raise ValueError("LengthCurriculum needs --data.num_workers 0: loader processes do not see lengths change")
        data.num_workers = 0  # the default None may become 4 with a GPU

    def switches(self, trainer: Trainer, step: int) -> dict[str, Switch]:
        """Return the present and final lengths that documents and summaries are truncated to."""
        last = (trainer.datamodule.max_source, trainer.datamodule.max_target)
        source, target = self.lengths_at(step, last)
        return {"max_source": Switch(source, last[0]), "max_target": Switch(target, last[1])}

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        data = trainer.datamodule
        data.lengths_now = self.lengths_at(trainer.global_step, (data.max_source, data.max_target))

    # a run that is resumed in the middle of an epoch has no other hook before its first batch is drawn
    on_train_start = on_train_epoch_start

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs, batch, batch_idx) -> None:
        pl_module.log("train/max_source", float(trainer.datamodule.lengths_now[0]), batch_size=1)
        self.on_train_epoch_start(trainer, pl_module)  # sets the lengths before the next batch is drawn

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.datamodule.lengths_now = (trainer.datamodule.max_source, trainer.datamodule.max_target)

    # a test may follow in the same process as the training, possibly before the last stage
    on_test_start = on_predict_start = on_validation_start

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":
            self.on_train_epoch_start(trainer, pl_module)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Restore the full lengths, since the DataModule may be used after training."""
        if stage == "fit":
            self.on_validation_start(trainer, pl_module)
