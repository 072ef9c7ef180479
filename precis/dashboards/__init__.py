"""Workspaces and reports at Weights & Biases as code, for each paper and for the ablations of RSTformer."""
