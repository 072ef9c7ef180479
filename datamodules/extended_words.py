"""Data with a vocabulary that is extended by the OOV words of each document.

Ids below V are words of the vocabulary; V + k is the k-th OOV word of a document.
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from datamodules.batch import TargetBatch, on_host, pad, target_fields
from datamodules.corpora.corpus import Corpus
from datamodules.documents import Document
from datamodules.loading import at_least
from datamodules.summarization import SummarizationData, all_texts
from datamodules.text.vocabulary import PAD, START, STOP, UNK, Vocabulary
from datamodules.text.words import WordTokenization
from datamodules.truncation import TRUNCATION, count_source, text_limits, whole_units

if TYPE_CHECKING:
    import datasets  # imported when documents are read: models only need the types of batches


@dataclass
class WordsBatch(TargetBatch):
    """Base class of batches of documents and summaries as ids of words in a vocabulary of size V.

    The target has extended ids, where V + k is the k-th out-of-vocabulary (OOV) word of the document.
    """

    source: Tensor  # vocabulary ids, [B, S], or [B, M, I] in parts for M agents
    source_extended: Tensor  # extended ids, of the same shape
    lengths: Tensor = on_host()  # words of each document [B] or part [B, M], 0 for padding, in host memory
    target_input: Tensor  # the start symbol and the summary, UNK where the vocabulary lacks a word, [B, T]
    oov_words: list[list[str]]  # words of each document that extend the vocabulary


class WordsData(SummarizationData):
    """Documents as words, with a vocabulary of the most frequent words.

    Validation and test score against all references; the loss reads the first one.

    Args:
        vocab_size: V, including four special symbols; a corpus may have fewer words.
        max_source: maximum number of words of a document that are read.
        max_target: maximum number of tokens of a summary in the loss, end symbol included.
        tokenizer: `words`, or `whitespace` for tokenized text.
        lowercase: convert text to lower case.
        shared: arguments of `SummarizationData`.
    """

    tokenizer_type = Vocabulary

    def __init__(
        self,
        corpus: Corpus,
        vocab_size: int = 50_000,
        max_source: int = 400,
        max_target: int = 100,
        tokenizer: WordTokenization = "words",
        lowercase: bool = True,
        **shared: Any,
    ) -> None:
        super().__init__(corpus, **shared)
        at_least(1, max_source=max_source)
        at_least(2, max_target=max_target)  # a word and the end symbol
        self.vocab_size = vocab_size
        self.max_source = max_source
        self.max_target = max_target
        self.tokenization = tokenizer  # the attribute `tokenizer` is the vocabulary
        self.lowercase = lowercase
        self.lengths_now = (max_source, max_target)  # of `collate`; `LengthCurriculum` starts lower and raises them

    def tokenizer_settings(self) -> dict[str, Any]:  # what the tokenizer depends on, for the cache key
        settings = {"size": self.vocab_size, "tokenizer": self.tokenization, "lowercase": self.lowercase}
        return settings | self.language.setting

    def build_tokenizer(self, train: "datasets.Dataset") -> Vocabulary:
        return Vocabulary.build(
            all_texts(train), self.vocab_size, self.tokenization, self.lowercase, self.language.code
        )

    def truncation_limits(self) -> dict[str, str]:  # count -> the option that limits it, for reports
        return text_limits(self.max_source, self.max_target)

    def encode(self, document: Document) -> dict[str, Any]:
        """Return features with ids, V + k for `oov_words[k]`; a document without words becomes one unknown word."""
        vocabulary = self.tokenizer
        parts = [[vocabulary.tokenize(sentence) for sentence in part] for part in document.parts]
        sentences = [words for part in parts for words in part]
        words = [word for sentence in sentences for word in sentence]
        source, oov_words = vocabulary.extend(words[: self.max_source], self.vocab_size)  # ids, words without an id
        summary = [word for sentence in document.reference for word in vocabulary.tokenize(sentence)]
        target = [*vocabulary.target_ids(summary, oov_words, self.vocab_size), STOP]  # words in neither become UNK
        paragraph_lengths = [sum(map(len, part)) for part in parts]
        # ends[i]: number of words read from the first i paragraphs
        ends = [min(end, self.max_source) for end in accumulate(paragraph_lengths, initial=0)]
        complete_sentences = whole_units([len(sentence) for sentence in sentences], self.max_source)  # number read
        return {
            "source": source or [UNK],
            "oov_words": oov_words,
            "target": target[: self.max_target],
            "length": max(1, len(source)),  # by which batches are sorted
            # number of words read of each paragraph; [1] for the word UNK
            "paragraphs": [end - start for start, end in pairwise(ends) if end > start] or [1],
            TRUNCATION: count_source(document, len(source), len(words), complete_sentences)  # [read, total] of each
            | {"target_tokens": [min(len(target), self.max_target), len(target)]},
        }

    def feature_settings(self) -> dict[str, Any]:  # what `encode` depends on, for the cache key
        return {"vocab_size": self.vocab_size, "max_source": self.max_source, "max_target": self.max_target}

    def arrange(self, sources: list[list[int]], rows: list[dict[str, Any]]) -> tuple[Tensor, Tensor]:
        """Return the fields `source_extended` and `lengths` from truncated `sources` and rows of complete features."""
        return pad(sources, PAD), torch.tensor([len(source) for source in sources])  # [B, S], [B]

    def collate(self, rows: list[dict[str, Any]]) -> WordsBatch:  # rows: features by `encode`
        max_source, max_target = self.lengths_now  # `LengthCurriculum` may truncate more than `encode`
        sources = [row["source"][:max_source] for row in rows]
        # Words that only occur in the truncated end of a source no longer extend the vocabulary. Extended ids follow
        # the order of appearance, so the remaining OOV words are the first k + 1, if V + k is the largest id.
        num_oov = [max(0, max(source) - self.vocab_size + 1) for source in sources]
        targets = []
        for row, num in zip(rows, num_oov):  # words that can no longer be copied from the source become UNK
            targets.append([UNK if word >= self.vocab_size + num else word for word in row["target"][:max_target]])
        extended, lengths = self.arrange(sources, rows)  # [B, S], [B]; or [B, M, I], [B, M] in parts for M agents
        inputs = pad([[START, *words[:-1]] for words in targets], PAD)  # the targets shifted by one word, [B, T]
        return self.batch_type(
            ids=[row["id"] for row in rows],
            references=[row["references"] for row in rows],
            source=extended.masked_fill(extended >= self.vocab_size, UNK),
            source_extended=extended,
            lengths=lengths,
            oov_words=[row["oov_words"][:num] for row, num in zip(rows, num_oov)],
            target_input=inputs.masked_fill(inputs >= self.vocab_size, UNK),
            **target_fields(targets, PAD),
        )
