"""Pretrained word vectors from a text file."""

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from datamodules.documents import UserError


def read_word_vectors(path: Path, words: Sequence[str], size: int) -> tuple[Tensor, Tensor]:
    """Read vectors of N of the `words` from a file; return the words' ascending indices, [N], and vectors [N, size].

    Each line is a word and its numbers, separated by spaces (GloVe). A first line of two integers, the number and the
    size of vectors, is skipped (word2vec). Files ending in .gz are decompressed. Of duplicate words, the first counts.

    Raises:
        UserError: if the file is missing or not text, a vector has another size or an invalid number, or no word of
            the vocabulary has a vector.
    """
    indices = {word: index for index, word in reversed(list(enumerate(words)))}  # of a duplicate word, the first one
    vectors: dict[int, list[float]] = {}
    for number, line in _lines(path):
        word, *numbers = line.rsplit(" ", size)  # from the right: some words of the largest GloVe file contain spaces
        index = indices.get(word)
        if number == 1 or len(numbers) != size:  # in line 1, `word` may hold numbers of a vector that is too long
            _check_width(f"{path}:{number}", line, size)
        if index is not None and index not in vectors:
            try:
                vectors[index] = list(map(float, numbers))
            except ValueError as error:
                raise UserError(f"{path}:{number}: {error}; a line must be a word and its numbers") from None
    if not vectors:
        raise UserError(f"{path}: no vector of any of the vocabulary's {len(words):,} words; give another file")
    ascending = sorted(vectors)
    return torch.tensor(ascending), torch.tensor([vectors[index] for index in ascending])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line) for all lines of a file except blank lines and the header of word2vec."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip()  # without a byte order mark
                is_header = number == 1 and len(line.split(" ")) == 2 and line.replace(" ", "").isdigit()  # "9999 300"
                if line and not is_header:
                    yield number, line
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8; word vectors are read from text, not from binary files") from None
    except (OSError, EOFError) as error:
        raise UserError(f"{path}: cannot be read ({error}); give a file of word vectors") from None


def _check_width(where: str, line: str, size: int) -> None:
    """Raise a UserError if a line does not end with exactly `size` numbers; `where` is the file and line."""
    width = 0
    for field in reversed(line.split(" ")[1:]):
        try:
            float(field)
        except ValueError:  # the end of the word, which may have spaces
            break
        width += 1
    if width != size:
        problem = f"a vector of size {width}, but the embedding has {size}"
        raise UserError(f"{where}: {problem}; set --model.embedding.size {width}")
