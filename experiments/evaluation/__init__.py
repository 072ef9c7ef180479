"""Scores of outputs, and comparisons of systems."""
