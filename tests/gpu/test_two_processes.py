"""Sharded weights (FSDP2) on two processes: on the CPU with gloo, on two GPUs with NCCL."""

from pathlib import Path

import interrupting
import pytest
import torch
from cases import BY_NAME
from conftest import free_port, run_main
from test_ddp import torchrun_variables

from precis.runs.run_folder import load_run

pytestmark = pytest.mark.integration

two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def fit(context, run: Path, *arguments: str, status: int = 0) -> None:
    """Run `precis fit` as the two processes of `torchrun`, and check the exit status of the first."""
    port, processes = free_port(), []
    for rank in (0, 1):
        told, variables = (["fit", *arguments], Path(f"{run}.{rank}.txt")), torchrun_variables(rank, 2, port)
        processes.append(context.Process(target=interrupting.run_command, args=told, kwargs=variables))
        processes[rank].start()
    for process in processes:
        process.join(280)
    assert processes[0].exitcode == status, Path(f"{run}.0.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, two_gpus])])
def test_a_killed_sharded_run_continues_exactly_and_one_process_loads_it(device, server, corpus_files, tmp_path):
    # a forked process cannot use a GPU that its parent has used
    context = server if device == "cpu" else torch.multiprocessing.get_context("spawn")
    arguments = [*BY_NAME["rstformer"].arguments(corpus_files), "--data.batch_size=2", "--wandb=off"]
    arguments += [f"--trainer.accelerator={device}", "--trainer.strategy=fsdp2", "--trainer.devices=2"]
    arguments += ["--trainer.max_steps=6", "--trainer.log_every_n_steps=1", "--previews=0", "--save_every=2"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    fit(context, whole, f"--run_dir={whole}", *arguments)
    interrupt = ["--trainer.callbacks+=interrupting.Interrupt", "--trainer.callbacks.number=9"]
    fit(context, killed, f"--run_dir={killed}", *arguments, *interrupt, "--trainer.callbacks.batch=5", status=-9)
    last = killed / "checkpoints" / "last.ckpt"
    assert torch.load(last, weights_only=True)["global_step"] == 4
    fit(context, killed, f"--run={killed}", "--trainer.callbacks=null", "--trust")
    first, second = (torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (whole, killed))
    torch.testing.assert_close(second["state_dict"], first["state_dict"], rtol=0, atol=0)
    torch.testing.assert_close(second["optimizer_states"], first["optimizer_states"], rtol=0, atol=0)
    assert (killed / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    torch.testing.assert_close(load_run(killed, last).model.state_dict(), first["state_dict"], rtol=0, atol=0)
    alone = ["--trainer.strategy=auto", "--trainer.devices=1", "--trainer.accelerator=cpu"]
    assert run_main("test", "--run", killed, *alone) == 0
