"""No training step waits for the GPU: the batch's transfer, the loss, the gradients, clipping, the optimizer.

Steps run on PyTorch's `meta` device, whose tensors have no values. Whatever needs a value (`item`, `tolist`, `bool`,
`nonzero`, a boolean index, a copy to the host) is an error there, and takes the branches of the code that are for
devices other than the CPU. Blocking copies to the device are found by `NoSynchronization`.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from cases import BY_NAME, CASES
from conftest import prepared
from tiny_models import make_summarizer
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import BertConfig, BertModel, PreTrainedModel

from lightning_modules.rstformer import dense_attention, fused_attention
from lightning_modules.rstformer.injection import INJECTIONS
from lightning_modules.summarizer import weighted_sum

META = torch.device("meta")
# reads the lengths of packed sequences, which PyTorch wants on the host on every device
READS_HOST_TENSORS = {"aten::_pack_padded_sequence", "aten::_pad_packed_sequence", "aten::_cudnn_rnn"}


def crosses(tensors: list[Tensor]) -> bool:
    """Return whether tensors of host and device meet; numbers on the host (no dimension) cost nothing."""
    return any(t.device == META for t in tensors) and any(t.device != META and t.dim() for t in tensors)


class NoSynchronization(TorchDispatchMode):
    """Raises an error at operations that copy from host to device and wait for it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        out = func(*args, **kwargs)
        if name == "aten::_to_copy":
            waits = crosses([*tensors, out]) and not kwargs.get("non_blocking")
        elif name == "aten::copy_":
            waits = crosses(tensors) and not (kwargs.get("non_blocking") or args[2:] == (True,))
        else:
            waits = crosses(tensors) and name not in READS_HOST_TENSORS
        if waits:
            raise RuntimeError(f"{name} copies a tensor from the host and waits for it")
        return out


