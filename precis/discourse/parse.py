"""Implementation of `precis parse`: the discourse of a corpus, into a cache of parses, or of one document, drawn."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import torch
from jsonargparse import Namespace
from matplotlib.figure import Figure
from pytorch_lightning import Callback, LightningModule, Trainer
from rich.console import Console

from datamodules.cache_folder import default_cache
from datamodules.corpora.corpus import Corpus
from datamodules.corpora.parallel import progress_bar
from datamodules.corpora.texts import Texts
from datamodules.discourse.cache import ParseCache, ShardWriter
from datamodules.discourse.distributions import to_dense
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.documents import Document, UserError
from datamodules.parsing import CorpusDocuments, ParsingData, add_answers
from datamodules.text.language import ENGLISH_PARSER, count_words, length_words, warn_if_not_english
from datamodules.text.lines import counted, one_line, printable
from precis.config.parsers import explain_choice, load_parser
from precis.discourse.tree_drawing import MIN_WIDTH, draw_svg, draw_text
from precis.files import figures
from precis.files.data_files import check_outputs
from precis.files.texts import collect_texts, documents_of

_MAX_NAMED = 5  # number of documents left out that the report names
_SAMPLE_BATCHES = 3  # number of batches that a dry run parses
LARGEST_HEAT_MAP = 2000  # maximum distance of two EDUs (discourse units) in a heat map
_INTERRUPTED = 130  # exit status after Ctrl-C, as of a shell: 128 + SIGINT


def task_of(shard: str | None) -> tuple[int, int]:
    """Return (this task's number from 1, number of tasks) from `--shard K/N` or a SLURM job array; else (1, 1)."""
    if shard is None:
        variables = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_COUNT")
        number, first, last, count = (int(os.environ.get(variable) or 0) for variable in variables)  # 0 if not set
        if not count:  # not in an array
            return 1, 1
        if last - first + 1 != count:  # with task ids such as 1, 3, 7, a task does not know how many come before it
            raise UserError(f"a SLURM array of {count} tasks from {first} to {last} has gaps; pass --shard K/N")
        return number - first + 1, count
    task, _, tasks = shard.partition("/")
    if not (task.isdecimal() and tasks.isdecimal() and 1 <= int(task) <= int(tasks)):
        raise UserError(f"--shard {shard}: give K/N, this task's number from 1 and how many there are, such as 2/8")
    return int(task), int(tasks)


def parse_corpus(corpus: Corpus, options: Namespace) -> None:
    """Parse the documents that are missing in the cache, and print counts; in a dry run, print an estimate of the cost.

    A `UserError` if corpus, parser or cache cannot be used; after Ctrl-C, finished parses are in the cache.
    """
    shard = task_of(options.shard)  # (this task's number, number of tasks), by which documents are divided among tasks
    cache = ParseCache(options.out)
    if not options.dry_run:
        cache.prepare()  # creates the folder, or raises an error before the model is loaded
    parser = _load_and_announce(options, options.band)
    documents = CorpusDocuments(
        corpus=corpus, cache_dir=default_cache(), splits=[options.split] if options.split else None,  # None: all splits
        on_bad_record=options.on_bad_record, num_proc=options.num_proc, language=options.language,
    )  # fmt: skip
    data = ParsingData(
        documents=documents, cache=cache, parser=parser, shard=shard,
        batch_size=options.batch_size, batch_characters=options.batch_characters,
    )  # fmt: skip
    missing = set(data.missing())  # cache keys of documents
    if options.dry_run:
        print(_estimate(parser, data, options) if missing else f"{cache.folder}: no document is missing", flush=True)
        return
    writer = ParseWriter(cache)
    start = monotonic()
    # If Lightning started this process for a further device (LOCAL_RANK), the first process waits for it to join.
    if missing or "LOCAL_RANK" in os.environ:
        _predict(parser, data, writer, options)
    if os.environ.get("LOCAL_RANK", "0") == "0":  # the first of several processes, or the only one
        print("\n".join(_report(documents, data, missing, monotonic() - start)), flush=True)
    if writer.interrupted:
        raise SystemExit(_INTERRUPTED)


def _load_and_announce(options: Namespace, band: int) -> LightningModule:
    """Load the parser of the options (band: see `load_parser`); print its name, and why it was chosen, to stderr."""
    parser = load_parser(options.parser, options.rows, band)
    if os.environ.get("LOCAL_RANK", "0") == "0":  # other processes, for further devices, do not print it again
        print(f"parser: {explain_choice(options.parser)}", file=sys.stderr, flush=True)
    if getattr(parser, "is_english", False):  # optional attribute of parsers
        warn_if_not_english(ENGLISH_PARSER, language=options.language)
    return parser


def _estimate(parser: LightningModule, data: ParsingData, options: Namespace) -> str:
    """Parse a few documents; return a line of estimates for all. Sets `options.devices` and `data.max_batches`."""
    options.devices = 1  # the estimate is in hours of one device
    batches = data.predict_dataloader()  # loader of all batches, for their number of tokens
    data.max_batches = _SAMPLE_BATCHES  # limits the next loader, and the one that `_predict` uses
    sample = data.predict_dataloader()  # has the longest documents, which come first
    with TemporaryDirectory() as folder:
        cache = ParseCache(Path(folder))
        cache.prepare()
        start = monotonic()
        writer = ParseWriter(cache)
        device = _predict(parser, data, writer, options)
        if writer.interrupted:
            raise SystemExit(_INTERRUPTED)
        seconds = monotonic() - start
        cache.refresh()  # lists the shards that the writer has added
        megabytes = cache.nbytes / 1e6
    scale = batches.tokens / sample.tokens  # time and size are in proportion to tokens
    return (
        f"{counted(batches.documents, 'document')}, {batches.tokens:,} tokens: about {scale * seconds / 3600:,.2f} "
        f"hours of one {device} and {scale * megabytes:,.0f} MB, estimated from the "
        f"{counted(sample.documents, 'longest document')}; --shard K/N divides the work"
    )


class ParseWriter(Callback):
    """Writes predicted parses to shards of a cache, one sequence of shards for each rank.

    A run that is interrupted or fails writes its buffer; a killed run loses at most the parses since its last shard.
    Progress is counted in tokens, because long documents come first. `limits`: sizes of shards, see `ShardWriter`.
    """

    def __init__(self, cache: ParseCache, **limits: float) -> None:
        self.cache = cache
        self.limits = limits
        self.interrupted = False
        self._resources = ExitStack()

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._writer = ShardWriter(self.cache, trainer.global_rank, **self.limits)
        self._resources.callback(self._writer.flush)  # is called when prediction ends or fails
        self._progress = None
        if trainer.is_global_zero:
            self._progress = self._resources.enter_context(progress_bar())
            tokens = getattr(trainer.predict_dataloaders, "tokens", None)  # only loaders of `ParsingData` have this sum
            self._task = self._progress.add_task("parsing tokens", total=tokens)

    def on_predict_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0) -> None:
        add_answers(self._writer.add, batch, outputs, pl_module)
        if self._progress is not None:
            self._progress.advance(self._task, count_words(request.text for request in batch))

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._resources.close()
        trainer.strategy.barrier("parses")  # wait until the parses of all ranks are on disk, to be counted

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.interrupted = isinstance(exception, KeyboardInterrupt)
        self._resources.close()


