"""Speed of gap-sentence selection compared with `rouge-score`, and of a training step.

    python -m benchmarks.gap_sentences [--data DOCUMENTS.jsonl.gz] [--documents 400] [--compared 10] [--repetitions 3]

`--data` names JSON Lines with `document`, one sentence per line. Without it, documents of 4 to 60 sentences of about 22
words are drawn from a vocabulary of 20,000 simulated words. 30 % of the sentences are selected. `rouge-score` gets the
first 25 sentences of some documents, because its time for `seq` is cubic in the number of sentences.
"""

import statistics
from collections.abc import Iterator
from functools import partial

import torch
from rouge_score.rouge_scorer import RougeScorer

from benchmarks.measuring import (
    MadeUpWords,
    alternate,
    cpu_seconds,
    machine,
    options,
    print_table,
    read_rows,
    training_step,
)
from datamodules.corpora.parallel import mapper
from datamodules.pegasus import PegasusBatch
from datamodules.text.gap_selection import select
from lightning_modules.metrics.rouge_words import vocabulary
from lightning_modules.pegasus import Pegasus

Document = list[str]
KINDS = ("ind-orig", "ind-uniq", "seq-orig", "seq-uniq")
B, S, T, V = 8, 256, 128, 16_000
SHORT = 25  # number of sentences for rouge-score
SHAPE = {"hidden_size": 256, "heads": 4, "layers": 3, "inner_size": 1024}


def made_up(number: int) -> list[Document]:
    """Return simulated documents of 4 to 60 sentences."""
    words = MadeUpWords()
    sizes = [words.random.randint(4, 60) for _ in range(number)]
    return [[" ".join(words.draw(8, 36)) for _ in range(size)] for size in sizes]


def share(document: Document) -> int:
    """Return 30 % of the number of sentences, at least one."""
    return max(1, round(0.3 * len(document)))


def chosen(document: Document, kind: str = "ind-orig") -> list[int]:
    """Return the sentences selected by our implementation."""
    return select(document, share(document), kind)


def chosen_naively(document: Document, kind: str) -> list[int]:
    """Return the sentences selected with one call of `rouge-score` for each candidate; for `orig` only."""
    scorer, picked = RougeScorer(["rouge1"], use_stemmer=True), []

    def value(indices: list[int]) -> float:
        remaining = [sentence for i, sentence in enumerate(document) if i not in indices]
        return scorer.score(" ".join(remaining), " ".join(document[i] for i in indices))["rouge1"].fmeasure

    if kind.startswith("ind"):
        scores = [value([i]) for i in range(len(document))]
        return sorted(sorted(range(len(document)), key=lambda i: -scores[i])[: share(document)])
    for _ in range(share(document)):
        picked.append(max((i for i in range(len(document)) if i not in picked), key=lambda i: value([*picked, i])))
    return sorted(picked)


def ours(documents: list[Document], kind: str) -> list[list[int]]:
    """Return the selected sentences of documents, starting from an empty vocabulary."""
    vocabulary().clear()
    return [chosen(document, kind) for document in documents]


def on_processes(documents: list[Document], processes: int) -> None:
    """Select sentences by `ind-orig`, including the start of the processes."""
    vocabulary().clear()
    with mapper(processes) as mapped:
        list(mapped(chosen, documents))


def selection(documents: list[Document], compared: list[Document], repetitions: int) -> Iterator[list[str]]:
    """Yield the rows of the table of selection."""
    for kind in KINDS:
        fast = len(documents) / cpu_seconds(partial(ours, documents, kind), repetitions)
        if kind.endswith("uniq"):
            yield [kind, "", f"{fast:,.0f}", ""]
            continue
        naive: list[list[int]] = []
        run = lambda kind=kind, naive=naive: naive.extend(chosen_naively(document, kind) for document in compared)  # noqa: E731
        slow = len(compared) / cpu_seconds(run)
        if naive != ours(compared, kind):
            raise SystemExit(f"{kind}: rouge-score chooses other sentences")
        same = len(compared) / cpu_seconds(partial(ours, compared, kind), repetitions)
        yield [kind, f"{slow:,.2f}", f"{fast:,.0f} ({same:,.0f} on what rouge-score had)", f"{same / slow:,.0f}"]


def trainer():
    """Return a training step of PEGASUS, and the number of its parameters in millions."""
    torch.manual_seed(0)
    model = Pegasus(V, **SHAPE)
    model.tokenizer = range(V)  # only its length is used
    type(model).start = 0
    source, target = torch.randint(4, V, (B, S)), torch.randint(4, V, (B, T))
    batch = PegasusBatch(
        ids=[""] * B, references=[[]] * B, source=source, source_mask=torch.ones_like(source, dtype=torch.bool),
        target=target, target_lengths=torch.full((B,), T), target_rows=torch.arange(B * T),
    )  # fmt: skip
    step = training_step(model, lambda: model.loss_terms(batch)["nll"], clip=1.0)
    return step, sum(parameter.numel() for parameter in model.parameters()) / 1e6


def main() -> None:
    parser = options(__doc__, repetitions=3)
    parser.add_argument("--data", help="gzipped JSON Lines with document, one sentence per line; simulated by default")
    parser.add_argument("--documents", type=int, default=400)
    parser.add_argument("--compared", type=int, default=10, help="number of documents for rouge-score")
    arguments = parser.parse_args()
    count, repetitions = arguments.documents, arguments.repetitions
    documents = [row[0] for row in read_rows(arguments.data, count)] if arguments.data else made_up(count)
    print(f"{count} documents, a median of {statistics.median(map(len, documents)):.0f} sentences; {machine()}\n")
    compared = [document[:SHORT] for document in documents[: arguments.compared]]
    head = ["one process, from an empty vocabulary", "rouge-score, documents/s", "ours, documents/s", "ratio"]
    print_table(head, selection(documents, compared, repetitions))
    ways = {f"{processes} process(es)": partial(on_processes, documents, processes) for processes in (1, 2)}
    seconds = alternate(ways, repetitions, warm_up=False).items()
    print_table(["ind-orig, wall clock", "documents/s"], [[name, f"{count / min(s.wall):,.0f}"] for name, s in seconds])
    step, size = trainer()
    speed = B * (S + T) / cpu_seconds(step, repetitions, warm_up=True)
    shape = f"batch {B}, {S} source and {T} target tokens, V = {V:,}, Adafactor"
    print_table([f"training step, {size:.1f}M parameters", "tokens/s"], [[shape, f"{speed:,.0f}"]])


if __name__ == "__main__":
    main()
