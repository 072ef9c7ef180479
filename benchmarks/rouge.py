"""Speed and memory of ROUGE beside `rouge-score`, in one run.

    python -m benchmarks.rouge [--data DOCUMENTS.jsonl.gz] [--pairs 11490] [--compared 500]

`--data` names JSON Lines with `document` and `summary` (one sentence a line), tokenized as CNN/DailyMail is: three
consecutive sentences of the document are scored against the summary. Without it the pairs are drawn from a vocabulary
of 20,000 made-up words, at CNN/DailyMail's lengths.
"""

import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial

from rouge_score.rouge_scorer import RougeScorer

from benchmarks.measuring import MadeUpWords, alternate, cpu_seconds, options, print_table, read_rows
from lightning_modules.metrics.rouge import VARIANTS, score_many
from lightning_modules.metrics.rouge_rewards import rouge_l_ids, rouge_l_texts
from lightning_modules.metrics.rouge_words import vocabulary

Pair = tuple[list[str], list[str]]


def pairs_of(path: str) -> Iterator[Pair]:
    """Windows of three sentences beside the summary; all documents' first windows, then their second ones, ..."""
    rows = list(read_rows(path))
    for start in range(0, max(len(document) for document, _ in rows), 3):
        for document, summary in rows:
            if len(document) >= start + 3:
                yield document[start : start + 3], summary


def made_up_pairs() -> Iterator[Pair]:
    """Three sentences of about 30 words against four of about 14."""
    words = MadeUpWords()
    while True:
        texts = [words.draw(15, 45) for _ in range(3)], [words.draw(7, 21) for _ in range(4)]
        yield tuple([" ".join(sentence) + " ." for sentence in text] for text in texts)


def peak(run: Callable[[], object]) -> float:
    """MiB allocated at once, beyond what was there."""
    tracemalloc.start()
    run()
    top = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return top / 2**20


def compare(
    name: str, scorer: RougeScorer, predicted: list[str], expected: list[str], ours: Callable[[], object]
) -> list[str]:
    """A row of the table: microseconds per pair of `rouge-score` and of ours, with a filled vocabulary."""
    slow = cpu_seconds(lambda: [scorer.score(*pair) for pair in zip(expected, predicted)], 2)
    slow, fast = (1e6 * seconds / len(predicted) for seconds in (slow, cpu_seconds(ours, 10, warm_up=True)))
    return [name, f"{slow:.0f}", f"{fast:.1f}", f"{slow / fast:.1f}"]


def comparisons(pairs: list[Pair]) -> Iterator[list[str]]:
    """Rows for ROUGE as an evaluation needs it, and as the reward of self-critical training, for two summaries."""
    predictions, references = [pair[0] for pair in pairs], [[pair[1]] for pair in pairs]
    texts, targets = ["\n".join(pair[0]) for pair in pairs], ["\n".join(pair[1]) for pair in pairs]
    stemmed, plain = RougeScorer(["rougeL"], use_stemmer=True), RougeScorer(["rougeL"])
    run = partial(score_many, predictions, references)
    yield compare("R1 + R2 + Lsum, stemmed", RougeScorer(VARIANTS, use_stemmer=True), texts, targets, run)
    twice = [target for target in targets for _ in range(2)]
    both = [text for pair in pairs for text in ("\n".join(pair[0]), "\n".join(reversed(pair[0])))]
    encode = vocabulary(stem=False).encode
    for summaries, predicted, expected in (("one summary", texts, targets), ("two summaries", both, twice)):
        run = partial(rouge_l_texts, predicted, expected)
        yield compare(f"L of texts, stemmed, {summaries} per reference", stemmed, predicted, expected, run)
        ids = [[encode(text) for text in some] for some in (predicted, expected)]
        digits = [[" ".join(map(str, row)) for row in rows] for rows in ids]
        yield compare(f"L of token ids, {summaries} per reference", plain, *digits, partial(rouge_l_ids, *ids))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", help="gzipped JSON Lines with document and summary; made-up pairs without it")
    parser.add_argument("--pairs", type=int, default=11_490, help="pairs of the long run (CNN/DailyMail's test set)")
    parser.add_argument("--compared", type=int, default=500, help="pairs scored by rouge-score too")
    arguments = parser.parse_args()
    source = pairs_of(arguments.data) if arguments.data else made_up_pairs()
    pairs = list(itertools.islice(source, arguments.pairs))
    predictions, references = [pair[0] for pair in pairs], [[pair[1]] for pair in pairs]
    lengths = [sum(len(sentence.split()) for pair in pairs for sentence in pair[side]) / len(pairs) for side in (0, 1)]
    print(f"{len(pairs):,} pairs of {lengths[0]:.0f} and {lengths[1]:.0f} words on average\n")

    def from_nothing(times: int, processes: int) -> None:
        vocabulary().clear()
        score_many(predictions * times, references * times, num_proc=processes)

    rows = []
    for times in (1, 5):
        ways = {str(count): partial(from_nothing, times, count) for count in (1, 2)}
        one, two = (seconds.wall[0] for seconds in alternate(ways, 1, warm_up=False).values())
        rows.append([f"{times * len(pairs):,} pairs", f"{one:.2f} s", f"{two:.2f} s", f"{one / two:.2f}"])
    compared = pairs[:: max(1, len(pairs) // arguments.compared)][: arguments.compared]
    head = [f"one core, {len(compared)} pairs", "rouge-score, µs per pair", "ours, µs per pair", "ratio"]
    print_table(head, comparisons(compared))
    print_table(["R1 + R2 + Lsum, stemmed, from an empty vocabulary", "one process", "two processes", "speed-up"], rows)

    few = compared[:50]
    scorer = RougeScorer(VARIANTS, use_stemmer=True)
    slow = peak(lambda: [scorer.score("\n".join(target), "\n".join(text)) for text, target in few])
    fast = peak(lambda: score_many([pair[0] for pair in few], [[pair[1]] for pair in few]))
    whole = peak(partial(from_nothing, 1, 1))
    print_table(["peak memory allocated", ""], [
        [f"ours, {len(pairs):,} pairs, with their scores and the {len(vocabulary()):,} words", f"{whole:.1f} MiB"],
        [f"ours, {len(few)} pairs", f"{fast:.2f} MiB"],
        [f"rouge-score, {len(few)} pairs", f"{slow:.2f} MiB"],
    ])  # fmt: skip


if __name__ == "__main__":
    main()
