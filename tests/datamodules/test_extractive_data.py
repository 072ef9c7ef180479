"""Labels, batches and limits of extractive models, and index files of MatchSum as scores of sentences."""

import pytest
import torch
from conftest import write_lines

from datamodules.corpora import Files
from datamodules.documents import Document, UserError
from datamodules.matchsum import MatchSumData
from datamodules.sentence_index import SentenceIndex
from datamodules.text.oracle import greedy_oracle, sentence_scores
from datamodules.text.sentence_layout import pairs_with_common_ngram
from tests.lightning_modules.extractive.small_extractive import TEXT, batch_of, data

STORM = Document("s", [["A storm hit the coast.", "Boats sank.", "A storm hit the town."]], [["A storm hit."]])


def test_labels_are_the_oracles_gains_each_sentences_own_and_shared_pairs_have_an_ngram():
    row = data().encode(STORM)
    chosen = greedy_oracle(STORM.sentences, STORM.references, 3)
    assert row["labels"] == [index in chosen for index in range(3)]
    assert row["gains"] == sentence_scores(STORM.sentences, STORM.references)
    assert row["shared"] == [0, 2]  # "a storm hit"
    unlabelled = data().encode(Document("s", STORM.parts))
    assert unlabelled["labels"] == [0, 0, 0] and unlabelled["gains"] == [0.0] * 3
    assert pairs_with_common_ngram([*map(list, ("abcd", "xbcd", "ab", "", "cdabc"))]) == [(0, 1), (0, 4)]


def test_a_batch_says_whose_each_token_is():
    documents = [STORM, Document("none", []), Document("long", [["x" * 20, ""]])]
    batch = batch_of(data(piece=8), documents)
    for row, document in enumerate(documents):
        length = int(batch.lengths[row])
        assert batch.owner[row, length:].eq(-1).all() and not batch.heads[row, length:].any()
        for number, sentence in enumerate(document.sentences):
            tokens = batch.tokens[row][batch.owner[row] == number].tolist()
            inner = [token for token in tokens if token not in (TEXT.start, TEXT.stop)]
            assert inner == TEXT(sentence)[0]
            pieces = max(1, -(-len(inner) // 8))
            assert tokens.count(TEXT.start) == tokens.count(TEXT.stop) == pieces
            assert (batch.heads[row] & (batch.owner[row] == number)).sum() == pieces
    assert batch.mask.sum(1).tolist() == [3, 0, 2] and torch.equal(batch.mask, batch.candidates)
    assert batch.shared[0].tolist() == [[False, False, True], [False] * 3, [True, False, False]]


def test_what_may_not_be_selected_is_read_all_the_same():
    row = data(min_words=3).encode(STORM)
    assert row["usable"] == [True, True, True]  # "boats", "sank", "."
    row = data(min_words=4, max_words=6).encode(STORM)
    assert row["usable"] == [True, False, True] and row["sentences"] == STORM.sentences
    assert data(min_words=50).encode(STORM)["usable"] == [True] * 3  # all are shorter
    assert data(min_words=4).encode(Document("s", STORM.parts, [["Boats sank."]]))["labels"] == [0, 0, 0]
    # whole sentences are left out only when asked for
    sizes = [len(TEXT(sentence)[0]) + 2 for sentence in STORM.sentences]
    row = data(max_source=sizes[0] + sizes[1]).encode(STORM)
    assert row["sentences"] == STORM.sentences[:2] and row["length"] == sum(sizes[:2])
    assert data(max_source=1).encode(STORM)["sentences"] == STORM.sentences[:1]


SENTENCES = ["one bird sang .", "two cats sat .", "three dogs ran .", "four fish swam ."]
DOCUMENT = Document("train-1", [SENTENCES], [["two cats sat ."]])


def test_scores_fall_along_the_list_and_the_fingerprint_follows_the_content(tmp_path):
    path = write_lines(tmp_path / "index.jsonl", [{"sent_id": [2, 0, 3]}, {"id": "mine", "sent_id": []}])
    (first, second) = SentenceIndex({"train": str(path)}).sentence_scores([DOCUMENT, Document("mine", [["a"]])])
    assert sorted(range(4), key=lambda index: -first[index]) == [2, 0, 3, 1] and first[1] == 0
    assert second == [0.0]
    prints = [SentenceIndex({split: str(path)}).fingerprint for split in ("train", "train", "val")]
    write_lines(path, [{"sent_id": [1]}])
    assert prints[0] == prints[1] and len({*prints, SentenceIndex({"train": str(path)}).fingerprint}) == 3
    with pytest.raises(UserError, match="no such file"):
        _ = SentenceIndex({"train": str(tmp_path / "missing.jsonl")}).fingerprint


def test_candidates_are_formed_from_the_indexed_sentences(tmp_path):
    documents = write_lines(tmp_path / "train.jsonl", [{"document": SENTENCES, "summary": ["two cats sat ."]}])
    index = write_lines(tmp_path / "index.jsonl", [{"sent_id": [3, 1, 0]}])
    corpus = Files(train=str(documents), document_list="sentences", summary_list="sentences")
    scorer = SentenceIndex({"train": str(index)})
    module = MatchSumData(corpus, scorer, 300, None, keep=2, sizes=[1, 2], cache_dir=tmp_path / "cache")
    module.prepare_splits(["train"])
    (row,) = module.features("train")
    assert sorted(map(tuple, module.collate([row]).choices[0])) == [(1,), (1, 3), (3,)]


@pytest.mark.parametrize("row, message", [
    ({"sent_id": [9]}, "sentence 9 of document 'train-1', which has 4"),
    ({"sent_id": "0"}, "index.jsonl:1: sent_id is not a list of indices"),
    ({"id": "other", "sent_id": [0]}, "'train-1' has no line"),
    ("{", "broken JSON"),
])  # fmt: skip
def test_a_bad_index_is_one_line(row, message, tmp_path):
    path = write_lines(tmp_path / "index.jsonl", [row])
    with pytest.raises(UserError, match=message):
        list(SentenceIndex({"train": str(path)}).sentence_scores([DOCUMENT]))
