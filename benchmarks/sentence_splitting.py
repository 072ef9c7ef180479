"""Sentence splitters on gold boundaries: which one the suite should use.

    python benchmarks/sentence_splitting.py gum

Every splitter gets the gold paragraphs one at a time, as the suite gives it the parts of a document. Counted are the
boundaries within paragraphs (the end of a paragraph is given, and would flatter everyone), as positions among the
characters that are not whitespace, so that a splitter may normalise spaces. The last text is the first one tokenized as
in the Penn Treebank and lower-cased, as CNN/DailyMail is given to pointer-generators. Libraries that are not installed
are named and left out; `pip install pysbd nupunkt blingfire syntok segtok sentence-splitter spacy` gets them all.
"""

import argparse
import gzip
import importlib
import json
import re
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from nltk.tokenize import TreebankWordTokenizer

Splitter = Callable[[str], list[str]]


def regular_expression() -> Splitter:
    """The floor: a full stop, question or exclamation mark, perhaps a quote, a space."""
    boundary = re.compile(r"(?<=[.?!])[\"'”’)\]]*\s+")
    return lambda text: [text[start:end] for start, end in _pieces(text, [m.end() for m in boundary.finditer(text)])]


def _pieces(text: str, ends: list[int]) -> list[tuple[int, int]]:
    return list(zip([0, *ends], [*ends, len(text)]))


def pysbd() -> Splitter:
    return importlib.import_module("pysbd").Segmenter(language="en", clean=False).segment


def nupunkt() -> Splitter:
    return importlib.import_module("nupunkt").sent_tokenize


def blingfire() -> Splitter:
    to_lines = importlib.import_module("blingfire").text_to_sentences
    return lambda text: to_lines(text).split("\n")


def syntok() -> Splitter:
    segmenter = importlib.import_module("syntok.segmenter")
    return lambda text: [
        "".join(token.spacing + token.value for token in sentence)
        for paragraph in segmenter.process(text)
        for sentence in paragraph
    ]


def segtok() -> Splitter:
    split = importlib.import_module("segtok.segmenter").split_single
    return lambda text: list(split(text))


def sentencex() -> Splitter:
    segment = importlib.import_module("sentencex").segment
    return lambda text: list(segment("en", text))


def sentence_splitter() -> Splitter:
    return importlib.import_module("sentence_splitter").SentenceSplitter(language="en").split


def spacy() -> Splitter:
    pipeline = importlib.import_module("spacy").blank("en")
    pipeline.add_pipe("sentencizer")
    return lambda text: [sentence.text for sentence in pipeline(text).sents]


def ours() -> Splitter:
    return importlib.import_module("datamodules.text.sentences").split_sentences


SPLITTERS = {
    "`split_sentences`": (ours, None),
    "regular expression": (regular_expression, None),
    "pysbd": (pysbd, "pysbd"),
    "nupunkt": (nupunkt, "nupunkt"),
    "blingfire": (blingfire, "blingfire"),
    "syntok": (syntok, "syntok"),
    "segtok": (segtok, "segtok"),
    "sentencex": (sentencex, "sentencex"),
    "sentence-splitter": (sentence_splitter, "sentence-splitter"),
    "spacy sentencizer": (spacy, "spacy"),
}


def paragraphs(folder: Path, split: str) -> list[tuple[str, set[int]]]:
    """Each gold paragraph's text, with the positions of the boundaries within it."""
    out = []
    with gzip.open(folder / f"{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            text = record["text"]
            for start, end in record["paragraphs"]:
                inside = [stop for _, stop in record["sentences"] if start < stop < end]
                out.append((text[start:end], {_solid(text[start:stop]) for stop in inside}))
    return out


def tokenized(folder: Path, split: str) -> list[tuple[str, set[int]]]:
    """As `paragraphs`, every gold sentence tokenized and lower-cased."""
    tokenize = TreebankWordTokenizer().tokenize
    out = []
    for text, ends in paragraphs(folder, split):
        solid = [i for i, character in enumerate(text) if not character.isspace()]
        cuts = [0, *(solid[end - 1] + 1 for end in sorted(ends)), len(text)]
        sentences = [" ".join(tokenize(text[start:end])).lower() for start, end in pairwise(cuts)]
        lengths = [_solid(" ".join(sentences[: i + 1])) for i in range(len(sentences) - 1)]
        out.append((" ".join(sentences), set(lengths)))
    return out


def _solid(text: str) -> int:
    """The number of characters that are not whitespace."""
    return sum(not character.isspace() for character in text)


def boundaries(text: str, sentences: list[str]) -> set[int]:
    """Where one sentence ends and the next begins."""
    position, found = 0, set()
    for sentence in sentences:
        position += _solid(sentence)
        found.add(position)
    return found - {0, _solid(text)}


def score(split: Splitter, gold: list[tuple[str, set[int]]]) -> tuple[float, float, float]:
    """Precision, recall and F1 of the boundaries."""
    found = [boundaries(text, split(text)) for text, _ in gold]
    hits = sum(len(mine & theirs) for mine, (_, theirs) in zip(found, gold))
    precision, recall = hits / max(1, sum(map(len, found))), hits / sum(len(theirs) for _, theirs in gold)
    return precision, recall, 2 * hits / (sum(map(len, found)) + sum(len(theirs) for _, theirs in gold))


def speed(split: Splitter, gold: list[tuple[str, set[int]]]) -> float:
    """Megabytes of UTF-8 a second, one paragraph a call; the best of three runs."""
    size = sum(len(text.encode()) for text, _ in gold) / 1e6
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        for text, _ in gold:
            split(text)
        seconds.append(time.perf_counter() - start)
    return size / min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gum", type=Path, help="folder with train.jsonl.gz and val.jsonl.gz")
    folder = parser.parse_args().gum
    texts = {
        "train": paragraphs(folder, "train"),
        "val": paragraphs(folder, "val"),
        "train, tokenized": tokenized(folder, "train"),
    }
    inner = " and ".join(f"{sum(len(ends) for _, ends in texts[split]):,} ({split})" for split in ("train", "val"))
    print(f"Boundaries within paragraphs: {inner}.\n")
    print(f"| splitter | version | {' | '.join(f'{name}: P / R / F1' for name in texts)} | MB/s |")
    print("|---|---|---|---|---|---|")
    for name, (make, package) in SPLITTERS.items():
        try:
            split = make()
        except ImportError:
            print(f"| {name} | not installed | | | | |")
            continue
        scores = [" / ".join(f"{100 * x:.1f}" for x in score(split, gold)) for gold in texts.values()]
        number = version(package) if package else ""
        print(f"| {name} | {number} | {' | '.join(scores)} | {speed(split, texts['val']):.2f} |")


if __name__ == "__main__":
    main()
