"""FSDP2 (`fully_shard`) with two processes equals one: on the CPU with gloo, on two GPUs with NCCL."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from devices import two_gpus

SCRIPT = Path(__file__).parent / "sharded_training.py"
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, two_gpus])]


@pytest.mark.parametrize("device", DEVICES)
def test_sharded_parameters_train_like_whole_ones(device, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    root = SCRIPT.parents[2]
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "USE_LIBUV": "0"}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={port}"]
    done = subprocess.run(
        [*command, str(SCRIPT), device, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    assert results["sharded_elements"] < results["elements"]  # each process holds a part of the parameters
    assert results["sharded_losses"] == pytest.approx(results["losses"], rel=1e-4)
    assert results["losses"][-1] < results["losses"][0]
