"""Data of MatchSum: documents, and candidate summaries from the sentences with the highest scores."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, combinations
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from datamodules.atomic_write import building_folder
from datamodules.batch import Batch, on_host, pad
from datamodules.corpora.corpus import Corpus, TableDocuments
from datamodules.documents import Document, UserError
from datamodules.summarization import _digest
from datamodules.text.oracle import text_scores
from datamodules.tokenizer_data import TokenizerData
from datamodules.truncation import TRUNCATION, count_source

if TYPE_CHECKING:
    import datasets  # imported when documents are read: models only need the types of batches


class SentenceScorer(Protocol):
    """Interface of scorers that propose sentences.

    Implementations are the run of an extractive model (`precis.training.run_scorer.RunScorer`) and untrained extraction
    (`lightning_modules.extractive.zero_shot.ZeroShot`).
    """

    fingerprint: str  # digest of everything that scores depend on

    def sentence_scores(self, documents: Iterable[Document]) -> Iterator[list[float]]:
        """Yield the scores of each document's sentences (higher is better), reading documents one by one."""


@dataclass
class MatchSumBatch(Batch):
    """B documents with up to C candidate summaries, as rows of up to `piece` tokens; longer texts have several rows."""

    documents: Tensor  # N rows of documents, [N, S]
    document_sizes: Tensor = on_host()  # number of tokens of each row, [N], in host memory
    document_of: Tensor  # index of the document of each row, [N]
    texts: Tensor  # M rows of candidates and references, [M, T]
    text_sizes: Tensor = on_host()  # number of tokens of each row, [M], in host memory
    text_of: Tensor  # index of the text of each row, [M]: of the candidates of all documents, then the references
    slots: Tensor  # index of the text of each candidate, [B, C]; 0 for none
    mask: Tensor  # True at candidates, [B, C]
    gold: Tensor  # index of the text of the first reference, [B]; 0 for none
    has_gold: Tensor  # whether there is a reference, [B]
    gains: Tensor  # mean ROUGE-1, -2 and -L F of each candidate against the first reference, [B, C]
    prior: Tensor  # mean score of the sentences of each candidate by the proposing model, [B, C]
    choices: list[list[list[int]]]  # indices of the sentences of each candidate of each document
    sentences: list[list[str]]  # sentences of each document
    proposed: list[list[float]]  # scores of all sentences of each document by the proposing model


