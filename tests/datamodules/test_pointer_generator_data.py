import pytest

from datamodules.corpora.texts import Texts
from datamodules.documents import Document
from datamodules.pointer_generator import PointerGeneratorData
from datamodules.text.vocabulary import PAD, START, STOP, UNK, Vocabulary

V = 12


@pytest.fixture
def data(tmp_path):
    data = PointerGeneratorData(Texts([]), vocab_size=V, max_source=8, max_target=5, cache_dir=tmp_path)
    data.tokenizer = Vocabulary(["the", "cat", "sat", "."])
    return data


def row(data, parts, references=(), name="1"):
    document = Document(name, [list(part) for part in parts], [list(reference) for reference in references])
    return data.encode(document) | {"id": name, "references": document.references}


def by_hand(words, vocabulary, oov_words):
    """Return extended ids by a loop over words, and extend `oov_words`."""
    ids = []
    for word in words:
        if word in vocabulary:
            ids.append(4 + vocabulary.index(word))
        else:
            if word not in oov_words:
                oov_words.append(word)
            ids.append(V + oov_words.index(word))
    return ids


def test_ids_equal_those_of_a_plain_loop(data):
    rows = [
        row(data, [["The zebra sat."], ["A yak, the zebra"]], [["Zebra sat."], ["unused"]], "a"),
        row(data, [["Cat."]], [["the gnu"]], "b"),
    ]
    batch = data.collate(rows)
    words = [["the", "zebra", "sat", ".", "a", "yak", ",", "the"], ["cat", "."]]
    targets = [["zebra", "sat", "."], ["the", "gnu"]]
    vocabulary = data.tokenizer.words[4:]
    for i, (source, target) in enumerate(zip(words, targets)):
        oov_words: list[str] = []
        expected = by_hand(source, vocabulary, oov_words)
        assert batch.source_extended[i].tolist() == expected + [PAD] * (8 - len(source))
        assert batch.source[i].tolist() == [UNK if x >= V else x for x in expected] + [PAD] * (8 - len(source))
        assert batch.oov_words[i] == oov_words
        ids = {word: V + k for k, word in enumerate(oov_words)} | {word: 4 + k for k, word in enumerate(vocabulary)}
        gold = [*(ids.get(word, UNK) for word in target), STOP]
        length = len(gold)
        assert batch.target[i, :length].tolist() == gold and batch.target[i, length:].eq(PAD).all()
        inputs = [START, *(UNK if x >= V else x for x in gold[:-1])]
        assert batch.target_input[i, :length].tolist() == inputs
        assert batch.lengths[i] == len(source) and batch.target_lengths[i] == length
    assert batch.target.flatten()[batch.target_rows].ne(PAD).all()
    assert len(batch.target_rows) == batch.target_lengths.sum() == 7
    assert batch.references[0] == [["Zebra sat."], ["unused"]] and batch.ids == ["a", "b"]


def test_cutting_the_source_later_takes_its_words_out_of_the_vocabulary(data):
    rows = [row(data, [["the yak sat near one gnu"]], [["gnu yak sat"]])]
    whole = data.collate(rows)
    assert whole.oov_words == [["yak", "near", "one", "gnu"]]
    assert whole.target[0].tolist() == [V + 3, V, 6, STOP]
    data.lengths_now = (2, 3)
    cut = data.collate(rows)
    assert cut.oov_words == [["yak"]] and cut.source_extended.tolist() == [[4, V]]
    assert cut.target[0].tolist() == [UNK, V, 6], "a summary that is cut off has no end symbol"
    assert cut.target_lengths.tolist() == [3]


def test_lengths_stay_on_the_host(data):
    batch = data.collate([row(data, [["the cat"]], [["cat"]])])
    moved = batch.to("meta")
    assert moved.lengths.device.type == "cpu" and moved.source.device.type == "meta"
    assert moved.ids == batch.ids and batch.source.device.type == "cpu"


def test_impossible_lengths_are_named(tmp_path):
    with pytest.raises(ValueError, match="max_source must be at least 1 and max_target 2"):
        PointerGeneratorData(Texts([]), max_target=1, cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"data\.batch_size must be at least 1, got 0"):
        PointerGeneratorData(Texts([]), batch_size=0, cache_dir=tmp_path)