def _predict(parser: LightningModule, data: ParsingData, writer: ParseWriter, options: Namespace) -> str:
    """Parse all batches of `data`, and return the kind of device; on Ctrl-C, finished parses are in the cache."""
    trainer = Trainer(
        accelerator=options.accelerator,
        devices=options.devices,
        strategy="auto" if options.devices in (1, "auto") else "ddp",  # one process for each device
        callbacks=[writer],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,  # `data` divides the documents among the ranks
        inference_mode=False,  # but `torch.no_grad`: unlike in inference mode, tensors can be changed in place later
    )
    try:
        trainer.predict(parser, datamodule=data, return_predictions=False)
    except SystemExit:  # raised by Lightning on Ctrl-C
        if not writer.interrupted:  # after Ctrl-C, the caller exits when it has reported the finished parses
            raise
    return "GPU" if trainer.strategy.root_device.type == "cuda" else "processor"


def _report(documents: CorpusDocuments, data: ParsingData, missing: set[str], seconds: float) -> list[str]:
    """Return lines with counts, speed and cache size; `missing` has the cache keys of documents that had no parse."""
    cache, keys = data.cache, data.task()  # cache keys of the documents of this task (`--shard`)
    cache.refresh()  # lists the shards; the parses are not read again and verified
    remaining = {key for key in keys if key not in cache}
    parsed = [key for key in keys if key in missing and key not in remaining]  # by this command
    num_before = len(keys) - len(missing)
    lines = [f"{cache.folder}: {counted(len(parsed), 'document')} parsed, {num_before:,} were parsed before"]
    if parsed:
        num_edus = sum(map(cache.size, parsed))  # elementary discourse units
        speed = f"{60 * len(parsed) / seconds:,.1f} documents/min, {num_edus / seconds:,.0f} EDUs/s"
        lines.append(f"{counted(num_edus, 'EDU')} in {seconds:,.1f} s: {speed}")
    if data.repeated:  # number of documents with the text of an earlier one
        lines.append(f"{counted(data.repeated, 'document')} with the text and the parse of another")
    skipped = [f"{record['where']} ({record['problem']})" for record in documents.skipped]
    for title, names in (("record", skipped), ("empty document", data.empty)):
        if names:
            more = f", and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
            lines.append(f"{counted(len(names), title)} left out: {', '.join(names[:_MAX_NAMED])}{more}")
    lines.append(f"{counted(len(cache), 'parse')} in the cache, {cache.nbytes / 1e6:,.2f} MB")
    if remaining:
        lines.append(f"{counted(len(remaining), 'document')} left; the same command continues")
    return lines


