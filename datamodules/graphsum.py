"""Data of GraphSum: paragraphs of subwords, and the graph between them."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from datamodules.batch import TargetBatch, on_host, pad, target_fields
from datamodules.corpora.corpus import Corpus, TableDocuments
from datamodules.documents import Document, UserError
from datamodules.graphs import GraphName, ParagraphGraph, ParagraphRule, make_graph
from datamodules.graphs.paragraphs import Paragraphs
from datamodules.loading import at_least
from datamodules.parsing import NeedsParser, Parser
from datamodules.text.lines import load_json
from datamodules.text.subword_tokenizer import PARAGRAPH, SENTENCE, SubwordTokenizer
from datamodules.tokenizer_data import TokenizerData
from datamodules.truncation import TRUNCATION, Counts, sentences_read, truncate_target

if TYPE_CHECKING:
    import datasets  # imported when documents are read: models only need the types of batches


@dataclass
class GraphSumBatch(TargetBatch):
    """Documents as up to L paragraphs of up to n ids with a graph, summaries as ids with separators of sentences."""

    source: Tensor  # tokens of paragraphs, the last of each a separator, [B, L, n]
    source_mask: Tensor  # True at tokens, [B, L, n]
    graph: Tensor  # weights between paragraphs, G in the paper, in [0, 1], 0 at padding, [B, L, L]
    places: Tensor  # index in [L n] of each token of the concatenated document, padded with 0, [B, S]
    lengths: Tensor = on_host()  # number of tokens of each document, [B], in host memory
    target_input: Tensor  # the start symbol and the summary, [B, T]


class GraphTokenizer(SubwordTokenizer):
    """Subword tokenizer, stored with what the graph between paragraphs learned from the corpus, such as topics."""

    separators = (PARAGRAPH, SENTENCE)  # <p> and <q>, which end paragraphs and sentences
    graph_file = "graph.json"
    graph: dict[str, Any] = {}  # noqa: RUF012 (state of the `ParagraphGraph`, never changed in place)

    def state(self) -> dict[str, Any]:
        return super().state() | ({"graph": self.graph} if self.graph else {})

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        tokenizer = super().from_state(state)
        tokenizer.graph = state.get("graph", {})  # absent if the graph learns nothing
        return tokenizer

    def save(self, folder: Path) -> None:
        """Write tokenizer.json, and graph.json if something was learned."""
        super().save(folder)
        if self.graph:
            (folder / self.graph_file).write_text(json.dumps(self.graph), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the tokenizer and the state of the graph that `save` wrote.

        Raises:
            UserError: if there is no tokenizer, or a file is invalid.
        """
        tokenizer = super().load(folder)
        path = Path(folder) / cls.graph_file
        if path.is_file():  # only graphs that learn from the corpus, such as `topic`, have one
            try:
                tokenizer.graph = load_json(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise UserError(f"{path}: damaged: {error}; prepare the data again") from None
        return tokenizer


class GraphSumData(NeedsParser, TokenizerData):
    """Documents as paragraphs of at most `max_tokens` subwords, with the graph between them.

    Validation and test score against all references; the loss reads the first one.

    Args:
        vocab_size: size of a tokenizer trained on the corpus, at least 262 (256 bytes and six special symbols); with
            `checkpoint` at least the size of its tokenizer plus two separators.
        checkpoint: Hugging Face name or folder of a pretrained encoder whose tokenizer is used, or `minilm`.
        graph: name of a graph (`similarity`, `scaled_similarity`, `topic`, `discourse`, `rst` or `none`), or a
            `ParagraphGraph` with other settings.
        parser: parser of the graph `rst`, or its name as in `precis parse --parser`.
        parses: folder of parses; by default `parses` in the cache.
        paragraphs: definition and selection of paragraphs.
        max_tokens: maximum number of tokens of a paragraph, separator included.
        max_target: maximum number of tokens of a summary in the loss, end symbol included.
        shared: arguments of `SummarizationData`.
    """

    batch_type = GraphSumBatch
    tokenizer_type = GraphTokenizer
    text_kind = "paragraphs"

    def __init__(
        self,
        corpus: Corpus,
        vocab_size: int = 32_000,
        checkpoint: str | None = None,
        graph: GraphName | ParagraphGraph = "similarity",
        parser: Parser | str | None = None,
        parses: Path | None = None,
        paragraphs: ParagraphRule | None = None,
        max_tokens: int = 60,
        max_target: int = 300,
        batch_size: int = 8,
        **shared: Any,
    ) -> None:
        super().__init__(corpus, vocab_size, checkpoint, batch_size=batch_size, **shared)
        at_least(2, max_tokens=max_tokens, max_target=max_target)  # a token besides the separator or the end symbol
        self.max_tokens = max_tokens
        self.max_target = max_target
        self.paragraphs = paragraphs or ParagraphRule()
        if isinstance(graph, str) and graph not in get_args(GraphName):  # checked now, as the graph is made later
            raise ValueError(f"data.graph {graph!r} is not one of {', '.join(get_args(GraphName))}; choose one")
        if graph == "rst" and parser is None:
            raise ValueError("data.graph rst needs a parser; name one with data.parser")
        self._graph = graph  # `graph` makes the graph on first use: a parser is slow to load
        self._parser = parser
        self._parses = Path(parses) if parses else self.cache_dir / "parses"

    @cached_property
    def graph(self) -> ParagraphGraph:
        """Graph between paragraphs, set to the language; a parser named by a string is loaded on first use.

        Raises:
            UserError: if there is no parser of that name.
        """
        parser = self._parser
        if self._graph == "rst" and isinstance(parser, str):
            parser = self.parser_named(parser)
        graph = make_graph(self._graph, parser, self._parses)
        graph.language = self.language.code
        return graph

    def _for_workers(self) -> "GraphSumData":
        data = super()._for_workers()
        data.graph = self.graph  # made before its parser is left out
        data._parser = None
        return data

    def tokenizer_settings(self) -> dict[str, Any]:  # what the tokenizer depends on, for the cache key
        graph = [self.graph.name, self.graph.settings(), asdict(self.paragraphs)]
        return super().tokenizer_settings() | {"graph": graph} | self.language.setting

    def build_tokenizer(self, train: "datasets.Dataset") -> GraphTokenizer:
        """Build the tokenizer and fit the graph, whose learned state is stored with it."""
        if self.checkpoint is not None:
            tokenizer = GraphTokenizer.of_checkpoint(self.checkpoint)
        else:
            texts = (text for row in train for text in (*row["parts"], *row["references"]))  # lists of sentences
            sentences = (f" {sentence}" for text in texts for sentence in text)  # `_tokens` adds the same space
            tokenizer = GraphTokenizer.build(sentences, self.vocab_size)
        self.graph.fit(self.paragraphs(document) for document in TableDocuments(train))  # only some graphs learn
        tokenizer.graph = self.graph.state()
        return tokenizer

    def load_tokenizer(self, folder: Path) -> GraphTokenizer:
        """Load the tokenizer from a folder, such as `RUN/text`, and restore what the graph learned (such as topics)."""
        tokenizer = GraphTokenizer.load(folder)
        if tokenizer.sentence is None:  # id of the separator of sentences, which tokenizers of other models lack
            problem = "its tokenizer has no separators <p> and <q>"
            raise UserError(f"{folder}: {problem}; give the folder `text` of a GraphSum run")
        self.graph.load_state(tokenizer.graph)
        return tokenizer

    def feature_settings(self) -> dict[str, Any]:  # what `encode` depends on, for the cache key
        sizes = {"max_tokens": self.max_tokens, "max_target": self.max_target, "checkpoint": self.checkpoint}
        return sizes | {"paragraphs": asdict(self.paragraphs), "graph": self.graph.digest()}

    def encode(self, document: Document) -> dict[str, Any]:
        """Return the features of a document: the tokens of L paragraphs, the graph between them, and the target."""
        paragraphs = self.paragraphs(document)
        # after each paragraph: <p>, or the end symbol, as a pretrained encoder has no vector for <p>
        separator = self.tokenizer.paragraph if self.checkpoint is None else self.tokenizer.stop
        tokens = [self._tokens(" ".join(sentences)) for sentences in paragraphs.texts]  # (ids, offsets) by paragraph
        source = [[*ids[: self.max_tokens - 1], separator] for ids, _ in tokens]
        sentences = [[*self._tokens(sentence)[0], self.tokenizer.sentence] for sentence in document.reference]  # ids
        reference = [token for sentence in sentences for token in sentence][:-1]  # without a separator at the end
        target, target_counts = truncate_target(reference, self.max_target, self.tokenizer.stop)
        return {
            "source": source,
            "graph": self.graph(paragraphs).flatten().tolist(),  # L x L weights
            "target": target,
            "length": len(source) * max(map(len, source)),  # with padding to the longest paragraph
            TRUNCATION: self._counts(paragraphs, tokens) | target_counts,
        }

    def _tokens(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of subwords and their offsets (start, end) in the characters of `text`."""
        if not text.strip():
            return [], []
        ids, offsets = self.tokenizer(f" {text}")  # the space gives a word the same tokens in all positions
        return ids, [(start - 1, end - 1) for start, end in offsets]  # without the space

    def _counts(self, paragraphs: Paragraphs, tokens: list[tuple[list[int], list[tuple[int, int]]]]) -> Counts:
        """Return [number read, total] of parts, paragraphs etc.; `tokens` has the (ids, offsets) of each paragraph."""
        parts = len(paragraphs.document.parts)  # source documents, or paragraphs as the corpus has them
        max_tokens = self.max_tokens - 1  # one token is the separator
        complete_sentences = 0  # counted in each paragraph as if it were a document
        for sentences, (_, offsets) in zip(paragraphs.texts, tokens):
            complete_sentences += sentences_read(Document("", [sentences]), offsets, max_tokens)  # the id is unused
        tokens_read = sum(min(len(ids), max_tokens) for ids, _ in tokens)
        return {
            "source_parts": [parts - paragraphs.empty, parts],  # `empty` is the number of parts without words
            "source_paragraphs": [paragraphs.total - paragraphs.dropped, paragraphs.total],
            "source_sentences": [complete_sentences, len(paragraphs.document.sentences)],
            "tokens_of_kept_paragraphs": [tokens_read, sum(len(ids) for ids, _ in tokens)],
        }

    def truncation_limits(self) -> dict[str, str]:
        """Return the reason why each count of `encode` may be incomplete: an option with its value, or a condition."""
        paragraphs = f"data.paragraphs.max_paragraphs {self.paragraphs.max_paragraphs}, keep {self.paragraphs.keep}"
        return {
            "source_parts": "parts without words",
            "source_paragraphs": paragraphs,
            "tokens_of_kept_paragraphs": f"data.max_tokens {self.max_tokens}",
            "source_sentences": "data.paragraphs.max_paragraphs and data.max_tokens",
            "target_tokens": f"data.max_target {self.max_target}",
        }

    def prepare_splits(self, splits: list[str]) -> None:
        """Prepare the inputs of the graph, such as parses, then tokenizer and features as `SummarizationData` does."""
        for split in splits:
            self.graph.prepare(TableDocuments(self.documents(split)))
        super().prepare_splits(splits)

    def collate(self, rows: list[dict[str, Any]]) -> GraphSumBatch:  # rows: features by `encode`
        L = max(len(row["source"]) for row in rows)  # number of paragraphs of the longest document
        paragraphs = []  # L lists of tokens for each document, the last ones empty if it has fewer paragraphs
        graph = torch.zeros(len(rows), L, L)
        for b, row in enumerate(rows):
            size = len(row["source"])
            paragraphs += row["source"] + [[]] * (L - size)
            graph[b, :size, :size] = weights_of(row)
        source = pad(paragraphs, self.tokenizer.pad).unflatten(0, (-1, L))
        mask = pad([[1] * len(tokens) for tokens in paragraphs]).unflatten(0, (-1, L)).bool()  # True at tokens
        # for each document, indices in [L n] of its tokens without padding, to concatenate its paragraphs
        places = [document_mask.nonzero().squeeze(1) for document_mask in mask.flatten(1)]
        shifted = [[self.tokenizer.start, *row["target"][:-1]] for row in rows]  # targets, one token later
        return GraphSumBatch(
            ids=[row["id"] for row in rows],
            references=[row["references"] for row in rows],
            source=source,
            source_mask=mask,
            graph=graph,
            places=pad_sequence(places, batch_first=True),
            lengths=torch.tensor([len(indices) for indices in places]),
            target_input=pad(shifted, self.tokenizer.pad),  # [B, T]
            **target_fields([row["target"] for row in rows], self.tokenizer.pad),
        )


def weights_of(row: dict[str, Any]) -> Tensor:
    """Return the weights of an encoded document's graph between its L paragraphs, [L, L]; they are stored flat.

    Raises:
        UserError: if it does not have L x L weights for L paragraphs, or a weight is outside [0, 1].
    """
    weights, size = torch.tensor(row["graph"]), len(row["source"])
    if weights.numel() != size * size:
        problem = f"its graph has {weights.numel()} weights, not {size} x {size}"
        raise UserError(f"document {row['id']!r}: {problem}; prepare the data again")
    if not ((weights >= 0) & (weights <= 1)).all():  # this form also rejects NaN
        raise UserError(f"document {row['id']!r}: its graph has weights outside [0, 1]; scale them")
    return weights.view(size, size)
