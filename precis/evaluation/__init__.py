"""Evaluation of outputs, and comparison of systems."""
