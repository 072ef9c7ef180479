"""Data of models that read whole documents sentence by sentence, and of extractive ones with oracle labels."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from datamodules.batch import Batch, on_host, pad, pair_mask
from datamodules.corpora.corpus import Corpus
from datamodules.documents import Document
from datamodules.loading import at_least
from datamodules.text.lines import counted
from datamodules.text.oracle import greedy_oracle, sentence_scores
from datamodules.text.sentence_layout import layout_features, pairs_with_common_ngram
from datamodules.text.subword_tokenizer import by_token
from datamodules.tokenizer_data import TokenizerData
from datamodules.truncation import TRUNCATION, count_source


@dataclass
class SentenceBatch(Batch):
    """Documents as sentences."""

    tokens: Tensor  # ids: [CLS] sentence [SEP] [CLS] sentence [SEP] .., [B, T]
    lengths: Tensor = on_host()  # number of tokens of each document, [B], in host memory
    owner: Tensor  # index of the sentence that each token belongs to, -1 for padding, [B, T]
    heads: Tensor  # True at [CLS], the first token of each sentence or piece of a long one, [B, T]


class SentenceData(TokenizerData):
    """Base class of DataModules that encode documents as sequences of sentences.

    Args:
        vocab_size: size of a tokenizer that is trained on the corpus, at least 260 (256 bytes and four special
            symbols); with `checkpoint`, an upper limit of the size of its tokenizer.
        checkpoint: pretrained encoder whose tokenizer is used, see `BertSum`.
        max_source: maximum number of tokens of a document, in whole sentences; None for no limit.
        piece: maximum number of tokens of a sentence between [CLS], its head symbol, and [SEP]; longer sentences are
            split into pieces, each with these symbols.
        shared: arguments of `SummarizationData`.

    Raises:
        ValueError: if a number is too small.
    """

    def __init__(
        self,
        corpus: Corpus,
        vocab_size: int = 30_522,  # as BERT
        checkpoint: str | None = "minilm",
        max_source: int | None = None,
        piece: int = 200,  # as PreSumm's limit of a sentence
        **shared: Any,
    ) -> None:
        super().__init__(corpus, vocab_size, checkpoint, **shared)
        at_least(1, max_source=max_source, piece=piece)
        self.max_source = max_source
        self.piece = piece

    def feature_settings(self) -> dict[str, Any]:  # what `encode` depends on, for the cache key
        return {"version": 1, "max_source": self.max_source, "piece": self.piece}  # version: of what `encode` returns

    def encode(self, document: Document) -> dict[str, Any]:  # features of a document
        pieces = self.tokenizer.pieces(document.sentences, self.piece, self.max_source)
        # `pieces.sentences` is the number of sentences that are read; the others are encoded only to count their tokens
        truncated = self.tokenizer.pieces(document.sentences[pieces.sentences :], self.piece).tokens
        counts = count_source(document, len(pieces.tokens), len(pieces.tokens) + len(truncated), pieces.sentences)
        return {
            "tokens": pieces.tokens,
            "starts": pieces.starts,  # index of the first token of each piece
            "owners": pieces.owners,  # index of the sentence of each piece
            "sentences": document.sentences[: pieces.sentences],
            "length": len(pieces.tokens),
            TRUNCATION: counts,  # [number read, total] of tokens (with special ones), sentences and paragraphs
        }

    def token_fields(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the fields of `SentenceBatch` from documents as `encode` returns them."""
        # by document: the index of the sentence of each token, and 1 at the first token of each piece
        owner, heads = zip(*(by_token(len(row["tokens"]), row["starts"], row["owners"]) for row in rows))
        return {
            "ids": [row["id"] for row in rows],
            "references": [row["references"] for row in rows],
            "tokens": pad([row["tokens"] for row in rows], self.tokenizer.pad),
            "lengths": torch.tensor([len(row["tokens"]) for row in rows]),
            "owner": pad(owner, -1),  # 0 would be the first sentence
            "heads": pad(heads).bool(),
        }


@dataclass
class ExtractiveBatch(SentenceBatch):
    """Documents of up to L sentences, with labels and scores of sentences."""

    starts: list[list[int]]  # indices of the first token of each piece (a sentence, or part of a long one), by document
    mask: Tensor  # True at sentences, [B, L]
    candidates: Tensor  # True at sentences that may be selected, [B, L]
    labels: Tensor  # 1 for the sentences of the oracle summary, [B, L]
    gains: Tensor  # (ROUGE-1 F + ROUGE-2 F) / 2 of each sentence alone, [B, L]
    shared: Tensor  # True for pairs of sentences that share a trigram, [B, L, L]
    layout: Tensor  # `layout_features` of the sentences, [B, L, 13]
    sentences: list[list[str]]  # the sentences of each document


