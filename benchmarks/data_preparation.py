"""Processor time from a raw corpus to the first training batch, for each DataModule.

    python -m benchmarks.data_preparation --data cnndm/train.jsonl.gz [--articles 500 1000] [--num_proc 1]

`--data` names JSON Lines with `document` and `summary` (one sentence per line). `documents` is reading, sentence
splitting and the Arrow table; `tokenizer` the vocabulary or tokenizer; `features` encoding, with labels or gap
sentences; `batch` the first training batch. Milliseconds per article, one process unless `--num_proc` is given: a
stage is linear if its column is the same for all numbers of articles. With several processes, times are wall times.
MatchSum's candidates are chosen by TF-IDF; RSTformer's documents are not parsed (see `benchmarks.parsing`).
"""

import gzip
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import datamodules
from benchmarks.measuring import options, print_table
from datamodules.corpora import Files
from datamodules.summarization import TRAIN
from lightning_modules.extractive.zero_shot import ZeroShot

NAMES = (
    "PointerGeneratorData",
    "CommunicatingAgentsData",
    "ExtractiveData",
    "BertSumAbsData",
    "GraphSumData",
    "PegasusData",
    "GapSentenceData",
    "MatchSumData",
    "RSTformerData",
)
ARGUMENTS: dict[str, dict[str, Any]] = {
    "MatchSumData": {"scorer": ZeroShot()},
    "RSTformerData": {"ablation": "no_discourse"},
}
STAGES = ("documents", "tokenizer", "features", "batch")


def stage_seconds(name: str, corpus: Files, articles: int, num_proc: int, folder: Path) -> list[float]:
    """Return the seconds of each stage of a DataModule, with an empty cache."""
    clock = time.process_time if num_proc == 1 else time.perf_counter
    settings = {"cache_dir": folder, "num_proc": num_proc, "max_train": articles, **ARGUMENTS.get(name, {})}
    data = getattr(datamodules, name)(corpus, **settings)
    times = [clock()]
    data.documents(TRAIN)
    times.append(clock())
    data.prepare_splits([])
    times.append(clock())
    data.features(TRAIN)
    times.append(clock())
    next(iter(data.train_dataloader()))
    times.append(clock())
    return [end - start for start, end in pairwise(times)]


def rows(data: str, names: Sequence[str], counts: list[int], num_proc: int) -> Iterator[list[str]]:
    """Yield the rows of the table."""
    for name in names:
        for count in counts:
            with tempfile.TemporaryDirectory() as folder:
                part = Path(folder) / "articles.jsonl"
                part.write_text("".join(first_lines(data, count)), encoding="utf-8")
                corpus = Files(train=str(part), summary_sentences="line")
                seconds = stage_seconds(name, corpus, count, num_proc, Path(folder) / "cache")
            figures = [f"{1000 * value / count:.2f}" for value in (*seconds, sum(seconds))]
            yield [name, f"{count:,}", *figures]


def first_lines(path: str, count: int) -> Iterator[str]:
    """Yield the first lines of a gzipped file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from islice(lines, count)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", required=True, help="gzipped JSON Lines")
    parser.add_argument("--articles", type=int, nargs="+", default=[500, 1000])
    parser.add_argument("--num_proc", type=int, default=1)
    parser.add_argument("--names", nargs="+", choices=NAMES, default=NAMES, help="DataModules; all by default")
    arguments = parser.parse_args()
    table = rows(arguments.data, arguments.names, arguments.articles, arguments.num_proc)
    print_table(["DataModule", "articles", *STAGES, "all, ms"], table)


if __name__ == "__main__":
    main()
