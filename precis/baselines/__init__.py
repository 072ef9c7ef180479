"""Systems to compare with: untrained baselines, pretrained summarizers and chat models."""