class ExtractiveData(SentenceData):
    """Whole documents, sentence by sentence, with the labels that extractive models learn from.

    Oracle labels are computed with the features, on `num_proc` processes, and kept in the cache with them.

    Args:
        vocab_size, checkpoint: see `SentenceData`.
        oracle_sentences: maximum number of sentences of the oracle summary; None for no limit.
        oracle_stem: whether the oracle compares stems of words.
        oracle_counts: count `all` n-grams or distinct ones (`set`, in PreSumm without stems), see `greedy_oracle`.
        min_words: shorter sentences are read, but neither labelled nor selected, unless all are shorter.
        max_words: the same for longer sentences.
        shared: `max_source` and `piece` of `SentenceData`, and arguments of `SummarizationData`.

    Raises:
        ValueError: if a number is too small.
    """

    batch_type = ExtractiveBatch

    def __init__(
        self,
        corpus: Corpus,
        vocab_size: int = 30_522,  # as BERT
        checkpoint: str | None = "minilm",
        oracle_sentences: int | None = 3,  # as PreSumm
        oracle_stem: bool = True,
        oracle_counts: Literal["all", "set"] = "all",
        min_words: int = 0,
        max_words: int | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(corpus, vocab_size, checkpoint, **shared)  # with `max_source` and `piece` of `SentenceData`
        at_least(1, oracle_sentences=oracle_sentences, max_words=max_words)  # each of them, unless it is None
        self.oracle_sentences = oracle_sentences
        self.oracle_stem = oracle_stem
        self.oracle_counts = oracle_counts
        self.min_words = min_words
        self.max_words = max_words

    def feature_settings(self) -> dict[str, Any]:  # what `encode` depends on, for the cache key
        names = ("oracle_sentences", "oracle_stem", "oracle_counts", "min_words", "max_words")
        return super().feature_settings() | {"version": 2} | {name: getattr(self, name) for name in names}

    def on_new_features(self, split: str) -> None:
        """Warn if no sentence is labelled, although there are references: `language` is probably set wrongly."""
        head = self.features(split).select_columns(["references", "labels"])[:1000]  # enough to tell, and fast
        if any(head["references"]) and not any(map(any, head["labels"])):
            warnings.warn(
                f"{split}: no sentence of the first {counted(len(head['labels']), 'document')} shares a word with its "
                f"reference in language {self.language.code!r}, so that no sentence is labelled; set --data.language",
                stacklevel=2,
            )

    def encode(self, document: Document) -> dict[str, Any]:
        """Return features as in `ExtractiveBatch`; `shared` lists pairs of sentences with a common trigram."""
        features = super().encode(document)
        sentences = features["sentences"]
        words = [self.language.tokenize(sentence) for sentence in sentences]
        usable = [self.min_words <= len(tokens) <= (self.max_words or len(tokens)) for tokens in words]  # None: any
        usable = usable if any(usable) else [True] * len(sentences)
        # Sentences that may not be selected become empty, so that the oracle skips them and indices stay the same.
        candidates = [sentence if is_usable else "" for sentence, is_usable in zip(sentences, usable)]
        references = [reference for reference in document.references if any(map(str.split, reference))]  # with a word
        chosen = []  # indices of the sentences of the oracle summary
        if references:
            options = (self.oracle_sentences, self.oracle_stem, self.oracle_counts, self.language.code)
            chosen = greedy_oracle(candidates, references, *options)
        return features | {
            "usable": usable,
            "labels": [int(index in chosen) for index in range(len(sentences))],
            "gains": sentence_scores(candidates, references, language=self.language.code),  # ROUGE of each sentence
            "shared": [index for pair in pairs_with_common_ngram(words) for index in pair],  # flat pairs, for Arrow
        }

    def collate(self, rows: list[dict[str, Any]]) -> ExtractiveBatch:  # rows: features by `encode`
        sentences = [row["sentences"] for row in rows]
        mask = pad([[1] * len(texts) for texts in sentences]).bool()  # True at sentences, [B, L]
        return ExtractiveBatch(
            **self.token_fields(rows),
            starts=[row["starts"] for row in rows],
            mask=mask,
            candidates=pad([[*map(int, row["usable"])] for row in rows]).bool(),  # sentences that may be selected
            labels=pad([row["labels"] for row in rows]).float(),
            gains=pad([row["gains"] for row in rows], dtype=torch.float),  # ROUGE of each sentence alone
            shared=pair_mask([row["shared"] for row in rows], mask.shape[1]),  # pairs that share a trigram
            layout=layout_features(sentences, self.language.code),  # 13 features of each sentence, [B, L, 13]
            sentences=sentences,
        )
