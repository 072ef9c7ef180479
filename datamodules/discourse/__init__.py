"""Discourse: treebanks, RST trees, parses and labelled discourse distributions."""