class NoLists(TorchFunctionMode):
    """Raises an error where Python numbers become a tensor on the device, which the dispatcher does not see."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        on_device = kwargs.get("device") is not None and torch.device(kwargs["device"]) == META
        is_new = func in (torch.tensor, torch.as_tensor) and on_device and not isinstance(args[0], Tensor)
        if is_new or (func is Tensor.new_tensor and args[0].device == META):
            raise RuntimeError(f"{func.__name__} copies numbers from the host and waits for them")
        return func(*args, **kwargs)


@contextmanager
def no_synchronization() -> Iterator[None]:
    """Raise an error where code, gradients included, would wait for a GPU; the `meta` device has no autocast."""
    autocast = torch.autocast

    def without_meta(device_type, *args, **kwargs):
        return nullcontext() if device_type == "meta" else autocast(device_type, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, NoSynchronization(), NoLists():
        patch.setattr(torch, "autocast", without_meta)
        patch.setattr(torch, "is_autocast_enabled", lambda *device: False)
        yield


def train_without_waiting(case, files, model=None, **changes) -> None:
    model, data = model or case.build_model(**changes), prepared(case.build_data(files), "fit")
    model.set_tokenizer(data.tokenizer)
    batch = next(iter(data.train_dataloader()))
    model = model.to(META).train()
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            module.tie_weights()  # tied parameters are moved one by one
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.Adam(trained.values())
    with no_synchronization():
        weighted_sum(model.loss_terms(batch.to(META)), model.loss_weights).backward()
        nn.utils.clip_grad_norm_(trained.values(), 2.0)
        optimizer.step()
    # PEGASUS has a table of sinusoids among its parameters
    assert [name for name, p in trained.items() if p.grad is None and "embed_positions" not in name] == []


QUICK = ("bertsum", "graphsum", "pegasus", "pointer-coverage")  # the others in `make test-all`


@pytest.mark.parametrize("case", [
    pytest.param(case, id=case.name, marks=[] if case.name in QUICK else pytest.mark.integration) for case in CASES
])  # fmt: skip
def test_a_training_step_does_not_wait(case, corpus_files):
    train_without_waiting(case, corpus_files)


# Attention of RSTformer: by chunks as on GPUs, all scores at once, and the fused kernel, which is not run here
CHANGES = {injection: {"formula": injection} for injection in INJECTIONS}
CHANGES |= {name: {"ablation": name} for name in ("wac", "no_labels")}  # the others change the data alone
CHANGES |= {"learned": {"learn_weights": True}, "checkpointed": {"checkpoint_activations": True}}


def without_kernel(q, k, v, score_mod, block_mask, scale, kernel_options=None, return_aux=None):
    """Return something of the shape of attention that has gradients, after looking up the score of one pair."""
    zero = torch.zeros(1, dtype=torch.long, device=q.device)
    score = (q[0, 0, 0] * k[0, 0, 0]).sum(-1, keepdim=True)
    score = score if score_mod is None else score_mod(score, zero, zero, zero, zero)
    block_mask.mask_mod(zero, zero, zero, zero)
    return (v + score, SimpleNamespace(lse=(v + score).sum(-1))) if return_aux else v + score


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable. is deprecated")
@pytest.mark.parametrize("path", ["chunked", "dense", "fused"])
@pytest.mark.parametrize("name", CHANGES)
def test_attention_with_discourse_does_not_wait(name, path, corpus_files, monkeypatch):
    case, changes = BY_NAME["rstformer"], CHANGES[name]
    case = replace(case, data_args=case.data_args | {"ablation": changes.get("ablation", "none")})
    monkeypatch.setattr(dense_attention, "CHUNK", 16)
    monkeypatch.setattr(fused_attention, "_compiled", lambda: without_kernel)
    train_without_waiting(case, corpus_files, attention=path, **changes)


def test_attention_with_dropout_and_adapters_do_not_wait(corpus_files):
    model = BY_NAME["rstformer"].build_model(attention="chunked")
    for layer in model.network.encoder.layers:
        layer.self_attn.longformer_self_attn.dropout = 0.1
    train_without_waiting(BY_NAME["rstformer"], corpus_files, model)
    pytest.importorskip("peft", reason="needs the extra lora")
    train_without_waiting(BY_NAME["rstformer"], corpus_files, lora_rank=2)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["bertsum", "matchsum", "bertsum-abs"])
def test_pretrained_encoders_do_not_wait(name, attention, corpus_files):
    model = BY_NAME[name].build_model(hidden_size=16, heads=2)
    sizes = {"vocab_size": 300, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    model.reader.model = BertModel(BertConfig(**sizes, attn_implementation=attention), add_pooling_layer=False)
    train_without_waiting(BY_NAME[name], corpus_files, model)


@pytest.mark.parametrize("kind", ["bart", "pegasus"])
def test_pretrained_summarizers_do_not_wait(kind, corpus_files, tmp_path):
    folder = str(make_summarizer(kind, tmp_path, ["the mill and the otter paints the mill"], window=64))
    case = replace(BY_NAME["pegasus"], data_args=BY_NAME["pegasus"].data_args | {"checkpoint": folder})
    train_without_waiting(case, corpus_files, checkpoint=folder)


def test_what_waits_is_an_error_and_nothing_else():
    on_host = torch.tensor([1.0, 2.0])
    waiting = [
        lambda x: x.sum().item(), lambda x: bool((x > 0).any()), lambda x: (x > 0).nonzero(), lambda x: x[x > 0],
        lambda x: x.cpu(), lambda x: x.repeat_interleave(torch.ones_like(x, dtype=torch.long)),
        lambda x: torch.tensor([1.0, 2.0], device=x.device), lambda x: x.new_tensor([1.0, 2.0]),
        lambda x: on_host.to(x.device), lambda x: x.clone().copy_(on_host), lambda x: x[torch.tensor([0, 1])],
    ]  # fmt: skip
    for wait in waiting:
        with no_synchronization(), pytest.raises((RuntimeError, NotImplementedError)):
            wait(torch.ones(2, device=META))
    with no_synchronization():
        x = on_host.to(META, non_blocking=True)
        x = torch.where(x > 0, x, torch.arange(2, device=META)) * torch.tensor(2.0)
        assert x.sum().device == META
