"""Workspaces and reports at Weights & Biases, as code: one of each a paper, and a report of RSTformer's ablations."""
