"""Detect whether oneDNN can run an LSTM in half precision on this processor with these environment variables."""

from functools import cache

import pytest
import torch
from torch import nn


@cache
def _lstm_runs() -> bool:
    with torch.autocast("cpu", torch.bfloat16):
        try:
            nn.LSTM(8, 8)(torch.zeros(2, 1, 8))
        except RuntimeError:
            return False
    return True


def skip_without_half_precision_lstm(*modules: nn.Module) -> None:
    """Skip a test of modules with an LSTM where oneDNN has none, as with `ONEDNN_MAX_CPU_ISA=AVX2`."""
    recurrent = any(isinstance(part, nn.RNNBase | nn.LSTMCell) for module in modules for part in module.modules())
    if recurrent and not _lstm_runs():
        pytest.skip("oneDNN has no LSTM in half precision with these instructions")
