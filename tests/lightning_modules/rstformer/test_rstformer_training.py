"""RSTformer with less memory, lower precision, compiled, on GPUs."""

import pytest
import torch
from model_options import grouped
from quiet_trainer import quiet_trainer
from small_rstformer import SMALL, data_of, model_of, randomized, ready

from lightning_modules.networks.dropout import without_dropout
from lightning_modules.rstformer.module import RSTformer

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable. is deprecated")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rstformer-training")


@pytest.fixture(scope="module")
def batch_and_text(corpus_files, folder):
    data = ready(corpus_files, folder)
    return next(iter(data.test_dataloader())), data.tokenizer


def loss_and_gradients(model, batch) -> tuple:
    loss = model.loss_terms(batch)["nll"]
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def both(batch, text, one: dict, other: dict) -> tuple:
    """Loss and gradients of two models with the same weights, in training mode."""
    models = [
        randomized(model_of(formula="log_bias", learn_weights=True, **changes), text) for changes in (one, other)
    ]
    models[1].load_state_dict(models[0].state_dict())
    return tuple(loss_and_gradients(model.train(), batch) for model in models)


def test_activations_are_computed_twice_in_a_rescoring_pass_too(batch_and_text):
    batch, text = batch_and_text
    kept, losses, weights = [], [], None
    for again in (False, True):
        model = randomized(model_of(formula="log_bias", dropout=0.4, checkpoint_activations=again), text).train()
        model.load_state_dict(weights or model.state_dict())
        weights, sizes = model.state_dict(), []
        save = torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: s.append(t.numel()) or t, lambda t: t)
        with without_dropout(model), save:
            losses.append(model.loss_terms(batch)["nll"].detach())
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 2
    torch.testing.assert_close(*losses)


@pytest.mark.integration
def test_compiled_layers_change_nothing(batch_and_text, monkeypatch):
    original, compiled = torch.nn.Module.compile, []

    def without_code(module, **options):  # what is captured is run as it is: nothing is generated, which takes minutes
        compiled.append(module)
        original(module, backend="aot_eager", dynamic=True, **options)

    monkeypatch.setattr(torch.nn.Module, "compile", without_code)
    one, other = both(*batch_and_text, {"layers": 1}, {"layers": 1, "compile_layers": True})
    assert len(compiled) == 2
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_bfloat16_is_near_and_trains_everything(batch_and_text):
    batch, text = batch_and_text
    model = randomized(model_of(formula="log_bias"), text)
    exact, _ = loss_and_gradients(model, batch)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        near, gradients = loss_and_gradients(model, batch)
    torch.testing.assert_close(near.float(), exact, atol=0.05, rtol=0.02)
    assert len(gradients) == len(list(model.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients.values())


def test_rst_lora_trains_adapters_and_writes(corpus_files, folder, tmp_path):
    pytest.importorskip("peft", reason="needs the extra lora")
    model = model_of(lora_rank=2, schedule="constant", lr=0.01)
    before = {name: p.clone() for name, p in model.named_parameters()}
    fitting = quiet_trainer(max_steps=2, limit_val_batches=0)
    fitting.fit(model, data_of(corpus_files, folder))
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved and moved == {name for name, p in model.named_parameters() if p.requires_grad}
    fitting.save_checkpoint(tmp_path / "lora.ckpt")
    again = RSTformer.load_from_checkpoint(
        tmp_path / "lora.ckpt", weights_only=True, **grouped(RSTformer, SMALL | {"hidden_size": 18, "lora_rank": 2})
    )
    data = ready(corpus_files, folder)
    batch = next(iter(data.test_dataloader()))
    summaries = []
    for one in (model, again):
        one.set_tokenizer(data.tokenizer)
        summaries.append([summary.sentences for summary in one.eval().summarize(batch)])
    assert summaries[0] == summaries[1]
    with pytest.raises(ValueError, match="cannot be merged into the weights of a LED"):
        model.export(tmp_path / "led")
    for ablation in ("wac", "no_discourse"):
        with pytest.raises(ValueError, match=f"ablation {ablation} is not available"):
            model_of(lora_rank=2, ablation=ablation)


@pytest.mark.cuda
@pytest.mark.parametrize("strategy", ["auto", "fsdp2"])
def test_trains_and_writes_on_a_gpu(strategy, corpus_files, folder):
    model = model_of(formula="log_bias", checkpoint_activations=True, heads=3, hidden_size=48)
    device = {"accelerator": "gpu", "devices": 1, "strategy": strategy, "precision": "bf16-mixed"}
    fitting = quiet_trainer(max_steps=2, val_check_interval=2, **device)
    fitting.fit(model, data_of(corpus_files, folder))
    assert fitting.callback_metrics["val/loss"].isfinite()


@pytest.mark.cuda
def test_compiled_layers_train_on_a_gpu(corpus_files, folder):
    model = model_of(formula="log_bias", compile_layers=True, heads=3, hidden_size=48)
    fitting = quiet_trainer(max_steps=2, accelerator="gpu", devices=1, limit_val_batches=0)
    fitting.fit(model, data_of(corpus_files, folder))
    assert all(p.isfinite().all() for p in model.parameters())
