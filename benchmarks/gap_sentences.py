"""Gap sentences beside `rouge-score`, and what a training step takes.

    python benchmarks/gap_sentences.py [--data DOCUMENTS.jsonl.gz] [--documents 400] [--compared 10] [--repetitions 3]

`--data` names JSON Lines with `document`, one sentence a line. Without it documents are drawn from a vocabulary of
20,000 made-up words: 4 to 60 sentences of about 22 words. Selection takes 30 % of the sentences; `rouge-score` has the
first 25 sentences of some documents, as its time for `seq` grows with the cube of their number.
"""

import argparse
import gzip
import itertools
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from rouge_score.rouge_scorer import RougeScorer

from datamodules.corpora.parallel import mapper
from datamodules.pegasus import PegasusBatch
from datamodules.text.gap_selection import select
from lightning_modules.metrics.rouge_words import vocabulary
from lightning_modules.pegasus import Pegasus

Document = list[str]
KINDS = ("ind-orig", "ind-uniq", "seq-orig", "seq-uniq")
B, S, T, V = 8, 256, 128, 16_000
SHORT = 25  # sentences that rouge-score gets
SHAPE = {"hidden_size": 256, "heads": 4, "layers": 3, "inner_size": 1024}


def documents_of(path: str) -> list[Document]:
    """The sentences of each document of a file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line)["document"] for line in lines]
    return [[sentence for line in row.split("\n") if (sentence := line.strip())] for row in rows]


def made_up(number: int, seed: int = 0) -> list[Document]:
    """Documents of words with Zipf's frequencies and English endings."""
    draw = random.Random(seed)
    endings = ["", "", "s", "ed", "ing", "ation", "ly"]
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 7))) + draw.choice(endings) for _ in range(20_000)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
    return [
        [" ".join(draw.choices(words, cum_weights=weights, k=draw.randint(8, 36))) for _ in range(draw.randint(4, 60))]
        for _ in range(number)
    ]


def share(document: Document) -> int:
    """30 % of the sentences, at least one."""
    return max(1, round(0.3 * len(document)))


def chosen(document: Document, kind: str = "ind-orig") -> list[int]:
    """Ours."""
    return select(document, share(document), kind)


def chosen_naively(document: Document, kind: str) -> list[int]:
    """By `rouge-score`, a call a candidate; `orig` alone."""
    scorer, picked = RougeScorer(["rouge1"], use_stemmer=True), []

    def value(indices: list[int]) -> float:
        rest = [sentence for i, sentence in enumerate(document) if i not in indices]
        return scorer.score(" ".join(rest), " ".join(document[i] for i in indices))["rouge1"].fmeasure

    if kind.startswith("ind"):
        scores = [value([i]) for i in range(len(document))]
        return sorted(sorted(range(len(document)), key=lambda i: -scores[i])[: share(document)])
    for _ in range(share(document)):
        picked.append(max((i for i in range(len(document)) if i not in picked), key=lambda i: value([*picked, i])))
    return sorted(picked)


def naive(documents: list[Document], kind: str) -> list[list[int]]:
    """The same of several documents."""
    return [chosen_naively(document, kind) for document in documents]


def processor(run: Callable[[], object], repetitions: int) -> float:
    """Median processor seconds."""
    times = []
    for _ in range(repetitions):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return statistics.median(times)


def wall(documents: list[Document], processes: int) -> float:
    """Seconds for all documents by `ind-orig`, the start of the processes included."""
    vocabulary().clear()
    start = time.perf_counter()
    with mapper(processes) as mapped:
        list(mapped(chosen, documents))
    return time.perf_counter() - start


def selection(documents: list[Document], compared: list[Document], repetitions: int) -> None:
    """The tables of selection."""
    print("| one process, from an empty vocabulary | rouge-score, documents/s | ours, documents/s | ratio |")
    print("|---|---|---|---|")

    def ours(some: list[Document], kind: str) -> list[list[int]]:
        vocabulary().clear()
        return [chosen(document, kind) for document in some]

    for kind in KINDS:
        fast = len(documents) / processor(partial(ours, documents, kind), repetitions)
        if kind.endswith("uniq"):
            print(f"| {kind} | | {fast:,.0f} | |")
            continue
        found: list[list[int]] = []
        slow = len(compared) / processor(lambda kind=kind, to=found: to.extend(naive(compared, kind)), 1)
        if found != ours(compared, kind):
            raise SystemExit(f"{kind}: rouge-score chooses other sentences")
        same = len(compared) / processor(partial(ours, compared, kind), repetitions)
        print(f"| {kind} | {slow:,.2f} | {fast:,.0f} ({same:,.0f} on what rouge-score had) | {same / slow:,.0f} |")
    times = {processes: min(wall(documents, processes) for _ in range(repetitions)) for processes in (1, 2)}
    print("\n| ind-orig, wall clock | documents/s |\n|---|---|")
    for processes, seconds in times.items():
        print(f"| {processes} process{'es' if processes > 1 else ''} | {len(documents) / seconds:,.0f} |")


def training(repetitions: int) -> None:
    """The table of training."""
    torch.manual_seed(0)
    model = Pegasus(V, **SHAPE).train()
    model.text = range(V)  # whose length alone is asked for
    type(model).start = 0
    source, target = torch.randint(4, V, (B, S)), torch.randint(4, V, (B, T))
    batch = PegasusBatch(
        ids=[""] * B, references=[[]] * B, source=source, source_mask=torch.ones_like(source, dtype=torch.bool),
        target=target, target_lengths=torch.full((B,), T), target_rows=torch.arange(B * T),
    )  # fmt: skip
    optimizer = model.configure_optimizers()

    def step() -> None:
        optimizer.zero_grad()
        model.loss_terms(batch)["nll"].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    step()
    seconds = processor(step, repetitions)
    size = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    print(f"\n| training step, {size:.1f}M parameters | tokens/s |\n|---|---|")
    print(f"| batch {B}, {S} source and {T} target tokens, V = {V:,}, Adafactor | {B * (S + T) / seconds:,.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="gzipped JSON Lines with document, one sentence a line; made-up ones without it")
    parser.add_argument("--documents", type=int, default=400)
    parser.add_argument("--compared", type=int, default=10, help="documents given to rouge-score too")
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    documents = documents_of(arguments.data) if arguments.data else made_up(arguments.documents)
    documents = documents[: arguments.documents]
    sizes = [len(document) for document in documents]
    machine = f"{torch.get_num_threads()} threads of {platform.processor() or platform.machine()}"
    median = f"{statistics.median(sizes):.0f} sentences in the median"
    print(f"{len(documents)} documents, {median}; {machine}, torch {torch.__version__}\n")
    compared = [document[:SHORT] for document in documents[: arguments.compared]]
    selection(documents, compared, arguments.repetitions)
    training(arguments.repetitions)


if __name__ == "__main__":
    main()
