"""Speed and memory of ROUGE compared with `rouge-score`.

    python -m benchmarks.rouge [--data DOCUMENTS.jsonl.gz] [--pairs 11490] [--compared 500]

`--data` names JSON Lines with `document` and `summary` (one sentence per line), tokenized like CNN/DailyMail: three
consecutive sentences of the document are scored against the summary. Without it, pairs with the lengths of
CNN/DailyMail are drawn from a vocabulary of 20,000 simulated words.
"""

import itertools
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rouge_score.rouge_scorer import RougeScorer

from benchmarks.measuring import MadeUpWords, alternate, cpu_seconds, options, print_table, read_rows
from datamodules.text.rouge_words import vocabulary
from lightning_modules.metrics.rouge import VARIANTS, score_many

Pair = tuple[list[str], list[str]]  # sentences of a prediction and of its reference


def pairs_of(path: str) -> Iterator[Pair]:
    """Yield windows of three sentences and the summary: the first window of all documents, then the second, ..."""
    rows = list(read_rows(path))
    for start in range(0, max(len(document) for document, _ in rows), 3):
        for document, summary in rows:
            if len(document) >= start + 3:
                yield document[start : start + 3], summary


def made_up_pairs() -> Iterator[Pair]:
    """Yield texts of three sentences of about 30 words, and of four sentences of about 14 words."""
    words = MadeUpWords()
    while True:
        texts = [words.draw(15, 45) for _ in range(3)], [words.draw(7, 21) for _ in range(4)]
        yield tuple([" ".join(sentence) + " ." for sentence in text] for text in texts)


def peak(run: Callable[[], object]) -> float:
    """Return the peak of the memory in MiB that a function allocates for Python objects."""
    tracemalloc.start()
    run()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak_bytes / 2**20


def compare(name: str, variants: Sequence[str], pairs: list[Pair]) -> list[str]:
    """Return a row of the table: microseconds per pair of `rouge-score` and of this suite, and their ratio."""
    scorer = RougeScorer(variants, use_stemmer=True)
    texts = [("\n".join(reference), "\n".join(prediction)) for prediction, reference in pairs]
    predictions, references = [pair[0] for pair in pairs], [[pair[1]] for pair in pairs]
    run = partial(score_many, predictions, references, variants)
    slow = 1e6 / len(pairs) * cpu_seconds(lambda: [scorer.score(*pair) for pair in texts], 2)
    fast = 1e6 / len(pairs) * cpu_seconds(run, 10, warm_up=True)  # the warm-up fills the vocabulary
    return [name, f"{slow:.0f}", f"{fast:.1f}", f"{slow / fast:.1f}"]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", help="gzipped JSON Lines with document and summary; simulated by default")
    parser.add_argument("--pairs", type=int, default=11_490, help="number of pairs; default: CNN/DailyMail test set")
    parser.add_argument("--compared", type=int, default=500, help="number of pairs for rouge-score")
    arguments = parser.parse_args()
    source = pairs_of(arguments.data) if arguments.data else made_up_pairs()
    pairs = list(itertools.islice(source, arguments.pairs))
    predictions, references = [pair[0] for pair in pairs], [[pair[1]] for pair in pairs]
    lengths = [sum(len(sentence.split()) for pair in pairs for sentence in pair[side]) / len(pairs) for side in (0, 1)]
    print(f"{len(pairs):,} pairs of {lengths[0]:.0f} and {lengths[1]:.0f} words on average\n")

    def from_empty_vocabulary(times: int, processes: int) -> None:
        """Score all pairs `times` times in a row, including the stemming of each word."""
        vocabulary().clear()
        score_many(predictions * times, references * times, num_proc=processes)

    rows = []
    for times in (1, 5):
        ways = {str(count): partial(from_empty_vocabulary, times, count) for count in (1, 2)}
        walls = [seconds.wall[0] for seconds in alternate(ways, 1, warm_up=False).values()]
        ratio = f"{walls[0] / walls[1]:.2f}"
        rows.append([f"{times * len(pairs):,} pairs", *(f"{wall:.2f} s" for wall in walls), ratio])
    compared = pairs[:: max(1, len(pairs) // arguments.compared)][: arguments.compared]
    head = [f"one core, {len(compared)} pairs", "rouge-score, µs per pair", "ours, µs per pair", "ratio"]
    print_table(head, [
        compare("R1 + R2 + Lsum, stemmed", VARIANTS, compared),
        compare("L, stemmed", ("rougeL",), compared),
    ])  # fmt: skip
    print_table(["R1 + R2 + Lsum, stemmed, from an empty vocabulary", "one process", "two processes", "speed-up"], rows)

    sample = compared[:50]
    scorer = RougeScorer(VARIANTS, use_stemmer=True)
    slow = peak(lambda: [scorer.score("\n".join(target), "\n".join(text)) for text, target in sample])
    fast = peak(lambda: score_many([pair[0] for pair in sample], [[pair[1]] for pair in sample]))
    all_pairs = peak(partial(from_empty_vocabulary, 1, 1))
    print_table(["peak memory allocated", ""], [
        [f"ours, {len(pairs):,} pairs, with their scores and the {len(vocabulary()):,} words", f"{all_pairs:.1f} MiB"],
        [f"ours, {len(sample)} pairs", f"{fast:.2f} MiB"],
        [f"rouge-score, {len(sample)} pairs", f"{slow:.2f} MiB"],
    ])  # fmt: skip


if __name__ == "__main__":
    main()
