"""Discourse: treebanks, RST trees, and what is made of them."""
