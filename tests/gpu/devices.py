"""Devices of tests that run on the CPU, and on a GPU where there is one."""

import pytest
import torch

CUDA = pytest.param("cuda", marks=pytest.mark.cuda)
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def trainer_arguments(device: str) -> dict:
    """Return the arguments of a Lightning trainer for one device."""
    return {"accelerator": {"cpu": "cpu", "cuda": "gpu"}[device], "devices": 1}
