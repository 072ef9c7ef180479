"""`ParsingData`: the documents that a cache of parses lacks, for a parser to predict."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import datasets
import torch
from pytorch_lightning import LightningDataModule
from torch import nn

from datamodules.corpora.corpus import Corpus, OnBadRecord, as_document, build_documents, read_manifest
from datamodules.corpora.parallel import progress_bar
from datamodules.discourse.cache import ParseCache, parse_key
from datamodules.discourse.distributions import Rows
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.documents import CorpusError, Document


class Parser(Protocol):
    """What a parser is to everybody else: a LightningModule with this besides.

    Attributes:
        fingerprint: digest of the weights and of the code's version: what its answers depend on.
        rows: reading of the LDD.
        band: half-width of the band that it gives; narrower where the document has not so many EDUs.
    """

    fingerprint: str
    rows: Rows
    band: int

    def predict_step(self, batch: list[ParseRequest], batch_idx: int) -> list[DiscourseParse]: ...


ParserLoader = Callable[[str, Rows, int], Parser]


class NeedsParser:
    """Mix-in of DataModules whose parser may be given by name.

    Models are unknown to this package, so whoever builds the DataModule sets `load_parser`; `precis` sets
    `experiments.discourse.parsers.load_parser`.

    Attributes:
        load_parser: loads a parser by its name, reading of the LDD, and half-width of the band.
    """

    load_parser: ParserLoader | None = None

    def parser_named(self, name: str, rows: Rows = "side", band: int = 128) -> Parser:
        """Load the parser of a name, as `precis parse --parser` takes it.

        Raises:
            CorpusError: if `load_parser` is not set, or there is no parser of that name.
        """
        if self.load_parser is None:
            raise CorpusError(
                f"data.parser {name!r} is a name, and this {type(self).__name__} cannot load parsers by name; pass a "
                "parser, or set load_parser (experiments.discourse.parsers.load_parser)"
            )
        return self.load_parser(name, rows, band)


def key_of(request: ParseRequest, parser: Parser) -> str:
    """The key of a parser's answer in a cache."""
    return parse_key(request, parser.fingerprint, parser.rows, parser.band)


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text for estimates of time: words between white space."""
    return len(text.split())


class CorpusDocuments(Sequence[Document]):
    """The documents of some splits of a corpus, one behind the other; none is kept in memory.

    Args:
        corpus: where they come from.
        splits: which; all there are if not given.
        cache_dir: where `build_documents` keeps them.
        on_bad_record: as in `build_documents`.
        num_proc: processes that split sentences.

    Raises:
        CorpusError: as `build_documents`.
    """

    def __init__(
        self,
        corpus: Corpus,
        cache_dir: Path,
        splits: list[str] | None = None,
        on_bad_record: OnBadRecord = "skip",
        num_proc: int = 1,
    ) -> None:
        self.tables: list[datasets.Dataset] = [
            build_documents(corpus, split, cache_dir, on_bad_record=on_bad_record, num_proc=num_proc)
            for split in splits or corpus.splits()
        ]
        self.skipped = [bad for table in self.tables for bad in read_manifest(table)["skipped"]]
        self._ends = list(accumulate(map(len, self.tables)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Document:
        if not 0 <= index < len(self):
            raise IndexError(index)
        table = next(number for number, end in enumerate(self._ends) if index < end)
        return as_document(self.tables[table][index - self._ends[table] + len(self.tables[table])])


class ParsingData(LightningDataModule):
    """Batches of documents that a cache lacks, long ones with long ones, the longest first.

    Who parses what depends on the corpus alone, not on what is there already: the documents, sorted by length, are
    dealt out to the tasks of an array and to the ranks of each. So processes that start and stop at different times
    neither do the same work nor leave any undone. A rank for which nothing is left repeats one document, as all have to
    take part in the run.

    Args:
        documents: to parse; those with the same text count once, empty ones are left out and named in `empty`.
        cache: where parses are.
        parser: whose parses.
        batch_size: documents a batch, at most.
        batch_characters: characters a batch, at most, counted as its longest document's times their number; a document
            that is longer is a batch by itself.
        shard: which of how many tasks this one is, from 1.

    Raises:
        ValueError: if a size is below 1, or there is no such task.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        cache: ParseCache,
        parser: Parser,
        batch_size: int = 16,
        batch_characters: int = 100_000,
        shard: tuple[int, int] = (1, 1),
    ) -> None:
        super().__init__()
        if batch_size < 1 or batch_characters < 1:
            raise ValueError(f"a batch of {batch_size} documents and {batch_characters} characters: both at least 1")
        if not 1 <= shard[0] <= shard[1]:
            raise ValueError(f"shard {shard[0]} of {shard[1]}: there are 1 to {shard[1]}")
        self.documents, self.cache, self.parser = documents, cache, parser
        self.batch_size, self.batch_characters, self.shard = batch_size, batch_characters, shard
        self.empty: list[str] = []
        self.repeated = 0  # documents with the text of another
        self.keys: dict[str, int] = {}  # key -> index of the document, longest first
        self._lengths: dict[str, int] = {}  # characters
        self.tokens: dict[str, int] = {}  # key -> tokens
        self._surveyed = False

    def setup(self, stage: str | None = None) -> None:
        """Looks at all documents, once."""
        if self._surveyed:
            return
        found: dict[str, int] = {}
        for index in range(len(self.documents)):
            request = self.request(index)
            if request.empty:
                self.empty.append(request.id)
                continue
            key = key_of(request, self.parser)
            self.repeated += key in found
            found.setdefault(key, index)
            self._lengths[key] = len(request.text)
            self.tokens[key] = count_tokens(request.text)
        self.keys = {key: found[key] for key in sorted(found, key=lambda key: -self._lengths[key])}
        self._surveyed = True

    def request(self, index: int) -> ParseRequest:
        """What a parser is asked about a document."""
        return ParseRequest.of(self.documents[index])

    def task(self) -> list[str]:
        """Keys of this task's documents, all ranks together."""
        self.setup()
        number, tasks = self.shard
        return list(self.keys)[number - 1 :: tasks]

    def missing(self) -> list[str]:
        """Keys of this task's documents that the cache lacks."""
        return self.cache.missing(self.task())

    def predict_dataloader(self) -> "Requests":
        """This rank's share of what is missing."""
        rank, ranks = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        share = self.task()[rank::ranks]
        left = self.cache.missing(share) or (self.task()[:1] if ranks > 1 else [])
        batches: list[list[str]] = []
        for key in left:
            longest = self._lengths[batches[-1][0]] if batches else 0
            room = self.batch_characters // max(1, longest)
            if batches and len(batches[-1]) < min(self.batch_size, room):
                batches[-1].append(key)
            else:
                batches.append([key])
        return Requests(self, batches)

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        """Text stays where it is."""
        return batch


