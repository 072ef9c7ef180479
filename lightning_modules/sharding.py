"""Training with sharded weights (FSDP2): strategy `fsdp2` of the trainer."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.strategies.model_parallel import _rekey_optimizer_state_if_needed
from pytorch_lightning import Trainer
from pytorch_lightning.strategies import ModelParallelStrategy, StrategyRegistry
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from datamodules.documents import UserError
from lightning_modules.checkpoints import read_checkpoint

REMEDY = "pass --trainer.strategy ddp"
STEPS = ("training_step", "validation_step", "test_step", "predict_step")


def shard(module: nn.Module, layers: Iterable[nn.Module], mesh: DeviceMesh) -> None:
    """Distribute weights over a mesh, in place: `layers` are gathered while they run, the rest until backward ends."""
    for name, parameter in module.named_parameters():
        if parameter.dim() == 0:
            raise UserError(f"--trainer.strategy fsdp2: the scalar {name} cannot be sharded; {REMEDY}")
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh, reshard_after_forward=False)  # the weights outside of `layers`
    for name in STEPS:  # Lightning calls these methods instead of `forward`; they gather weights only if registered
        register_fsdp_forward_method(module, name)


def gather(module: nn.Module) -> None:
    """Gather all weights of a sharded model in each process, which may then run its own number of decoding steps."""
    with torch.inference_mode(False), torch.no_grad():  # autograd cannot save inference tensors in later training steps
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.set_reshard_after_forward(False, recurse=False)
                part.unshard()


def scatter(module: nn.Module) -> None:
    """Distribute the layers of a gathered model again; FSDP2 distributes other weights after the next backward pass."""
    for part in module.modules():
        if isinstance(part, FSDPModule) and part is not module:
            part.set_reshard_after_forward(True, recurse=False)
            part.reshard()


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Gather all weights of a sharded model within a context; other models are left as they are."""
    gather(module)
    try:
        yield
    finally:
        scatter(module)


class FullyShardedStrategy(ModelParallelStrategy):
    """FSDP2 over all processes, on GPUs or CPUs, with the same checkpoints as training in a single process.

    Weights, gradients and optimizer states are sharded in training. In evaluation each process holds all weights.
    """

    def __init__(self) -> None:
        super().__init__(tensor_parallel_size=1, save_distributed_checkpoint=False)

    def setup_environment(self) -> None:
        """Use all processes for data parallelism; a `UserError` for a model without `configure_model`."""
        if not is_overridden("configure_model", self.lightning_module):
            name = type(self.lightning_module).__name__
            raise UserError(f"--trainer.strategy fsdp2: {name} cannot be sharded; {REMEDY}")
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()

    def setup_optimizers(self, trainer: Trainer) -> None:
        """Build the optimizers; a `UserError` for Adafactor, which does not work with sharded weights."""
        super().setup_optimizers(trainer)
        if any(isinstance(optimizer, torch.optim.Adafactor) for optimizer in self.optimizers):
            raise UserError(f"--trainer.strategy fsdp2: Adafactor needs whole weights; choose AdamW, or {REMEDY}")

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True  # by `load_optimizer_state_dict`

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        # all processes read the file of the first one, whose path may be that of the newest checkpoint
        return read_checkpoint(Path(self.broadcast(checkpoint_path)), verify=False)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict  # slow, 0.2 s

        options = StateDictOptions(full_state_dict=True, strict=strict)
        set_model_state_dict(self.model, checkpoint["state_dict"], options=options)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"]):
            state = _rekey_optimizer_state_if_needed(state, self.model)
            set_optimizer_state_dict(self.model, optimizer, state, options=StateDictOptions(full_state_dict=True))

    def on_validation_start(self) -> None:
        gather(self.model)

    def on_validation_end(self) -> None:
        scatter(self.model)

    on_test_start = on_predict_start = on_validation_start
    on_test_end = on_predict_end = on_validation_end


StrategyRegistry.register("fsdp2", FullyShardedStrategy, description=FullyShardedStrategy.__doc__, override=True)
