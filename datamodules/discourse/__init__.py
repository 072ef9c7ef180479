"""Discourse: treebanks, RST trees, parses and labeled discourse distributions."""
