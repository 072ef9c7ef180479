"""Treebank formats, a file each: `read` makes documents of a file's text, `write` a file's text of documents."""