def show(options: Namespace) -> None:
    """Run `precis parse --show`: parse a single text, and draw its tree and heat map; a `UserError` for several."""
    check_outputs(svg=options.svg, heat_map=options.heat_map)
    texts = collect_texts(options.inputs)
    if len(texts) > 1:
        raise UserError(f"--show draws one document, and there are {len(texts)}; name one file")
    (document,) = documents_of(Texts(texts), options.language)
    band = options.band  # maximum distance of two EDUs (discourse units) for which a relation is kept
    if options.heat_map is not None:  # a heat map has all pairs of EDUs
        band = min(LARGEST_HEAT_MAP, len(length_words(document.text)))  # a text has no more EDUs than words
    parser = _load_and_announce(options, band)
    request, parse = parse_document(document, parser)  # the request has the text to which offsets refer
    edu_texts = [request.text[start:end] for start, end in parse.edus.tolist()]
    tree = parse.best_tree()
    print(printable(draw_text(tree, edu_texts, max(MIN_WIDTH, Console().width))))
    if options.svg is not None:
        options.svg.parent.mkdir(parents=True, exist_ok=True)
        options.svg.write_text(draw_svg(tree, edu_texts), encoding="utf-8")
        print(f"{options.svg}: the tree", file=sys.stderr)
    if options.heat_map is not None:
        options.heat_map.parent.mkdir(parents=True, exist_ok=True)
        heat_map(parse).savefig(options.heat_map, format="png")
        print(f"{options.heat_map}: a heat map of the distribution", file=sys.stderr)


def parse_document(document: Document, parser: LightningModule) -> tuple[ParseRequest, DiscourseParse]:
    """Parse one document; return the parser's input, to whose text offsets in the parse refer, and the parse."""
    request = ParseRequest.of(document)
    with torch.no_grad():
        (parse,) = parser.predict_step([request], 0)
    return request, parse


def nucleus_probabilities(parse: DiscourseParse) -> torch.Tensor:
    """Return p(EDU i is the nucleus of EDU j), summed over relations, [E, E]; 0 for i = j, NaN for pairs not stored."""
    half_width = parse.half_width  # b, the maximum distance |i - j| of stored pairs
    band = parse.band(half_width).sum(-1, keepdim=True)  # [E, 2b + 1, relations] -> [E, 2b + 1, 1]; column b is j = i
    missing = parse.size - 1 - half_width  # number of diagonals beyond the band, on either side
    band = torch.nn.functional.pad(band, (0, 0, missing, missing), value=float("nan"))  # [E, 2E - 1, 1]
    return to_dense(band).squeeze(-1)  # [E, E]


def heat_map(parse: DiscourseParse) -> Figure:
    """Return a heat map of `nucleus_probabilities`, with nuclei as rows; pairs of EDUs that are not stored are gray."""
    side = min(20.0, 3 + parse.size / 8)  # inches: 1/8 for each EDU, and 3 for labels
    figure = figures.new_figure(side + 1, side)  # 1 inch for the color bar
    axes = figure.add_subplot()
    axes.set_facecolor("0.8")  # light gray, where values are NaN
    image = figures.heat_map(axes, nucleus_probabilities(parse).numpy(), vmin=0, vmax=1, cmap="viridis")
    axes.set(xlabel="of EDU", ylabel="EDU is the nucleus")
    title = f"{one_line(parse.id)}: {counted(parse.size, 'EDU')}"
    axes.set_title(title, parse_math=False)  # an id may contain "$", which would start a formula
    figure.colorbar(image, label="probability, over all relations")
    return figure
