"""Speed and memory of ROUGE beside `rouge-score`, in one run.

    python benchmarks/rouge.py [--data DOCUMENTS.jsonl.gz] [--pairs 11490] [--compared 500]

`--data` names JSON Lines with `document` and `summary` (one sentence a line), tokenized as CNN/DailyMail is: three
consecutive sentences of the document are scored against the summary. Without it the pairs are drawn from a vocabulary
of 20,000 made-up words, at CNN/DailyMail's lengths.
"""

import argparse
import gzip
import itertools
import json
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from rouge_score.rouge_scorer import RougeScorer

from lightning_modules.metrics.rouge import VARIANTS, score_many
from lightning_modules.metrics.rouge_rewards import rouge_l_ids, rouge_l_texts
from lightning_modules.metrics.rouge_words import Vocabulary, vocabulary

Pair = tuple[list[str], list[str]]


def pairs_of(path: str) -> Iterator[Pair]:
    """Windows of three sentences beside the summary; all documents' first windows, then their second ones, ..."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    texts = [record["document"].replace(" . ", " .\n").split("\n") for record in records]
    for start in range(0, max(map(len, texts)), 3):
        for sentences, record in zip(texts, records):
            if len(sentences) >= start + 3:
                yield sentences[start : start + 3], record["summary"].split("\n")


def made_up_pairs(seed: int = 0) -> Iterator[Pair]:
    """Three sentences of about 30 words against four of about 14, with Zipf's frequencies and English endings."""
    draw = random.Random(seed)
    endings = ["", "", "s", "ed", "ing", "ation", "ly", "ness", "ment"]
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 7))) + draw.choice(endings) for _ in range(20_000)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))

    def sentences(number: int, length: int) -> list[str]:
        sizes = [draw.randint(length // 2, length * 3 // 2) for _ in range(number)]
        return [" ".join(draw.choices(words, cum_weights=weights, k=size)) + " ." for size in sizes]

    while True:
        yield sentences(3, 30), sentences(4, 14)


def seconds(run: Callable[[], object], rounds: int) -> float:
    """Processor time of the fastest of some rounds."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def wall(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def peak(run: Callable[[], object]) -> float:
    """MiB allocated at once, beyond what was there."""
    tracemalloc.start()
    run()
    top = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return top / 2**20


def ids(texts: list[str]) -> list[list[int]]:
    words: Vocabulary = vocabulary(stem=False)
    return [words.encode(text) for text in texts]


class Case(NamedTuple):
    """A kind of ROUGE, what `rouge-score` scores for it and what we do."""

    name: str
    scorer: RougeScorer
    predicted: list[str]
    expected: list[str]
    ours: Callable[[], object]

    def measure(self) -> tuple[float, float]:
        """Microseconds a pair of `rouge-score` and of ours, with a filled vocabulary."""
        self.ours()
        slow = seconds(lambda: [self.scorer.score(*pair) for pair in zip(self.expected, self.predicted)], rounds=2)
        return 1e6 * slow / len(self.predicted), 1e6 * seconds(self.ours, rounds=10) / len(self.predicted)


def cases(pairs: list[Pair]) -> Iterator[Case]:
    """ROUGE as an evaluation needs it, and as the reward of self-critical training, which scores two summaries."""
    predictions, references = [pair[0] for pair in pairs], [[pair[1]] for pair in pairs]
    texts, targets = ["\n".join(pair[0]) for pair in pairs], ["\n".join(pair[1]) for pair in pairs]
    stemmed, plain = RougeScorer(["rougeL"], use_stemmer=True), RougeScorer(["rougeL"])
    scorer = RougeScorer(VARIANTS, use_stemmer=True)
    yield Case("R1 + R2 + Lsum, stemmed", scorer, texts, targets, partial(score_many, predictions, references))
    twice = [target for target in targets for _ in range(2)]
    both = [text for pair in pairs for text in ("\n".join(pair[0]), "\n".join(reversed(pair[0])))]
    for summaries, some, others in (("one summary", texts, targets), ("two summaries", both, twice)):
        run = partial(rouge_l_texts, some, others)
        yield Case(f"L of texts, stemmed, {summaries} a reference", stemmed, some, others, run)
        numbers, theirs = ids(some), ids(others)
        digits, digits_of_theirs = ([" ".join(map(str, row)) for row in rows] for rows in (numbers, theirs))
        run = partial(rouge_l_ids, numbers, theirs)
        yield Case(f"L of token ids, {summaries} a reference", plain, digits, digits_of_theirs, run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="gzipped JSON Lines with document and summary; made-up pairs without it")
    parser.add_argument("--pairs", type=int, default=11_490, help="pairs of the long run (CNN/DailyMail's test set)")
    parser.add_argument("--compared", type=int, default=500, help="pairs scored by rouge-score too")
    arguments = parser.parse_args()

    pairs = list(itertools.islice(pairs_of(arguments.data) if arguments.data else made_up_pairs(), arguments.pairs))
    predictions, references = [pair[0] for pair in pairs], [[pair[1]] for pair in pairs]
    lengths = [sum(len(sentence.split()) for pair in pairs for sentence in pair[side]) / len(pairs) for side in (0, 1)]
    print(f"{len(pairs):,} pairs, {lengths[0]:.0f} against {lengths[1]:.0f} words in the mean\n")

    walls = {}
    for times, processes in itertools.product((1, 5), (1, 2)):
        vocabulary().clear()
        job = partial(score_many, predictions * times, references * times, num_proc=processes)
        walls[times, processes] = wall(job)
    compared = pairs[:: max(1, len(pairs) // arguments.compared)][: arguments.compared]
    print(f"| one core, {len(compared)} pairs | rouge-score, µs a pair | ours, µs a pair | ratio |")
    print("|---|---|---|---|")
    for case in cases(compared):
        slow, fast = case.measure()
        print(f"| {case.name} | {slow:.0f} | {fast:.1f} | {slow / fast:.1f} |")

    few = compared[:50]
    scorer = RougeScorer(VARIANTS, use_stemmer=True)
    slow = peak(lambda: [scorer.score("\n".join(target), "\n".join(text)) for text, target in few])
    fast = peak(lambda: score_many([pair[0] for pair in few], [[pair[1]] for pair in few]))
    vocabulary().clear()
    whole = peak(lambda: score_many(predictions, references))
    print("\n| R1 + R2 + Lsum, stemmed, from an empty vocabulary | one process | two processes | speed-up |")
    print("|---|---|---|---|")
    for times in (1, 5):
        one, two = walls[times, 1], walls[times, 2]
        print(f"| {times * len(pairs):,} pairs | {one:.2f} s | {two:.2f} s | {one / two:.2f} |")
    print("\n| memory allocated at most | |")
    print("|---|---|")
    print(f"| ours, {len(pairs):,} pairs, with their scores and the {len(vocabulary()):,} words | {whole:.1f} MiB |")
    print(f"| ours, {len(few)} pairs | {fast:.2f} MiB |")
    print(f"| rouge-score, {len(few)} pairs | {slow:.2f} MiB |")


if __name__ == "__main__":
    main()
