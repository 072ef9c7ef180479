"""`ParsingData`: DataModule of documents whose parse is missing in a cache."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from pytorch_lightning import LightningDataModule
from torch import nn

from datamodules.corpora.corpus import Corpus, TableDocuments, build_documents, read_manifest
from datamodules.corpora.parallel import progress_bar
from datamodules.discourse.cache import ParseCache, ShardWriter, parse_key
from datamodules.discourse.distributions import Rows
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.documents import Document, UserError
from datamodules.text.language import count_words


class Parser(Protocol):
    """Interface of discourse parsers, which are LightningModules."""

    fingerprint: str  # digest of everything that a parse depends on: weights and version of the code
    relations: tuple[str, ...]  # names of the relations of the LDD (labeled discourse distribution)
    rows: Rows  # which EDUs can be nuclei of others in the LDD, see `tree_ldd`
    band: int  # half-width of the LDD band in EDUs; smaller for documents with fewer EDUs

    def predict_step(self, batch: list[ParseRequest], batch_idx: int) -> list[DiscourseParse]: ...


class NeedsParser:
    """Mix-in of DataModules whose parser can be named by a string.

    This package does not import models, so the code that builds the DataModule sets `load_parser`; `precis` sets
    `precis.config.parsers.load_parser`.
    """

    load_parser: Callable[[str, Rows, int], Parser] | None = None  # from the name of a parser, `rows` and `band`

    def parser_named(self, name: str, rows: Rows = "side", band: int = 128) -> Parser:
        """Load a parser by a name that `precis parse --parser` accepts, for LDDs (labeled discourse distributions).

        `rows`: give probability to all EDUs on a nucleus `side`, or to each `nucleus` alone; `band`: its half-width.

        Raises:
            UserError: if `load_parser` is not set, or there is no parser of that name.
        """
        if self.load_parser is None:
            raise UserError(
                f"data.parser {name!r} is a name, and this {type(self).__name__} cannot load parsers by name; pass a "
                "parser, or set load_parser (precis.config.parsers.load_parser)"
            )
        return self.load_parser(name, rows, band)


def without_weights(parser: Parser) -> SimpleNamespace:
    """Return what worker processes need of a parser; some parsers cannot be pickled."""
    names = ("fingerprint", "relations", "rows", "band")
    return SimpleNamespace(**{name: getattr(parser, name) for name in names})


def key_of(request: ParseRequest, parser: Parser | SimpleNamespace) -> str:
    """Return the cache key of the parse of a request by a parser."""
    return parse_key(request, parser.fingerprint, parser.rows, parser.band)


class CorpusDocuments(TableDocuments):
    """Concatenated documents of several splits of a corpus, by default all, read from disk on access.

    The other arguments and the errors are those of `build_documents`, but bad records are left out by default.
    """

    def __init__(self, corpus: Corpus, cache_dir: Path, splits: list[str] | None = None, **options: Any) -> None:
        from datasets import concatenate_datasets  # here, because importing it is slow

        options = {"on_bad_record": "skip"} | options
        tables = [build_documents(corpus, split, cache_dir, **options) for split in splits or corpus.splits()]
        self.skipped = [bad for table in tables for bad in read_manifest(table)["skipped"]]
        super().__init__(concatenate_datasets(tables))


class ParsingData(LightningDataModule):
    """Batches of documents whose parse is missing in a cache, grouped by length, longest first.

    The assignment of documents to processes depends only on the corpus, not on the state of the cache: documents,
    sorted by length, are distributed over the tasks of a job array and the ranks of each task. Processes that start and
    stop at different times therefore neither duplicate nor omit work. A rank without missing documents repeats one, as
    all ranks must take part in a distributed run.

    Args:
        documents: documents to parse; duplicates of a text are parsed once, empty documents are listed in `empty`.
        batch_size: maximum number of documents in a batch.
        batch_characters: maximum number of characters in a batch, padding included; a longer document is a batch by
            itself.
        shard: number of this task, from 1, and number of tasks.

    Raises:
        ValueError: if a size is below 1, or the shard does not exist.
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
        self.documents = documents
        self.cache = cache
        self.parser = parser
        self.batch_size = batch_size
        self.batch_characters = batch_characters
        self.shard = shard
        self.empty: list[str] = []  # ids of documents without text; this and the next four are set by `setup`
        self.repeated = 0  # number of documents with the text of another
        self.keys: dict[str, int] = {}  # cache key of each text -> index of its first document, longest first
        self._lengths: dict[str, int] = {}  # cache key -> number of characters
        self.tokens: dict[str, int] = {}  # cache key -> number of words, as tokens for estimates of time
        self.max_batches: int | None = None  # set by an estimate of time, which parses the first batches only

    def setup(self, stage: str | None = None) -> None:
        """Set `keys`, lengths, `tokens`, `empty` and `repeated` from all documents; later calls do nothing."""
        if self.keys or self.empty:
            return
        indices: dict[str, int] = {}  # cache key -> index of the first document with this text
        for index in range(len(self.documents)):
            request = ParseRequest.of(self.documents[index])
            if request.empty:
                self.empty.append(request.id)
                continue
            key = key_of(request, self.parser)
            self.repeated += key in indices  # True counts as 1
            indices.setdefault(key, index)
            self._lengths[key] = len(request.text)
            self.tokens[key] = count_words([request.text])
        self.keys = {key: indices[key] for key in sorted(indices, key=lambda key: -self._lengths[key])}

    def task(self) -> list[str]:
        """Return the keys of the documents of this task, for all ranks."""
        self.setup()
        number, tasks = self.shard
        return list(self.keys)[number - 1 :: tasks]  # keys are sorted by length, so tasks take about equally long

    def missing(self) -> list[str]:
        """Return the keys of the documents of this task that are missing in the cache."""
        return self.cache.missing(self.task())

    def predict_dataloader(self) -> "Requests":
        """Return the batches of this rank: documents of its share of the task that the cache lacks, longest first."""
        rank, ranks = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        task = self.task()  # cache keys, longest documents first; also sets `_lengths`
        missing = self.cache.missing(task[rank::ranks])
        if not missing and ranks > 1:
            missing = task[:1]  # parsed again, since all ranks must take part in a distributed run
        batches: list[list[str]] = []
        max_documents = 0  # of the last batch; also 0 if its first document alone exceeds `batch_characters`
        for key in missing:
            if batches and len(batches[-1]) < max_documents:
                batches[-1].append(key)
            else:
                batches.append([key])  # its first document is its longest, to which the others are padded
                max_documents = min(self.batch_size, self.batch_characters // self._lengths[key])
        return Requests(self, batches[: self.max_batches])  # all, or the first ones for an estimate of time

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        return batch  # requests are text, which stays in host memory


class Requests:
    """Lazy batches of parse requests. Not a DataLoader, because Lightning would re-instantiate one for prediction."""

    def __init__(self, data: ParsingData, batches: list[list[str]]) -> None:
        self.data = data
        self.batches = batches

    @property
    def documents(self) -> int:
        """Number of documents in all batches."""
        return sum(map(len, self.batches))

    @property
    def tokens(self) -> int:
        """Number of tokens in all batches, see `ParsingData.tokens`."""
        return sum(self.data.tokens[key] for batch in self.batches for key in batch)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[ParseRequest]]:
        for batch in self.batches:
            yield [ParseRequest.of(self.data.documents[self.data.keys[key]]) for key in batch]


