"""Monitoring of gradient norms and throughput."""

from time import monotonic

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import WandbLogger
from torch.distributed.tensor import DTensor

WITHOUT_WHOLE_NORM = ("FSDPStrategy", "DeepSpeedStrategy")  # strategies without the norm over all ranks


class GradientNorm(Callback):
    """Log train/grad_norm, the 2-norm of all gradients before clipping, at each optimizer step.

    All ranks have the same value. Nothing is logged for models that Lightning's `fsdp` or DeepSpeed shard.
    """

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: object) -> None:
        if type(trainer.strategy).__name__ in WITHOUT_WHOLE_NORM:  # a rank has only a part of the gradients
            return
        gradients = [weight.grad for weight in pl_module.parameters() if weight.grad is not None]
        if gradients:
            norm = torch.nn.utils.get_total_norm(gradients)
            is_sharded = isinstance(norm, DTensor)  # with FSDP2; `full_tensor` combines the parts of ranks
            pl_module.log("train/grad_norm", norm.full_tensor() if is_sharded else norm)


class Throughput(Callback):
    """Log throughput/documents_per_second and throughput/steps_per_second of training to W&B.

    The values are sums over all ranks, without the time of validations and checkpoints, every `log_every_n_steps` of
    the trainer. They are not written to metrics.csv, whose values are reproducible. Time is measured on the host;
    pending work on a device averages out.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._documents = 0  # number of documents of all ranks since `_step`
        self._step = -1  # step at which the measurement began; -1 if there is none
        self._since = 0.0  # time at which it began

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        if self._step < 0:
            self._step = trainer.global_step
            self._since = monotonic()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs, batch, batch_idx) -> None:
        self._documents += getattr(batch, "batch_size", 0) * trainer.world_size  # 0 for a foreign type of batch
        if trainer.global_step - self._step >= trainer.log_every_n_steps:
            self._log_throughput(trainer)

    def _log_throughput(self, trainer: Trainer) -> None:
        """End a measurement and log it to W&B; the next batch begins another one."""
        steps = trainer.global_step - self._step
        if self._step >= 0 and steps > 0:  # -1: no measurement has begun
            seconds = max(monotonic() - self._since, 1e-9)  # no division by zero with a coarse clock
            rates = {"throughput/documents_per_second": self._documents / seconds}
            rates["throughput/steps_per_second"] = steps / seconds
            for logger in trainer.loggers:
                if isinstance(logger, WandbLogger):
                    logger.log_metrics(rates, step=trainer.global_step - 1)  # Lightning counts logged steps from 0
        self._reset()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule, *_: object) -> None:
        self._log_throughput(trainer)  # time in validations and checkpoints does not count

    on_save_checkpoint = on_validation_start
