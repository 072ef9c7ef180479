"""The frozen model that training by rewards must not leave too far: the model at the start of that training."""

import copy
from pathlib import Path

import torch
from pytorch_lightning import LightningModule, Trainer
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from datamodules.batch import Batch
from datamodules.documents import UserError
from lightning_modules.checkpoints import read_checkpoint
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.summarizer import Generative, Samples

FILE = "reference.ckpt"


def frozen_copy(module: Generative) -> Generative:
    """Return a copy in eval mode, without gradient, that shares frozen weights; a `ValueError` if FSDP shards them."""
    if isinstance(module, FSDPModule):
        raise ValueError("SelfCritical: kl copies the model, whose weights are sharded here; use the strategy ddp")
    shared = [parameter for parameter in module.parameters() if not parameter.requires_grad]
    attributes = vars(module)  # no properties; `extra_terms`: callbacks, not to be copied; `step_values`: values to log
    shared += [attributes[name] for name in ("tokenizer", "extra_terms", "step_values") if name in attributes]
    reference = copy.deepcopy(module, {id(value): value for value in shared})  # memo: no copies of these
    for part in reference.modules():
        if isinstance(part, nn.RNNBase):
            part.flatten_parameters()  # cuDNN reads the weights of a layer from one block of memory
    return reference.eval().requires_grad_(False)


class ReferenceModel:
    """The model before training by rewards, kept in `reference.ckpt` beside the checkpoints for runs that resume.

    It is no part of the trained module, of its checkpoints or of the optimizer. The file has only the trained weights.
    """

    def __init__(self) -> None:
        self.module: Generative | None = None

    def begin(self, trainer: Trainer, module: LightningModule, start_step: int) -> None:
        """Copy the model at `start_step` and save it; a run resumed later restores it, or raises a `UserError`."""
        path = Path(getattr(trainer.checkpoint_callback, "dirpath", None) or trainer.default_root_dir) / FILE
        self.module = frozen_copy(module)
        if trainer.global_step > start_step:  # a resumed run, whose weights are no longer the initial ones
            self._restore(path)
        elif trainer.is_global_zero and not trainer.fast_dev_run:
            parameters = module.named_parameters(remove_duplicate=False)  # tied weights have several names
            frozen = {name for name, parameter in parameters if not parameter.requires_grad}
            # `_restore` takes the frozen weights, which training does not change, from the model
            weights = {name: value for name, value in module.state_dict().items() if name not in frozen}
            state = {"state_dict": weights, "global_step": trainer.global_step}
            module.on_save_checkpoint(state)  # adds what outputs depend on besides weights, such as `coverage_gate`
            trainer.strategy.checkpoint_io.save_checkpoint(state, path)

    def _restore(self, path: Path) -> None:
        """Load the weights at the start of training by rewards; frozen ones, which the file lacks, stay as they are."""
        if not path.is_file():
            raise UserError(
                f"{path}: not found, which has the model that kl measures the distance to; resume with kl 0, or start "
                "another run from these weights with --start_from"
            )
        state = read_checkpoint(path)
        state["state_dict"] = self.module.state_dict() | state["state_dict"]
        self.module.on_load_checkpoint(state)  # restores what outputs depend on besides weights
        self.module.load_state_dict(state["state_dict"])

    @torch.no_grad()
    def log_probs(self, batch: Batch, samples: Samples, options: DecodingOptions) -> Tensor:
        """Return log-probabilities of K samples of T tokens for each of B documents under this model, [B, K, T]."""
        return self.module.log_probs(batch, samples, options)
