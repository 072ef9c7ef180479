"""Speed of a discourse parser, and size and loading time of what the cache keeps, by length of document.

    python benchmarks/parsing.py [--parser default] [--tokens 500 1000 2000 4000 8000 16000]

Documents are paragraphs of the embedded corpus one behind the other, a token a word or a punctuation mark. Parsing is
timed from the request to the shard on disk, one document at a time, after one to warm up; the fastest of
`--repetitions` counts (the parser sees another document each time). `load` is `ParseCache.get` in a new `ParseCache`,
its digest checked, with the file in the system's cache; `again` the same once more; `opening` is what making the
`ParseCache` takes.
"""

import argparse
import re
import statistics
import tempfile
import time
from functools import cache
from itertools import cycle
from pathlib import Path

import torch

from datamodules.corpora.docstrings import Docstrings
from datamodules.discourse.cache import ParseCache
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import Document
from datamodules.parsing import CorpusDocuments, key_of, parse_missing
from datamodules.summarization import default_cache
from experiments.discourse.parse import load_parser

_TOKEN = re.compile(r"\w+|[^\w\s]")


@cache
def paragraphs() -> list[list[str]]:
    """Sentences of each paragraph of the corpus's `val` split."""
    found = CorpusDocuments(Docstrings(), default_cache(), ["val"])
    return [part for document in found for part in document.parts]


def documents(tokens: int, count: int) -> list[Document]:
    """Documents of about so many tokens, one behind the other in the corpus; from its beginning again at its end."""
    found: list[Document] = []
    endless = cycle(paragraphs())
    for number in range(count):
        parts, size = [], 0
        while size < tokens:
            parts.append([])
            for sentence in next(endless):
                if size < tokens:
                    parts[-1].append(sentence)
                    size += len(_TOKEN.findall(sentence))
        found.append(Document(f"{tokens}-{number}", parts))
    return found


def milliseconds(action) -> tuple[float, object]:
    """How long something takes, and what it returns."""
    start = time.perf_counter()
    result = action()
    return 1000 * (time.perf_counter() - start), result


def measure(parser, tokens: int, repetitions: int, folder: Path) -> str:
    """A row of the table."""
    made = documents(tokens, repetitions + 1)
    store, times = ParseCache(folder), []
    for document in made:
        took, _ = milliseconds(lambda document=document: parse_missing([document], store, parser))
        times.append(took)
    best = min(times[1:])
    opening, loads, again, sizes, edus = [], [], [], [], []
    for document in made:
        key = key_of(ParseRequest.of(document), parser)
        took, fresh = milliseconds(lambda: ParseCache(folder))
        opening.append(took)
        took, parse = milliseconds(lambda fresh=fresh, key=key: fresh.get(key))
        loads.append(took)
        again.append(milliseconds(lambda fresh=fresh, key=key: fresh.get(key))[0])
        sizes.append(parse.nbytes / 1e6)
        edus.append(parse.size)
    mean = statistics.mean(edus)
    speed = f"{1000 / best:,.2f} | {1000 * mean / best:,.0f}"
    loading = f"{statistics.median(loads):.2f} | {statistics.median(again):.2f} | {statistics.median(opening):.2f}"
    return f"| {tokens:,} | {mean:,.0f} | {best / 1000:.3f} | {speed} | {max(sizes):.2f} | {loading} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parser", default="default", help="as in `precis parse`")
    parser.add_argument("--band", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, nargs="+", default=[500, 1000, 2000, 4000, 8000, 16000])
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    model = load_parser(options.parser, "side", options.band).to(options.device)
    print("| tokens | EDUs | s a document | documents/s | EDUs/s | MB | load, ms | again, ms | opening, ms |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for tokens in options.tokens:
            print(measure(model, tokens, options.repetitions, Path(folder) / str(tokens)), flush=True)
    device = torch.cuda.get_device_name() if options.device.startswith("cuda") else "cpu"
    print(f"\n{options.parser}, band {options.band}, {device}, {torch.get_num_threads()} thread(s)")


if __name__ == "__main__":
    main()