class MatchSumData(TokenizerData):
    """Documents with candidate summaries: all subsets of given sizes of the sentences with the highest scores.

    A document with fewer than `keep` sentences keeps them all. Sizes above the number of kept ones are left out; if
    none is left, the only candidate is the whole document.

    Args:
        scorer: scorer of sentences; its scores are cached.
        vocab_size: size of a tokenizer trained on the corpus; with `checkpoint` at least that of its tokenizer.
        checkpoint: pretrained encoder whose tokenizer is used, see `MatchSum`.
        keep: number of sentences of each document from which candidates are formed.
        sizes: numbers of sentences of candidates.
        piece: maximum number of tokens that are read at once; longer texts are split into pieces.
        shared: arguments of `SummarizationData`.

    Raises:
        ValueError: if a number is too small, or there is no size.
    """

    batch_type = MatchSumBatch

    def __init__(
        self,
        corpus: Corpus,
        scorer: SentenceScorer,
        vocab_size: int = 30_522,
        checkpoint: str | None = "minilm",
        keep: int = 5,
        sizes: list[int] | None = None,
        piece: int = 500,
        **shared: Any,
    ) -> None:
        super().__init__(corpus, vocab_size, checkpoint, **shared)
        self.sizes = sorted(set(sizes or [2, 3]))
        if keep < 1 or piece < 1 or self.sizes[0] < 1 or self.sizes[0] > keep:
            raise ValueError(f"data.keep {keep}, sizes {self.sizes}, piece {piece}: at least 1, and a size up to keep")
        self.scorer = scorer
        self.scorer.language = self.language.code  # changes the caller's object, which scores this corpus
        self.keep = keep
        self.piece = piece
        self._scores: dict[str, list[float]] = {}  # sentence scores of the split that is being encoded, by document id

    def feature_settings(self) -> dict[str, Any]:
        settings = {"version": 1, "keep": self.keep, "sizes": self.sizes, "piece": self.piece}
        return settings | {"scorer": self.scorer.fingerprint}

    def features(self, split: str) -> "datasets.Dataset":
        """Return the encoded documents of a split, from the cache if possible, after scoring their sentences."""
        if split not in self._features:
            self._scores = self.proposals(split)  # for `encode`
        return super().features(split)

    def proposals(self, split: str) -> dict[str, list[float]]:
        """Return the scores of all sentences of a split, which propose candidates, by document id; cached in a file.

        Raises:
            UserError: if the scorer does not score each sentence.
        """
        key = _digest(self.digest(split), self.scorer.fingerprint, *self.language.setting.values())
        path = self.cache_dir / "proposals" / f"{key}.json"  # the key has the language, unless it is English
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8"))
        documents = TableDocuments(self.documents(split))
        scores_by_id: dict[str, list[float]] = {}
        for document, scores in zip(documents, self.scorer.sentence_scores(iter(documents)), strict=True):
            if len(scores) != len(document.sentences):
                name = type(self.scorer).__name__
                raise UserError(f"{name} gave document {document.id!r} {len(scores)} scores for its sentences")
            scores_by_id[document.id] = scores
        with building_folder(path.parent) as building:  # other processes only see the complete file
            (building / path.name).write_text(json.dumps(scores_by_id), encoding="utf-8")
            (building / path.name).replace(path)  # atomic
        return scores_by_id

    def _for_workers(self) -> "MatchSumData":
        data = super()._for_workers()
        data.scorer = None  # a model, which `encode` does not need
        return data

    def choices(self, scores: list[float]) -> list[list[int]]:
        """Return the candidate summaries of a document, each as ascending indices of its sentences.

        Candidates are the subsets, with a number of sentences in `sizes`, of the `keep` sentences with the highest
        `scores`, the first of equal ones. A document with fewer sentences than all sizes is its only candidate.
        """
        top_sentences = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[: self.keep]
        choices = [list(choice) for size in self.sizes for choice in combinations(sorted(top_sentences), size)]
        return choices or [list(range(len(scores)))]  # the latter with too few sentences for any size

    def encode(self, document: Document) -> dict[str, Any]:
        """Return the features of a document: tokens, ROUGE (`gains`) and sentences (`choices`) of its candidates."""
        scores = self._scores[document.id]  # set for the split by `features`
        sentences = document.sentences
        choices = self.choices(scores)  # sentences of each candidate, as indices
        texts = [[sentences[index] for index in choice] for choice in choices]
        gold = next((summary for summary in document.references if any(map(str.split, summary))), None)  # not blank
        rows = self.rows(sentences)  # pieces of at most `piece` tokens
        num_tokens = sum(map(len, rows))
        return {
            "document": rows,
            "candidates": [self.rows(text) for text in texts],
            "gold": self.rows(gold) if gold else [],
            "choices": choices,
            "gains": text_scores(texts, [gold], language=self.language.code) if gold else [0.0] * len(texts),
            "sentences": sentences,
            "proposed": scores,  # of its sentences by the scorer, which proposes the candidates
            "length": num_tokens,
            TRUNCATION: count_source(document, num_tokens, num_tokens, len(sentences)),  # nothing is truncated
        }

    def rows(self, sentences: list[str]) -> list[list[int]]:
        """Return the tokens of a text as rows of at most `piece` tokens, each between a start and an end symbol."""
        tokens = [token for sentence in sentences for token in self.tokenizer(sentence)[0]]
        return self.tokenizer.wrapped(tokens, self.piece)

    def collate(self, rows: list[dict[str, Any]]) -> MatchSumBatch:
        documents, document_of = _flat([row["document"] for row in rows])  # rows of tokens, and the document of each
        counts = [len(row["candidates"]) for row in rows]
        golds = [row["gold"] for row in rows if row["gold"]]  # first references, as rows of tokens
        # Texts: candidates of all documents, then the references of documents that have one; `texts` has their rows.
        texts, text_of = _flat([text for row in rows for text in row["candidates"]] + golds)
        firsts = list(accumulate(counts, initial=0))  # index of each document's first candidate among texts
        has_gold = [bool(row["gold"]) for row in rows]
        numbers = accumulate(has_gold, initial=sum(counts))  # index of each document's reference among texts, if any
        gold = [number if present else 0 for number, present in zip(numbers, has_gold)]  # 0, which is masked, for none
        prior = []  # mean score of the sentences of each candidate
        for row in rows:
            chosen_scores = [[row["proposed"][index] for index in choice] for choice in row["choices"]]
            # `max` is for the one candidate of a document without sentences, which is empty
            prior.append([sum(scores) / max(1, len(scores)) for scores in chosen_scores])
        return MatchSumBatch(
            ids=[row["id"] for row in rows],
            references=[row["references"] for row in rows],
            documents=pad(documents, self.tokenizer.pad),
            document_sizes=torch.tensor([len(tokens) for tokens in documents]),
            document_of=torch.tensor(document_of),
            texts=pad(texts, self.tokenizer.pad),
            text_sizes=torch.tensor([len(tokens) for tokens in texts]),
            text_of=torch.tensor(text_of),
            slots=pad([list(range(first, first + count)) for first, count in zip(firsts, counts)]),  # indices of texts
            mask=pad([[1] * count for count in counts]).bool(),  # True at candidates
            gold=torch.tensor(gold),
            has_gold=torch.tensor(has_gold),
            gains=pad([row["gains"] for row in rows], dtype=torch.float),  # ROUGE of each candidate
            prior=pad(prior, dtype=torch.float),
            choices=[row["choices"] for row in rows],
            sentences=[row["sentences"] for row in rows],
            proposed=[row["proposed"] for row in rows],  # scores of sentences by the scorer
        )


def _flat(texts: list[list[list[int]]]) -> tuple[list[list[int]], list[int]]:
    """Return the rows (tokens) of all texts, each a list of rows, and the index of the text of each row."""
    return [row for text in texts for row in text], [number for number, text in enumerate(texts) for _ in text]
