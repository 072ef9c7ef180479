import warnings

import pytest
import torch

from datamodules.bertsum import ExtractiveData
from datamodules.corpora import Files, Texts
from datamodules.documents import Document
from datamodules.text.encoder_tokenizer import EncoderTokenizer
from datamodules.text.oracle import greedy_oracle, sentence_scores
from datamodules.text.trigrams import pairs_with_common_ngram


@pytest.fixture(scope="module")
def text() -> EncoderTokenizer:
    return EncoderTokenizer.build(["A storm hit the coast. Boats sank."], 262)


def made(text: EncoderTokenizer, **arguments) -> ExtractiveData:
    data = ExtractiveData(Texts([]), 300, None, **arguments)
    data.tokenizer = text
    return data


STORM = Document("s", [["A storm hit the coast.", "Boats sank.", "A storm hit the town."]], [["A storm hit."]])


def test_labels_are_the_oracles_and_gains_each_sentences_own(text):
    row = made(text).encode(STORM)
    chosen = greedy_oracle(STORM.sentences, STORM.references, 3)
    assert [index for index, label in enumerate(row["labels"]) if label] == chosen
    assert row["gains"] == sentence_scores(STORM.sentences, STORM.references)
    assert row["shared"] == [0, 2]  # "a storm hit"
    unlabelled = made(text).encode(Document("s", STORM.parts))
    assert unlabelled["labels"] == [0, 0, 0] and unlabelled["gains"] == [0.0] * 3


def test_a_batch_says_whose_each_token_is(text):
    data = made(text, piece=8)
    documents = [STORM, Document("none", []), Document("long", [["x" * 20, ""]])]
    batch = data.collate([data.encode(d) | {"id": d.id, "references": d.references} for d in documents])
    for row, document in enumerate(documents):
        length = int(batch.lengths[row])
        assert batch.owner[row, length:].eq(-1).all() and not batch.heads[row, length:].any()
        for number, sentence in enumerate(document.sentences):
            tokens = batch.tokens[row][batch.owner[row] == number].tolist()
            inner = [token for token in tokens if token not in (text.start, text.stop)]
            assert inner == text(sentence)[0]
            pieces = max(1, -(-len(inner) // 8))
            assert tokens.count(text.start) == tokens.count(text.stop) == pieces
            assert (batch.heads[row] & (batch.owner[row] == number)).sum() == pieces
    assert batch.mask.sum(1).tolist() == [3, 0, 2] and torch.equal(batch.mask, batch.candidates)
    assert batch.shared[0].tolist() == [[False, False, True], [False] * 3, [True, False, False]]


def test_what_may_not_be_selected_is_read_all_the_same(text):
    row = made(text, min_words=3).encode(STORM)
    assert row["usable"] == [True, True, True]  # "boats", "sank", "."
    row = made(text, min_words=4, max_words=6).encode(STORM)
    assert row["usable"] == [True, False, True] and row["sentences"] == STORM.sentences
    assert made(text, min_words=50).encode(STORM)["usable"] == [True] * 3  # all are shorter
    short = Document("s", STORM.parts, [["Boats sank."]])
    assert made(text, min_words=4).encode(short)["labels"] == [0, 0, 0]


def test_whole_sentences_are_left_out_only_when_asked_for_and_not_in_silence(text, corpus_files, tmp_path):
    sizes = [len(text(sentence)[0]) + 2 for sentence in STORM.sentences]
    assert made(text).encode(STORM)["truncation"]["source_sentences"] == [3, 3]
    row = made(text, max_source=sizes[0] + sizes[1]).encode(STORM)
    assert row["sentences"] == STORM.sentences[:2] and row["length"] == sum(sizes[:2])
    assert row["truncation"]["source_sentences"] == [2, 3]
    assert row["truncation"]["source_tokens"] == [sum(sizes[:2]), sum(sizes)]
    assert made(text, max_source=1).encode(STORM)["sentences"] == STORM.sentences[:1]
    data = ExtractiveData(Files(**corpus_files), 300, None, max_source=60, cache_dir=tmp_path)
    data.prepare_data()
    assert all(row.left_out and row.limit == "data.max_source 60" for row in data.truncation["val"][:2])


def test_labels_are_cached_and_the_same_on_two_processes(corpus_files, tmp_path, monkeypatch):
    one = ExtractiveData(Files(**corpus_files), 300, None, cache_dir=tmp_path / "one")
    two = ExtractiveData(Files(**corpus_files), 300, None, cache_dir=tmp_path / "two", num_proc=2)
    for data in (one, two):
        data.prepare_data()
    assert one.features("train")[:] == two.features("train")[:]
    again = ExtractiveData(Files(**corpus_files), 300, None, cache_dir=tmp_path / "one")
    monkeypatch.setattr("datamodules.bertsum.greedy_oracle", None)  # nobody computes them anew
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again.prepare_data()
    assert again.features("train")[:] == one.features("train")[:]


@pytest.mark.parametrize("name", ["oracle_sentences", "max_words", "max_source", "piece"])
def test_numbers_below_one_are_named(name):
    with pytest.raises(ValueError, match=f"data.{name} must be at least 1, got 0"):
        ExtractiveData(Texts([]), **{name: 0})


def test_sharing_finds_ngrams_in_common():
    words = [["a", "b", "c", "d"], ["x", "b", "c", "d"], ["a", "b"], [], ["c", "d", "a", "b", "c"]]
    expected = [
        (i, j)
        for i in range(5)
        for j in range(i + 1, 5)
        if {tuple(words[i][k : k + 3]) for k in range(len(words[i]) - 2)}
        & {tuple(words[j][k : k + 3]) for k in range(len(words[j]) - 2)}
    ]
    assert pairs_with_common_ngram(words) == expected == [(0, 1), (0, 4)]
