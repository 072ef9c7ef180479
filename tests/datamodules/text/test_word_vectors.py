import gzip

import pytest
import torch

from datamodules.documents import UserError
from datamodules.text.word_vectors import read_word_vectors

WORDS = ["[PAD]", "the", "cat", ". .", "sat"]


@pytest.fixture
def write(tmp_path):
    def make(text, name="vectors.txt"):
        path = tmp_path / name
        data = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return make


@pytest.mark.parametrize("header", ["", "4 2\n"], ids=["glove", "word2vec"])
@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
def test_reads_the_vectors_of_known_words(write, header, name):
    path = write(header + "sat 1 -2e-1\nelse 3 4\nthe 5 6 \nthe 9 9\n. . 7 8\n", name)
    rows, vectors = read_word_vectors(path, WORDS, 2)
    assert rows.tolist() == [1, 3, 4]
    torch.testing.assert_close(vectors, torch.tensor([[5.0, 6], [7, 8], [1, -0.2]]))


@pytest.mark.parametrize(
    "text, message",
    [
        ("the 1 2 3\n", r"vectors.txt:1: a vector of size 3, but the embedding has 2; set --model.embedding.size"),
        ("2 1\nthe 1\n", r"vectors.txt:2: a vector of size 1"),
        ("the 1 2\ncat 1\n", r"vectors.txt:2: a vector of size 1"),
        ("the 1 2\ncat 1 2x\n", r"vectors.txt:2: could not convert string to float: '2x'"),
        ("dog 1 2\n", r"vectors.txt: no vector of any of the vocabulary's 5 words"),
        ("", r"vectors.txt: no vector of any"),
        (b"the 1 \xff\n", r"vectors.txt: not UTF-8"),
    ],
)
def test_errors_in_a_file_have_its_line(write, text, message):
    with pytest.raises(UserError, match=message):
        read_word_vectors(write(text), WORDS, 2)


def test_a_file_that_is_absent_or_cut_off_is_named(write, tmp_path):
    with pytest.raises(UserError, match=r"nowhere.txt: cannot be read"):
        read_word_vectors(tmp_path / "nowhere.txt", WORDS, 2)
    path = write("the 1 2\n" * 100, "vectors.txt.gz")
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(UserError, match=r"vectors.txt.gz: cannot be read"):
        read_word_vectors(path, WORDS, 2)
