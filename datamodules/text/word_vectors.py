"""Pretrained word vectors from a text file."""

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from datamodules.documents import CorpusError


def read_word_vectors(path: Path, words: Sequence[str], size: int) -> tuple[Tensor, Tensor]:
    """The vectors that a file has for given words.

    Each line is a word and its numbers, separated by spaces (GloVe); a first line of two whole numbers, how many words
    and how wide, is left out (word2vec). Files that end in .gz are read as they are. Where a word stands twice, its
    first vector counts.

    Args:
        words: the vocabulary; special symbols find nothing unless the file has them.
        size: width of the vectors.

    Returns:
        Indices into `words` [N], in rising order, and their vectors [N, size].

    Raises:
        CorpusError: if the file is absent, has no text, vectors of another width or what is no number, or no vector of
            a word of the vocabulary.
    """
    rows = {word: row for row, word in reversed(list(enumerate(words)))}
    found: dict[int, list[float]] = {}
    for number, line in _lines(path):
        # some words of GloVe's largest file contain spaces
        word, *numbers = line.rsplit(" ", size)
        row = rows.get(word)
        if number == 1 or len(numbers) != size:
            _check_width(f"{path}:{number}", line, size)
        if row is not None and row not in found:
            found[row] = _floats(f"{path}:{number}", numbers)
    if not found:
        raise CorpusError(f"{path}: no vector of any of the vocabulary's {len(words):,} words; give another file")
    order = sorted(found)
    return torch.tensor(order), torch.tensor([found[row] for row in order])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbers and lines, counted from 1; without word2vec's header."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                line = raw.decode("utf-8").rstrip()
                header = number == 1 and len(line.split(" ")) == 2 and line.replace(" ", "").isdigit()
                if line and not header:
                    yield number, line
    except UnicodeDecodeError:
        raise CorpusError(f"{path}: not UTF-8; word vectors are read from text, not from binary files") from None
    except (OSError, EOFError) as error:
        raise CorpusError(f"{path}: cannot be read ({error}); give a file of word vectors") from None


def _check_width(where: str, line: str, size: int) -> None:
    """Raises CorpusError if a line has another number of numbers than `size`."""
    width = 0
    for field in reversed(line.split(" ")[1:]):
        try:
            float(field)
        except ValueError:
            break
        width += 1
    if width != size:
        raise CorpusError(f"{where}: a vector of {width} numbers, the embedding has {size}; set --model.embedding_size")


def _floats(where: str, numbers: list[str]) -> list[float]:
    try:
        return [float(number) for number in numbers]
    except ValueError as error:
        raise CorpusError(f"{where}: {error}; a line is a word and its numbers") from None
