"""Detect whether the user is logged in to Weights & Biases, without importing its client."""

import netrc
import os


def logged_in() -> bool:
    """Return whether Weights & Biases has a key: in the environment or in ~/.netrc."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False