class Requests:
    """Batches of requests, made when they are wanted. No DataLoader: Lightning would make that anew to predict."""

    def __init__(self, data: ParsingData, batches: list[list[str]]) -> None:
        self.data, self.batches = data, batches

    @property
    def documents(self) -> int:
        """How many there are in all batches."""
        return sum(map(len, self.batches))

    @property
    def tokens(self) -> int:
        """How many tokens there are in all batches, see `count_tokens`."""
        return sum(self.data.tokens[key] for batch in self.batches for key in batch)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[ParseRequest]]:
        for batch in self.batches:
            yield [self.data.request(self.data.keys[key]) for key in batch]


def parse_missing(documents: Sequence[Document], cache: ParseCache, parser: Parser, batch_size: int = 16) -> int:
    """Parses what a cache lacks, in this process: what a DataModule calls in `prepare_data`.

    Args:
        documents: all that are wanted.
        cache: where to.
        parser: on the device where it is to run; a module is moved to a GPU, where there is one, and back.
        batch_size: documents a batch, at most.

    Returns:
        How many documents were parsed.
    """
    data = ParsingData(documents, cache, parser, batch_size)
    batches = data.predict_dataloader()
    if not batches.documents:
        return 0
    moved = isinstance(parser, nn.Module) and torch.cuda.is_available()
    with cache.writer() as writer, progress_bar() as progress:
        parser = parser.cuda() if moved else parser
        for number, batch in enumerate(progress.track(batches, total=len(batches), description="parsing")):
            add_answers(writer.add, batch, parser.predict_step(batch, number), parser)
        parser = parser.cpu() if moved else parser
    cache.refresh()
    return batches.documents


def add_answers(add: Any, batch: list[ParseRequest], answers: list[DiscourseParse], parser: Parser) -> None:
    """Hands a batch's parses on with their keys: `add(key, parse)`.

    Raises:
        ValueError: if the parser did not answer each request, in order, about the text and in the reading asked for.
    """
    wanted, given = [request.id for request in batch], [parse.id for parse in answers]
    if given != wanted:
        raise ValueError(f"{type(parser).__name__} was asked for {wanted[:3]} ..., and answered {given[:3]} ...")
    for request, parse in zip(batch, answers):
        if parse.rows != parser.rows or parse.half_width != min(parser.band, parse.size - 1):
            got = f"rows {parse.rows}, {parse.half_width} EDUs to each side of {parse.size}"
            raise ValueError(f"document {parse.id!r}: asked for rows {parser.rows}, band {parser.band}, got {got}")
        add(key_of(request, parser), parse)
