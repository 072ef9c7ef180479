"""No training step waits for the GPU: the batch's transfer, the loss, the gradients, clipping, the optimizer."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from cases import CASES
from synchronization import META, no_synchronization
from tiny_models import make_summarizer
from torch import nn
from transformers import BertConfig, BertModel, PreTrainedModel

from lightning_modules.rstformer import dense_attention, fused_attention
from lightning_modules.rstformer.injection import INJECTIONS
from lightning_modules.summarizer import weighted_sum

BY_NAME = {case.name: case for case in CASES}


def train_without_waiting(case, files, model=None, **changes) -> None:
    """Run a training step of a case on a device without values."""
    model, data = model or case.build_model(**changes), case.build_data(files)
    data.prepare_data()
    data.setup("fit")
    model.set_tokenizer(data.tokenizer)
    batch = next(iter(data.train_dataloader()))
    model = model.to(META).train()
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            module.tie_weights()  # tied parameters are moved one by one
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.Adam(trained.values())
    with no_synchronization():
        loss = weighted_sum(model.loss_terms(batch.to(META)), model.loss_weights)
        loss.backward()
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
    if "ablation" in changes:
        case = replace(case, data_args=case.data_args | {"ablation": changes["ablation"]})
    monkeypatch.setattr(dense_attention, "CHUNK", 16)
    monkeypatch.setattr(fused_attention, "_compiled", lambda: without_kernel)
    train_without_waiting(case, corpus_files, attention=path, **changes)


def test_attention_with_dropout_does_not_wait(corpus_files):
    model = BY_NAME["rstformer"].build_model(attention="chunked")
    for layer in model.network.encoder.layers:
        layer.self_attn.longformer_self_attn.dropout = 0.1
    train_without_waiting(BY_NAME["rstformer"], corpus_files, model)


def test_adapters_do_not_wait(corpus_files):
    pytest.importorskip("peft", reason="needs the extra lora")
    train_without_waiting(BY_NAME["rstformer"], corpus_files, lora_rank=2)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["bertsum", "matchsum", "bertsum-abs"])
def test_pretrained_encoders_do_not_wait(name, attention, corpus_files):
    model = BY_NAME[name].build_model(hidden_size=16, heads=2)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 24}
    config = BertConfig(vocab_size=300, **sizes, attn_implementation=attention)
    model.reader.model = BertModel(config, add_pooling_layer=False)
    train_without_waiting(BY_NAME[name], corpus_files, model)


@pytest.mark.parametrize("kind", ["bart", "pegasus"])
def test_pretrained_summarizers_do_not_wait(kind, corpus_files, tmp_path):
    folder = make_summarizer(kind, tmp_path, ["the mill and the otter paints the mill"], window=64)
    case = BY_NAME["pegasus"]
    pretrained = replace(case, data_args=case.data_args | {"checkpoint": str(folder)})
    train_without_waiting(pretrained, corpus_files, checkpoint=str(folder))


ON_HOST = torch.tensor([1.0, 2.0])
WAITING = {
    "item": lambda x: x.sum().item(),
    "condition": lambda x: bool((x > 0).any()),
    "nonzero": lambda x: (x > 0).nonzero(),
    "mask": lambda x: x[x > 0],
    "to the host": lambda x: x.cpu(),
    "counts": lambda x: x.repeat_interleave(torch.ones_like(x, dtype=torch.long)),
    "list to the device": lambda x: torch.tensor([1.0, 2.0], device=x.device),
    "list to the device of a tensor": lambda x: x.new_tensor([1.0, 2.0]),
    "tensor to the device": lambda x: ON_HOST.to(x.device),
    "copy to the device": lambda x: x.clone().copy_(ON_HOST),
    "index on the host": lambda x: x[torch.tensor([0, 1])],
}


def test_what_waits_is_an_error_and_nothing_else():
    for wait in WAITING.values():
        with no_synchronization(), pytest.raises((RuntimeError, NotImplementedError)):
            wait(torch.ones(2, device=META))
    with no_synchronization():
        x = ON_HOST.to(META, non_blocking=True)
        x = torch.where(x > 0, x, torch.arange(2, device=META)) * torch.tensor(2.0)
        assert x.sum().device == META
