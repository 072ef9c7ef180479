"""Implementation of `precis parse`: the discourse of a corpus, into a cache of parses, or of one document, drawn."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import torch
from jsonargparse import Namespace
from pytorch_lightning import LightningModule, Trainer

from callbacks.parse_writer import ParseWriter
from datamodules.cache_folder import default_cache
from datamodules.corpora.corpus import Corpus, make_document
from datamodules.corpora.texts import Texts
from datamodules.discourse.cache import ParseCache
from datamodules.discourse.distributions import Rows
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.documents import Document, UserError
from datamodules.parsing import CorpusDocuments, ParsingData
from datamodules.text.lines import counted
from precis.config.parsers import explain_choice, load_parser
from precis.discourse.draw_parse import LARGEST_HEAT_MAP, draw
from precis.files.texts import collect_texts

_NAMED = 5  # empty documents named in the summary

# A corpus ----------------------------------------------------------------------------------------------------------


def task_of(shard: str | None) -> tuple[int, int]:
    """Return number (from 1) and count of tasks, from `--shard` or from a SLURM array.

    Raises:
        UserError: if the option is not of the form K/N.
    """
    if shard is None:
        names = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_COUNT")
        number, first, last, count = (int(os.environ.get(name) or 0) for name in names)
        if not count:
            return 1, 1
        if last - first + 1 != count:
            raise UserError(f"a SLURM array of {count} tasks from {first} to {last} has gaps; pass --shard K/N")
        return number - first + 1, count
    number, _, count = shard.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UserError(f"--shard {shard}: give K/N, this task's number from 1 and how many there are, such as 2/8")
    return int(number), int(count)


def parse_corpus(corpus: Corpus, options: Namespace) -> None:
    """Parse the documents that are missing in the cache, and print a summary.

    Raises:
        UserError: if the corpus, the parser or the cache cannot be used.
    """
    folder, shard = options.out, task_of(options.shard)
    cache = ParseCache(folder)
    cache.prepare()  # fail before loading a model
    parser = _announced(options.parser, options.rows, options.band)
    documents_dir = options.cache_dir or default_cache()
    splits = [options.split] if options.split else None
    documents = CorpusDocuments(
        corpus=corpus,
        cache_dir=documents_dir,
        splits=splits,
        on_bad_record=options.on_bad_record,
        num_proc=options.num_proc,
    )
    data = ParsingData(
        documents=documents,
        cache=cache,
        parser=parser,
        batch_size=options.batch_size,
        batch_characters=options.batch_characters,
        shard=shard,
    )
    missing_before = set(data.missing())
    summary = Summary(folder, documents, data, missing_before)
    if missing_before or "LOCAL_RANK" in os.environ:  # processes started by another one must take part
        run(parser, data, cache, options, summary)
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(summary.text(), flush=True)
    if summary.interrupted:
        raise SystemExit(130)


def _announced(name: str, rows: Rows, band: int) -> LightningModule:
    """Load a parser, and print which one and why to stderr."""
    parser = load_parser(name, rows, band)
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"parser: {explain_choice(name)}", file=sys.stderr, flush=True)
    return parser


def run(parser: LightningModule, data: ParsingData, cache: ParseCache, options: Namespace, summary: "Summary") -> None:
    """Run the prediction; on Ctrl-C, finished parses are in the cache."""
    writer = ParseWriter(cache)
    several = options.devices not in (1, "auto")
    trainer = Trainer(
        accelerator=options.accelerator,
        devices=options.devices,
        strategy="ddp" if several else "auto",
        callbacks=[writer],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        inference_mode=False,
    )
    start = monotonic()
    try:
        trainer.predict(parser, datamodule=data, return_predictions=False)
    except SystemExit:  # raised by Lightning on Ctrl-C
        if not writer.interrupted:
            raise
        summary.interrupted = True
    summary.seconds = monotonic() - start


@dataclass
class Summary:
    """Summary of a run.

    Attributes:
        folder: folder of the cache.
        documents: documents of the corpus.
        data: DataModule of this task.
        missing_before: keys of the documents of this task that were missing before the run.
        seconds: duration of the run.
        interrupted: whether it was interrupted.
    """

    folder: Path
    documents: CorpusDocuments
    data: ParsingData
    missing_before: set[str]
    seconds: float = 0.0
    interrupted: bool = False

    def text(self) -> str:
        """Return a text with counts of documents, speed, and size of the cache."""
        cache, task = self.data.cache, self.data.task()
        left = set(cache.missing(task, deep=False))
        parsed = [key for key in task if key in self.missing_before and key not in left]
        edus = sum(map(cache.size, parsed))
        num_before = len(task) - len(self.missing_before)
        lines = [f"{self.folder}: {counted(len(parsed), 'document')} parsed, {num_before:,} were parsed before"]
        if parsed and self.seconds:
            speed = f"{len(parsed) / self.seconds:,.1f} documents/s, {edus / self.seconds:,.0f} EDUs/s"
            lines.append(f"{counted(edus, 'EDU')} in {self.seconds:,.1f} s: {speed}")
        if self.data.repeated:
            lines.append(f"{counted(self.data.repeated, 'document')} with the text and the parse of another")
        bad = [f"{row['where']} ({row['problem']})" for row in self.documents.skipped]
        for title, names in (("records left out", bad), ("empty documents left out", self.data.empty)):
            if names:
                more = f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
                lines.append(f"{len(names):,} {title}: {', '.join(names[:_NAMED])}{more}")
        lines.append(f"{counted(len(cache), 'parse')} in the cache, {cache.nbytes / 1e6:,.2f} MB")
        if left:
            lines.append(f"{counted(len(left), 'document')} left; the same command continues")
        return "\n".join(lines)


# One document ----------------------------------------------------------------------------------------------------


def show(options: Namespace) -> None:
    """Parse one text and draw it.

    Raises:
        UserError: if there is more than one text, or none.
    """
    texts = collect_texts(options.inputs)
    if len(texts) > 1:
        raise UserError(f"--show draws one document, and there are {len(texts)}; name one file")
    document = make_document(next(Texts(texts).records("test")))
    if not isinstance(document, Document):
        raise UserError(str(document))
    band = options.band if options.heat_map is None else min(LARGEST_HEAT_MAP, len(document.text.split()))
    parser = _announced(options.parser, options.rows, band)
    request, parsed = parse_document(document, parser)
    draw(parsed, request, options.svg, options.heat_map)


def parse_document(document: Document, parser: LightningModule) -> tuple[ParseRequest, DiscourseParse]:
    """Return the discourse of one document, with the request that its offsets refer to."""
    request = ParseRequest.of(document)
    with torch.no_grad():
        (parsed,) = parser.predict_step([request], 0)
    return request, parsed
