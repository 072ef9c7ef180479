"""Readers of treebank formats, one module per format: `read` returns the documents of a file's text."""
