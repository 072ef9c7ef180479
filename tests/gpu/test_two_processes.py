"""Sharded weights (FSDP2) on two processes: on the CPU with gloo, on two GPUs with NCCL."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cases import CASES

from precis.runs.run_folder import load_run

pytestmark = pytest.mark.integration

two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, two_gpus])]


def fit(*arguments: str) -> subprocess.CompletedProcess:
    tests = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": f"{tests.parent}{os.pathsep}{tests}", "PRECIS_TRUST": "1"}
    command = [sys.executable, "-m", "precis.command_line.cli", "fit", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("device", DEVICES)
def test_a_killed_sharded_run_continues_exactly_and_one_process_loads_it(device, corpus_files, tmp_path, precis):
    case = next(case for case in CASES if case.name == "rstformer")
    arguments = [*case.arguments(corpus_files), "--data.batch_size=2", "--wandb=off", "--previews=0", "--save_every=2"]
    arguments += [f"--trainer.accelerator={device}", "--trainer.strategy=fsdp2", "--trainer.devices=2"]
    arguments += ["--trainer.max_steps=6", "--trainer.log_every_n_steps=1", "--trainer.enable_progress_bar=false"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = fit(f"--run_dir={whole}", *arguments)
    assert done.returncode == 0, done.stderr
    interrupt = ["--trainer.callbacks+=interrupting.Interrupt", "--trainer.callbacks.number=9"]
    assert fit(f"--run_dir={killed}", *arguments, *interrupt, "--trainer.callbacks.batch=5").returncode == -9
    last = killed / "checkpoints" / "last.ckpt"
    assert torch.load(last, weights_only=True)["global_step"] == 4
    done = fit(f"--run={killed}", "--trainer.callbacks=null")
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (whole, killed))
    torch.testing.assert_close(second["state_dict"], first["state_dict"], rtol=0, atol=0)
    torch.testing.assert_close(second["optimizer_states"], first["optimizer_states"], rtol=0, atol=0)
    assert (killed / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    weights = load_run(killed, last).model.state_dict()
    torch.testing.assert_close(weights, first["state_dict"], rtol=0, atol=0)
    alone = ["--trainer.strategy=auto", "--trainer.devices=1", "--trainer.accelerator=cpu"]
    precis("test", "--run", killed, *alone).succeeded()
