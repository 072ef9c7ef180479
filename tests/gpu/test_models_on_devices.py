"""Every model on a GPU: training, resuming, bf16, decoding, callbacks, distributed training; without waiting in a step.

The same tests run on the CPU with some of the models, so that the tests themselves are tested.
"""

from dataclasses import replace

import pytest
import torch
from cases import CASES
from half_precision import skip_without_half_precision_lstm
from pytorch_lightning import Callback, seed_everything
from quiet_trainer import quiet_trainer
from test_harness import Recorder

import lightning_modules
from callbacks import Previews, SelfCritical
from lightning_modules.summarizer import weighted_sum

ON_CPU = ("pointer-coverage", "matchsum", "rstformer")  # the others are trained on CPUs by test_harness
RUNS = [pytest.param(case, "cpu", id=f"{case.name}-cpu") for case in CASES if case.name in ON_CPU]
# heads of 6 dimensions, which the other tests have, are too small for the fused kernel
SMALL = next(case for case in CASES if case.name == "rstformer")
FUSED = replace(SMALL, name="rstformer-fused", model_args=SMALL.model_args | {"hidden_size": 48})
ON_CUDA = [*CASES, FUSED]
RUNS += [pytest.param(case, "cuda", marks=pytest.mark.cuda, id=f"{case.name}-cuda") for case in ON_CUDA]
every_run = pytest.mark.parametrize("case, device", RUNS)
GENERATIVE = [case for case in ON_CUDA if hasattr(getattr(lightning_modules, case.model.split(".")[1]), "log_probs")]
GENERATIVE_RUNS = [pytest.param(c, "cpu", id=f"{c.name}-cpu") for c in GENERATIVE if c.name in ("agents-m7", "pointer")]
GENERATIVE_RUNS += [pytest.param(c, "cuda", marks=pytest.mark.cuda, id=f"{c.name}-cuda") for c in GENERATIVE]


def fit(case, files, device: str, *callbacks: Callback, ckpt_path=None, **arguments):
    seed_everything(5, verbose=False)
    model, data = case.build_model(), case.build_data(files)
    usual = {"accelerator": "gpu" if device == "cuda" else "cpu", "devices": 1}
    usual |= {"num_sanity_val_steps": 0, "limit_val_batches": 1}
    trainer = quiet_trainer(*callbacks, **usual | arguments)
    trainer.fit(model, data, ckpt_path=ckpt_path)
    return model, data, trainer


@every_run
def test_trains_resumes_and_writes(case, device, corpus_files, tmp_path):
    whole, rest = Recorder(tmp_path, batches=(1,)), Recorder()
    fit(case, corpus_files, device, whole, max_steps=4)
    model, data, trainer = fit(case, corpus_files, device, rest, max_steps=4, ckpt_path=tmp_path / "batch1.ckpt")
    losses, resumed = ([loss for _, loss in recorder.losses] for recorder in (whole, rest))
    assert losses[2:] == pytest.approx(resumed, rel=1e-3)  # a GPU adds in any order
    (scores,) = trainer.test(model, data, verbose=False)
    assert 0 <= scores["test/rouge1"] <= 100


@every_run
def test_trains_in_half_precision(case, device, corpus_files):
    if device == "cpu":
        skip_without_half_precision_lstm(case.build_model())
    exact, half = Recorder(), Recorder()
    fit(case, corpus_files, device, exact, max_steps=2)
    model, *_ = fit(case, corpus_files, device, half, max_steps=2, precision="bf16-mixed")
    assert half.losses[0][1] == pytest.approx(exact.losses[0][1], rel=0.05)
    assert all(p.isfinite().all() for p in model.parameters())


@every_run
def test_nothing_waits_for_the_gpu_in_a_training_step(case, device, corpus_files):
    model, data = case.build(corpus_files)
    model = model.to(device).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    batch = next(iter(data.train_dataloader()))

    def step():
        optimizer.zero_grad()
        weighted_sum(model.loss_terms(batch.to(device)), model.loss_weights).backward()
        torch.nn.utils.clip_grad_norm_(trained, 2.0)
        optimizer.step()

    for _ in range(3):  # the first steps compile, and fill caches
        step()
    if device == "cuda":  # on a CPU, see tests/test_synchronization.py
        torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")
    assert all(p.isfinite().all() for p in trained)


@pytest.mark.parametrize("options", [{}, {"samples": 2, "advantage": "group", "kl": 0.1, "updates": 2}], ids=str)
@pytest.mark.parametrize("case, device", GENERATIVE_RUNS)
def test_previews_and_self_critical_training(case, device, options, corpus_files, tmp_path):
    callbacks = [SelfCritical(**options), Previews(tmp_path, documents=2, heat_maps=1)]
    settings = {"max_steps": 2, "val_check_interval": 2, "default_root_dir": tmp_path}
    model, _, trainer = fit(case, corpus_files, device, *callbacks, **settings)
    assert all(p.isfinite().all() for p in model.parameters())
    assert 0 <= trainer.callback_metrics["train/reward"] <= 1
    assert len(list(tmp_path.rglob("*.png"))) == hasattr(model, "attention_map")


@pytest.mark.cuda
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
@pytest.mark.parametrize("case", ON_CUDA, ids=lambda case: case.name)
def test_trains_with_one_process_of_a_strategy(case, strategy, corpus_files):
    if strategy == "fsdp2" and any(p.dim() == 0 for p in case.build_model().parameters()):
        pytest.skip("scalar parameters cannot be sharded; tests/test_ddp.py has the message")
    *_, trainer = fit(case, corpus_files, "cuda", max_steps=2, strategy=strategy, val_check_interval=2)
    assert trainer.callback_metrics["val/loss"].isfinite()


@pytest.mark.cuda
@pytest.mark.parametrize("case", ON_CUDA, ids=lambda case: case.name)
def test_a_compiled_loss_equals_an_eager_one(case, corpus_files):
    model, data = case.build(corpus_files, **case.repeatable)
    model = model.cuda().eval()
    batch = next(iter(data.val_dataloader())).to("cuda")
    compiled = torch.compile(model.loss_terms)(batch)
    for name, value in model.loss_terms(batch).items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-3, atol=1e-4)
