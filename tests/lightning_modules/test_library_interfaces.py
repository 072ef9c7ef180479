"""Parts of libraries beyond their documented interfaces, each used in one place, and the versions that have them."""

from importlib.metadata import version

import pytest
import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.callbacks import EarlyStopping
from quiet_trainer import quiet_trainer
from transformers import BertConfig

from lightning_modules import lightning_internals as internals
from lightning_modules.networks.pretrained_attention import attention_of
from lightning_modules.networks.recurrent import onednn_has_bfloat16


def test_lightning_2_6():
    assert version("pytorch-lightning").startswith("2.6."), "read lightning_internals.py beside the new version"
    callback = EarlyStopping("loss")
    trainer = quiet_trainer(callback)
    assert internals.trainer_of(LightningModule()) is None
    internals.check_at_validations(trainer, ("train/",))
    assert callback._check_on_train_epoch_end is False
    # what training alone sets: `test_graceful_stop.py`, `test_ddp.py` and the tests of resuming run through it
    loop, logged = trainer.fit_loop, trainer._logger_connector
    for owner, name in [
        (type(loop), "_should_accumulate"), (type(loop), "_can_stop_early"), (type(trainer), "_results"),
        (type(logged), "should_update_logs"), (type(logged), "metrics"), (loop.epoch_loop, "_batches_that_stepped"),
        (loop, "_data_fetcher"), (loop, "_combined_loader"), (loop.epoch_loop, "_should_check_val_fx"),
        (loop.epoch_loop, "_num_ready_batches_reached"), (loop.epoch_loop.val_loop, "_restart_stage"),
    ]:  # fmt: skip
        assert hasattr(owner, name), name


def test_transformers_5_torch_2_and_sacrebleu_2():
    assert version("transformers").startswith("5."), "read pretrained_attention.py beside the new version"
    assert attention_of(BertConfig(attn_implementation="eager")) == "eager"
    assert torch.__version__.startswith("2."), "read recurrent.py beside the new version"
    assert onednn_has_bfloat16() in (True, False)
    pytest.importorskip("sacrebleu")
    assert version("sacrebleu").startswith("2."), "read reference_scores.py beside the new version"