def parse_missing(documents: Sequence[Document], cache: ParseCache, parser: Parser, batch_size: int = 16) -> int:
    """Parse the documents whose parse is missing in a cache, write the parses to it, and return their number.

    `prepare_data` of a DataModule calls it in one process. A parser that is a module moves to a GPU, if any, and back.
    """
    data = ParsingData(documents, cache, parser, batch_size)
    batches = data.predict_dataloader()
    if not batches.documents:  # number of documents to parse
        return 0
    use_gpu = isinstance(parser, nn.Module) and torch.cuda.is_available()
    with ShardWriter(cache) as writer, progress_bar() as progress:
        parser = parser.cuda() if use_gpu else parser
        for number, batch in enumerate(progress.track(batches, total=len(batches), description="parsing")):
            add_answers(writer.add, batch, parser.predict_step(batch, number), parser)  # checks them
        parser = parser.cpu() if use_gpu else parser
    cache.refresh()  # so that it reads the new shard
    return batches.documents


def add_answers(add: Any, batch: list[ParseRequest], answers: list[DiscourseParse], parser: Parser) -> None:
    """Check the parses `answers` that a parser returned for a batch, and store each by `add(key, parse)`.

    Raises:
        ValueError: if parses differ from the requests in id or order, or from `parser` in `rows` or half-width `band`.
    """
    requested_ids = [request.id for request in batch]
    answered_ids = [parse.id for parse in answers]
    if answered_ids != requested_ids:
        name = type(parser).__name__
        raise ValueError(f"{name} returned parses of {answered_ids[:3]} ... for requests of {requested_ids[:3]} ...")
    for request, parse in zip(batch, answers):
        # the band of a document of `size` EDUs has at most `size - 1` EDUs to each side
        if parse.rows != parser.rows or parse.half_width != min(parser.band, parse.size - 1):
            returned = f"rows {parse.rows}, {parse.half_width} EDUs to each side of {parse.size}"
            raise ValueError(f"document {parse.id!r}: asked for rows {parser.rows}, band {parser.band}, got {returned}")
        add(key_of(request, parser), parse)
