"""Features and batches over a vocabulary that each document extends by its own words.

Ids below V are vocabulary words, V + k is the k-th word of a document that the vocabulary lacks.
"""

from typing import Any

import datasets
from torch import Tensor

from datamodules.batch import pad
from datamodules.documents import Document
from datamodules.text.vocabulary import PAD, START, STOP, UNK, Vocabulary
from datamodules.text.words import Tokenizer


def corpus_vocabulary(train: datasets.Dataset, size: int, tokenizer: Tokenizer, lowercase: bool) -> Vocabulary:
    """The most frequent words of documents and summaries, special symbols included in `size`."""
    texts = (" ".join(sentence for part in (*row["parts"], *row["references"]) for sentence in part) for row in train)
    return Vocabulary.build(texts, size, tokenizer, lowercase)


def encode_words(
    text: Vocabulary, words: list[str], document: Document, vocab_size: int, max_target: int
) -> dict[str, Any]:
    """Features of a document: `source` and `target` as extended ids, the words `added`, and the source's `length`.

    Args:
        words: what is read of the document; without a word it still is one unknown word long, so that attention has
            where to go.
        document: its first reference is the target.
        vocab_size: V.
        max_target: tokens of the target, the end symbol included.
    """
    source, added = text.extend(words, vocab_size)
    reference = document.references[0] if document.references else []
    summary = [word for sentence in reference for word in text.tokenize(sentence)]
    target = [*text.target_ids(summary, added, vocab_size), STOP][:max_target]
    return {"source": source or [UNK], "added": added, "target": target, "length": max(1, len(source))}


def cut(
    rows: list[dict[str, Any]], most_source: int, most_target: int, vocab_size: int
) -> tuple[list[list[int]], list[list[int]], list[list[str]]]:
    """Sources, targets and added words of encoded documents, cut to so many tokens: words that only stand behind the
    cut of a source no longer extend the vocabulary."""
    sources = [row["source"][:most_source] for row in rows]
    # the words that a cut-off source still adds come first: extended ids are given in order of appearance
    kept = [max(0, max(source) - vocab_size + 1) for source in sources]
    targets = [
        [UNK if word >= vocab_size + k else word for word in row["target"][:most_target]] for row, k in zip(rows, kept)
    ]
    return sources, targets, [row["added"][:k] for row, k in zip(rows, kept)]


def target_fields(targets: list[list[int]], vocab_size: int) -> dict[str, Tensor]:
    """Fields of a batch: `target_input` and `target` [B, T], `target_lengths` [B], `target_rows` [N]."""
    target, inputs = pad(targets, PAD), pad([[START, *words[:-1]] for words in targets], PAD)
    return {
        "target_input": inputs.masked_fill(inputs >= vocab_size, UNK),
        "target": target,
        "target_lengths": pad([[len(words)] for words in targets]).squeeze(1),
        "target_rows": (target != PAD).flatten().nonzero().squeeze(1),
    }
