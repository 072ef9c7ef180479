import random
from itertools import pairwise

import pytest

from datamodules.corpora import Files
from datamodules.corpora.corpus import as_document
from datamodules.documents import Document, UserError
from datamodules.gap_sentences import GapSentenceData, piece_boundaries
from datamodules.pretrained_summarizer import PegasusData
from datamodules.text.gap_selection import select
from tests.conftest import prepared, write_lines

WORDS = ["otter", "heron", "badger", "lynx", "guards", "paints", "the", "mill", "harbour", "library", "of", "rain"]


def document(number: int, sentences: int) -> dict:
    rng = random.Random(number)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(2, 9))).capitalize() + "." for _ in range(sentences)]
    cut = rng.randrange(sentences + 1)
    return {"id": f"d{number}", "document": [part for part in (texts[:cut], texts[cut:]) if part]}


ROWS = [document(n, 2 + n % 7) for n in range(20)]


def data_of(rows, folder, **changes) -> GapSentenceData:
    """The data whose splits are all the same file."""
    files = dict.fromkeys(("train", "val", "test"), str(write_lines(folder / "rows.jsonl", rows)))
    settings = {"vocab_size": 290, "max_source": 200, "max_target": 200, "batch_size": 4, "cache_dir": folder}
    return GapSentenceData(Files(**files, summary=None), **settings | changes)


def ready(rows, folder, **changes) -> GapSentenceData:
    return prepared(data_of(rows, folder, **changes), "fit")


def test_pieces_are_scored_against_their_gap_sentences(folder):
    data = ready(ROWS, folder, ratio=0.4, max_source=100)
    pieces, features = list(data.scored_documents("train")), data.features("train")
    assert [(piece.id, piece.references) for piece in pieces] == [(row["id"], row["references"]) for row in features]
    assert len(pieces) > len(ROWS) and all(piece.sentences for piece in pieces)
    assert not any({*piece.references[0]} & {*piece.sentences} for piece in pieces), "the model does not see them"


def test_the_gaps_are_masked_once_each_and_are_the_target(folder):
    data = ready(ROWS, folder, ratio=0.4)
    documents = {row["id"]: as_document(row) for row in data.documents("train")}
    for row in data.features("train"):
        sentences = documents[row["id"]].sentences
        chosen = select(sentences, min(max(1, round(0.4 * len(sentences))), len(sentences) - 1))
        kept = [word for i, text in enumerate(sentences) for word in (["_"] if i in chosen else text.split())]
        assert row["source"][0] == data.tokenizer.start and row["source"][-1] == data.tokenizer.stop
        read = data.tokenizer.backend.decode(row["source"], skip_special_tokens=False)
        read = read.removeprefix("<s>").removesuffix("</s>").replace("<mask>", " _ ")
        assert read.split() == kept, row["id"]
        assert data.tokenizer.decode(row["target"]) == " ".join(sentences[i] for i in chosen)
        assert row["target"][-1] == data.tokenizer.stop and row["references"] == [[sentences[i] for i in chosen]]
        assert row["gaps"] == len(chosen)


def test_some_stay_unchanged_and_each_document_has_draws_of_its_own(folder):
    whole = ready(ROWS, folder, ratio=0.5)
    some = ready(ROWS, folder, ratio=0.5, unchanged=0.5)
    mask = whole.tokenizer.mask
    masks = [[row["source"].count(mask) for row in data.features("train")] for data in (whole, some)]
    gaps = whole.features("train")["gaps"][:]
    assert masks[0] == gaps and some.features("train")["gaps"][:] == gaps
    shares = {drawn / gap for drawn, gap in zip(masks[1], gaps)}
    assert len(shares) > 3 and 0.3 < sum(masks[1]) / sum(gaps) < 0.7
    all_stay = ready(ROWS, folder, ratio=0.5, unchanged=1.0)
    assert not any(all_stay.tokenizer.mask in row["source"] for row in all_stay.features("train"))
    again = ready(ROWS, folder / "elsewhere", ratio=0.5, unchanged=0.5)
    assert again.features("train")["source"][:] == some.features("train")["source"][:]
    other = ready(ROWS, folder, ratio=0.5, unchanged=0.5, draw_seed=1)
    assert other.features("train")["source"][:] != some.features("train")["source"][:]
    data = ready([document(n, 10) for n in range(30)], folder, ratio=0.15, max_ratio=0.45, max_source=900)
    gaps = data.features("train")["gaps"][:]
    assert set(gaps) == {2, 3, 4} and gaps == data.features("val")["gaps"][:]


