"""Speed of a discourse parser, and size and loading time of parses in the cache, by length of the document.

    python -m benchmarks.parsing [--parser default] [--tokens 500 1000 2000 4000 8000 16000]

Documents are concatenated paragraphs of the built-in corpus; tokens are words and punctuation marks. Parsing is timed
from the request to the shard on disk, for one document at a time, after one for warm-up; the time is that of the
fastest of `--repetitions` documents: processor time of all threads, so that other work on the machine counts little, or
wall time with `--device cuda`. `load` is the time of `ParseCache.get` in a new `ParseCache`, including the check
of the digest, with the file in the page cache; `again` is a second call; `opening` is the time for creating the
`ParseCache`.
"""

import re
import statistics
import tempfile
from collections.abc import Callable
from functools import cache, partial
from itertools import cycle
from pathlib import Path

import torch

from benchmarks.measuring import alternate, machine, options, print_table
from datamodules.cache_folder import default_cache
from datamodules.corpora.docstrings import Docstrings
from datamodules.discourse.cache import ParseCache
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import Document
from datamodules.parsing import CorpusDocuments, key_of, parse_missing
from precis.discourse.parse import load_parser

_TOKEN = re.compile(r"\w+|[^\w\s]")


@cache
def paragraphs() -> list[list[str]]:
    """Return the sentences of each paragraph of the `val` split of the built-in corpus."""
    corpus = CorpusDocuments(Docstrings(), default_cache(), ["val"])
    return [part for document in corpus for part in document.parts]


def documents(tokens: int, count: int) -> list[Document]:
    """Return documents of about `tokens` tokens, from consecutive paragraphs of the corpus, which is cycled."""
    results: list[Document] = []
    endless_paragraphs = cycle(paragraphs())
    for number in range(count):
        parts, size = [], 0  # size in tokens
        while size < tokens:
            parts.append([])
            for sentence in next(endless_paragraphs):
                if size < tokens:
                    parts[-1].append(sentence)
                    size += len(_TOKEN.findall(sentence))
        results.append(Document(f"{tokens}-{number}", parts))
    return results


def milliseconds(action: Callable[[], object]) -> float:
    """Return the wall time of a function in milliseconds."""
    return 1000 * alternate({"": action}, 1, warm_up=False)[""].wall[0]


def parsing_seconds(way: Callable[[], object], device: str) -> float:
    """Return the processor time of a function in seconds, or its wall time on a GPU."""
    seconds = alternate({"": way}, 1, warm_up=False, device=device)[""]
    return seconds.cpu[0] if device == "cpu" else seconds.wall[0]


def measure(parser, tokens: int, repetitions: int, folder: Path, device: str) -> list[str]:
    """Parse documents of about `tokens` tokens into a cache in `folder`, load them, and return a row of the table."""
    parsed = documents(tokens, repetitions + 1)
    parses = ParseCache(folder)
    seconds = [parsing_seconds(partial(parse_missing, [document], parses, parser), device) for document in parsed]
    fastest = min(seconds[1:])  # the first one is a warm-up
    opening, first_load, second_load, megabytes, edus = [], [], [], [], []  # of each document; times in milliseconds
    for document in parsed:
        key = key_of(ParseRequest.of(document), parser)
        opening.append(milliseconds(partial(ParseCache, folder)))
        load = partial(ParseCache(folder).get, key)  # of a new cache, which has nothing in memory
        first_load.append(milliseconds(load))
        second_load.append(milliseconds(load))
        parse = load()
        megabytes.append(parse.nbytes / 1e6)
        edus.append(parse.size)
    mean_edus = statistics.mean(edus)
    speed = [f"{fastest:.3f}", f"{1 / fastest:,.2f}", f"{mean_edus / fastest:,.0f}"]
    loading = [f"{statistics.median(times):.2f}" for times in (first_load, second_load, opening)]
    return [f"{tokens:,}", f"{mean_edus:,.0f}", *speed, f"{max(megabytes):.2f}", *loading]


def main() -> None:
    parser = options(__doc__, repetitions=3)
    parser.add_argument("--parser", default="default", help="as in `precis parse`")
    parser.add_argument("--band", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, nargs="+", default=[500, 1000, 2000, 4000, 8000, 16000])
    arguments = parser.parse_args()
    model = load_parser(arguments.parser, "side", arguments.band).to(arguments.device)
    columns = ["tokens", "EDUs", "s per document", "documents/s", "EDUs/s", "MB"]
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        count = arguments.repetitions
        rows = (
            measure(model, tokens, count, Path(folder) / str(tokens), arguments.device)
            for tokens in arguments.tokens
        )
        print_table([*columns, "load, ms", "again, ms", "opening, ms"], rows)
    print(f"{arguments.parser}, band {arguments.band}, {machine(arguments.device)}")


if __name__ == "__main__":
    main()
