"""Options of the commands `parse` and `score-parser`, checked before torch and Lightning are imported."""

import sys
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser
from jsonargparse.typing import PositiveInt

import datamodules.corpora
from datamodules.corpora.texts import Texts
from datamodules.documents import UserError
from precis.config.load_classes import add_corpus_arguments
from precis.config.parsers import PARSERS
from precis.files.texts import collect_texts, is_records
from precis.statistics.statistics import RESAMPLES

PARSER_HELP = f"{', '.join(PARSERS)}, or a parser's run folder"


def parse(arguments: list[str]) -> None:
    """`precis parse CORPUS --out CACHE`: parse the documents that are missing in the cache; repeat it to continue.
    `precis parse --show FILE` (or standard input): print the tree of one document.

    CORPUS is the name of a corpus with its options (as in `precis corpus`), a data file, or text files and folders.
    """
    parser = _parse_options()
    options = parser.parse_args(_corpus_as_option(arguments))
    if options.corpus is not None and (options.show or options.inputs):  # both would be ignored
        other = "--show" if options.show else options.inputs[0]
        raise UserError(f"{other}: cannot be combined with a corpus or data file; name either text files or one corpus")
    if options.show:
        from precis.discourse.parse import show  # here, because it imports torch

        show(options)
        return
    if options.svg or options.heat_map:
        raise UserError("--svg and --heat_map draw one document; pass --show")
    if options.out is None:
        raise UserError("precis parse needs --out with the folder of the parses; or --show for one document")
    sys.argv = [sys.argv[0], "parse", *arguments]  # Lightning runs this command again for each further device
    corpus = parser.instantiate_classes(options).corpus
    from precis.discourse.parse import parse_corpus

    if corpus is None:  # the inputs are text files, folders or standard input
        corpus = Texts(collect_texts(options.inputs, empty=True))  # blank texts are allowed: they are left out
    parse_corpus(corpus, options)


def _parse_options() -> ArgumentParser:  # the argument parser of `precis parse`
    parser = ArgumentParser(prog="precis parse", description=parse.__doc__, exit_on_error=False)
    add = parser.add_argument
    add("inputs", nargs="*", type=str, help="text files, folders of .txt files; standard input if none")
    add_corpus_arguments(parser, on_bad_record="skip")
    add("--out", type=Path | None, default=None, help="folder of parses, created if needed")
    add("--parser", type=str, default="default", help=PARSER_HELP)
    add("--rows", type=Literal["side", "nucleus"], default="side", help="EDUs with probability: a whole side or nuclei")
    add("--band", type=PositiveInt, default=128, help="maximum distance in EDUs of stored relations")
    add("--split", type=str | None, default=None, help="split of the corpus; all splits by default")
    add("--batch_size", type=PositiveInt, default=16, help="maximum number of documents in a batch")
    add("--batch_characters", type=PositiveInt, default=100_000, help="maximum number of characters in a padded batch")
    add("--accelerator", type=str, default="auto", help="cpu, gpu ..., as in Lightning")
    add("--devices", type=int | Literal["auto"], default=1, help="number of devices, with one process each")
    add("--shard", type=str | None, default=None, help="K/N: task K of N; by default that of the SLURM array")
    add("--dry-run", action="store_true", help="estimate hours and size from a few documents; write nothing")
    add("--show", action="store_true", help="draw the tree of one document")
    add("--svg", type=Path | None, default=None, help="with --show: the tree as an image")
    add("--heat_map", type=Path | None, default=None, help="with --show: PNG of probabilities by pair of EDUs")
    return parser


def _corpus_as_option(arguments: list[str]) -> list[str]:
    """Replace a first argument that names a corpus or a data file by the option --corpus; leave other arguments."""
    first, *options = arguments or ["-"]  # "-" stands for no arguments: `arguments` is returned below
    if first in datamodules.corpora.__all__:
        return [f"--corpus={first}", *options]
    if first.startswith("-") or not is_records(Path(first)):
        return arguments
    return ["--corpus=Files", f"--corpus.test={first}", *options]  # the file is the only split, `test`


def score_parser(arguments: list[str]) -> None:
    """`precis score-parser TREEBANK --parser RUN`: Parseval with gold and predicted EDUs, and segmentation,
    each compared with right-branching trees, as Markdown tables.

    TREEBANK is a file or folder of trees: JSON Lines, .rs3, .rs4, .dis or .conllu.
    """
    parser = ArgumentParser(prog="precis score-parser", description=score_parser.__doc__, exit_on_error=False)
    add = parser.add_argument
    add("treebank", type=Path, help="file or folder of gold trees")
    add("--out", type=Path | None, default=None, help="folder for scores.json and scores.md")
    add("--parser", type=str, default="default", help=PARSER_HELP)
    add("--language", type=str, default="en", help="ISO code of the language, which divides texts into sentences")
    add("--resamples", type=PositiveInt, default=RESAMPLES, help="resamples of the bootstrap over documents")
    options = parser.parse_args(arguments)
    if options.out is not None and options.out.is_file():
        raise UserError(f"--out {options.out}: a file; name a folder")
    from precis.discourse.score_parser import print_scores  # here, because it imports torch

    print_scores(options, arguments)