def test_a_long_document_is_read_in_pieces_with_single_sentences_only_where_they_must_be(tmp_path):
    data = ready([document(n, 40) for n in range(3)], tmp_path, max_source=60)
    for whole in map(as_document, data.documents("train")):
        pieces = list(data.pieces(whole))
        assert [sentence for piece in pieces for sentence in piece.sentences] == whole.sentences
        assert all(len(data.tokenizer(piece.text)[0]) <= data.room and len(piece.sentences) > 1 for piece in pieces)
    names = data.features("train")["id"][:]
    assert names[:3] == ["d0#1", "d0#2", "d0#3"] and len(names) == len(set(names))
    assert piece_boundaries([3, 3, 3, 3, 3], 12) == [0, 3, 5]  # the last one takes one of the first four
    assert piece_boundaries([9, 4, 4, 4, 4], 13) == [0, 2, 5]
    assert piece_boundaries([9, 2, 2, 2, 12, 3, 3, 3], 13) == [0, 2, 4, 5, 8]  # nothing fits beside the 12
    assert piece_boundaries([20, 5], 10) == [0, 1, 2] and piece_boundaries([2], 10) == [0, 1]
    rng = random.Random(0)
    for _ in range(200):
        sizes, room = [rng.randint(1, 9) for _ in range(rng.randint(1, 30))], rng.randint(5, 20)
        boundaries = piece_boundaries(sizes, room)
        assert boundaries[0] == 0 and boundaries[-1] == len(sizes) and boundaries == sorted(set(boundaries))
        assert all(sum(sizes[a:b]) <= room or b - a == 1 for a, b in pairwise(boundaries))


def test_a_single_sentence_has_no_gap(tmp_path):
    long = {"id": "long", "document": "Otter " * 80 + "guards. The heron paints. The heron repairs the mill."}
    rows = [document(1, 4), {"id": "single", "document": "One otter."}, {"id": "dots", "document": "... !"}, long]
    with pytest.warns(UserWarning, match="train: left out 2 of 5 pieces of a single sentence: single, long#1"):
        data = ready(rows, tmp_path, max_source=70)
    assert data.features("train")["id"][:] == ["d1", "dots", "long#2"] == data.features("val")["id"][:]
    data.setup("test")
    test = {row["id"]: row for row in data.features("test")}
    assert len(test) == 5 and test["single"]["references"] == [] and test["single"]["target"] == [data.tokenizer.stop]
    assert data.tokenizer.decode(test["single"]["source"]) == "One otter." and len(test["long#1"]["source"]) == 70
    assert next(iter(data.test_dataloader())).batch_size == 4
    with pytest.raises(UserError, match="train: no document has two sentences"):
        ready(rows[1:2], tmp_path)


def test_targets_that_are_too_long_are_counted(tmp_path):
    whole = ready(ROWS, tmp_path / "whole").features("train")["target"][:]
    data = ready(ROWS, tmp_path / "cut", max_target=9)
    cut = data.features("train")["target"][:]
    assert all(short[:-1] == long[: len(short) - 1] for short, long in zip(cut, whole))
    lost, number = sum(map(len, whole)) - sum(map(len, cut)), sum(len(target) > 9 for target in whole)
    (row,) = [row for row in data.truncation["train"] if row.limit == "data.max_target 9"]
    assert (row.counted, row.left_out, row.documents_cut, row.documents) == ("target tokens", lost, number, len(whole))
    nothing = data.encode(Document("none", []))
    assert nothing["gaps"] == 0 and nothing["target"] == [data.tokenizer.stop]


def test_arguments_out_of_bounds_are_refused(tmp_path):
    for wrong, message in (
        ({"ratio": 0}, r"data\.ratio"),
        ({"ratio": 0.4, "max_ratio": 0.3}, r"data\.ratio"),
        ({"unchanged": 1.5}, r"data\.unchanged"),
        ({"max_source": 2}, r"data\.max_source must be at least 3"),
    ):
        with pytest.raises(ValueError, match=message):
            data_of(ROWS, tmp_path, **wrong)


def test_fine_tuning_reads_document_and_summary(corpus_files, tmp_path):
    sizes = {"vocab_size": 300, "max_source": 40, "max_target": 9, "batch_size": 5}
    data = prepared(PegasusData(Files(**corpus_files), cache_dir=tmp_path, **sizes), "fit")
    batch = next(iter(data.val_dataloader()))
    documents = {row["id"]: as_document(row) for row in data.documents("val")}
    for n, document in enumerate(documents[name] for name in batch.ids):
        source = batch.source[n, : batch.source_mask[n].sum()].tolist()
        target = batch.target[n, : batch.target_lengths[n]].tolist()
        assert document.text.startswith(data.tokenizer.decode(source))
        assert source[0] == data.tokenizer.start and source[-1] == data.tokenizer.stop
        assert " ".join(document.references[0]).startswith(data.tokenizer.decode(target)) and len(target) <= 9
        assert (batch.source[n] != data.tokenizer.pad).tolist() == batch.source_mask[n].tolist()
    assert batch.target_rows.tolist() == (batch.target != data.tokenizer.pad).flatten().nonzero().squeeze(1).tolist()
