"""Batches of the pointer-generator, and the same dealt out to agents."""

from itertools import accumulate, combinations, product

import numpy as np
import pytest
import torch

from datamodules.communicating_agents import CommunicatingAgentsData, even_parts, paragraph_parts
from datamodules.corpora.texts import Texts
from datamodules.documents import Document
from datamodules.pointer_generator import PointerGeneratorData
from datamodules.text.vocabulary import PAD, START, STOP, UNK, Vocabulary
from datamodules.truncation import TRUNCATION

V = 12
TEXT = [["The zebra sat.", "A yak."], [" "], ["The cat"], [], ["near the gnu sat a yak"]]
WORDS = ["the", "zebra", "sat", ".", "a", "yak", ".", "the", "cat", "near", "the", "gnu", "sat", "a", "yak"]


def build(tmp_path, kind=CommunicatingAgentsData, **arguments):
    data = kind(Texts([]), vocab_size=V, cache_dir=tmp_path, **arguments)
    data.tokenizer = Vocabulary(["the", "cat", "sat", "."])
    return data


def row(data, parts, references=(), name="1"):
    document = Document(name, [list(part) for part in parts], [list(reference) for reference in references])
    return data.encode(document) | {"id": name, "references": document.references}


def read_back(data, batch, index):
    """The words of each agent."""
    parts = []
    for ids, length in zip(batch.source_extended[index], batch.lengths[index].tolist()):
        assert ids[length:].eq(PAD).all()
        parts.append(data.tokenizer.decode(ids[:length].tolist(), batch.oov_words[index], V))
    return parts


def test_even_parts_differ_by_one_and_paragraph_parts_cut_where_a_plain_search_would():
    for words, agents in product(range(1, 12), range(1, 6)):
        assert even_parts(words, agents) == [len(part) for part in np.array_split(range(words), min(words, agents))]
    documents = [3, 3, 3, 3], [10, 1, 1, 1], [1, 1, 1, 10], [5], [2, 7, 1, 4, 4, 2], [1, 1]
    for paragraphs, agents in product(documents, range(1, 6)):
        parts, ends = paragraph_parts(paragraphs, agents), [0, *accumulate(paragraphs)]
        cuts = [0, *accumulate(parts)]
        assert set(cuts) <= set(ends) and cuts[-1] == ends[-1] and min(parts) > 0
        assert len(parts) == min(agents, len(paragraphs))
        if agents == 2 and len(parts) == 2:  # one cut: every place for it can be tried
            assert abs(cuts[1] - ends[-1] / 2) == min(abs(end - ends[-1] / 2) for end in ends[1:-1])
    # the cuts of equal paragraphs are those that make the longest part as short as can be
    for agents in range(1, 5):
        ways = combinations(range(1, 8), agents - 1)
        longest = min(max(b - a for a, b in zip((0, *way), (*way, 8))) for way in ways)
        assert max(paragraph_parts([1] * 8, agents)) == longest


@pytest.mark.parametrize("agents", [1, 2, 3, 5, 20])
def test_an_even_split_deals_out_all_words_in_order(tmp_path, agents):
    data = build(tmp_path, agents=agents)
    batch = data.collate([row(data, TEXT), row(data, [["cat"]])])
    dealt = read_back(data, batch, 0)
    assert [word for part in dealt for word in part] == WORDS
    assert [len(part) for part in dealt] == even_parts(15, agents) + [0] * max(0, agents - 15)
    assert read_back(data, batch, 1) == [["cat"]] + [[]] * (agents - 1), "shorter than M parts: padding agents"
    assert batch.source.shape == (2, agents, max(len(part) for part in dealt))


def test_paragraphs_and_sentences_stay_whole_and_empty_ones_are_left_out(tmp_path):
    whole = [WORDS[:7], WORDS[7:9], WORDS[9:]]
    for parts in ([WORDS], [WORDS[:7], WORDS[7:]], whole, [*whole, []]):
        data = build(tmp_path, agents=len(parts), split="paragraphs")
        assert read_back(data, data.collate([row(data, TEXT)]), 0) == parts
    lengths = [4, 3, 2, 6]
    for agents in (1, 2, 3):
        data = build(tmp_path, agents=agents, split="sentences")
        encoded = row(data, TEXT)
        assert encoded["paragraphs"] == lengths
        by_paragraph = row(build(tmp_path, agents=agents), TEXT)
        assert encoded[TRUNCATION] == by_paragraph[TRUNCATION], "truncation counts paragraphs"
        dealt = read_back(data, data.collate([encoded]), 0)
        assert [word for part in dealt for word in part] == WORDS
        assert {sum(map(len, dealt[:agent])) for agent in range(agents)} <= {0, *accumulate(lengths)}


def test_ids_are_the_pointer_generator_s_over_one_vocabulary_of_the_document(tmp_path):
    data = build(tmp_path, agents=3, max_source=11, max_target=5)
    plain = build(tmp_path, PointerGeneratorData, max_source=11, max_target=5)
    documents = [(TEXT, [["the yak sat near a gnu"], ["unused"]], "a"), ([["Cat."]], [["the gnu"]], "b")]
    ours, theirs = (one.collate([row(one, *document) for document in documents]) for one in (data, plain))
    for name in ("target", "target_input", "target_lengths", "target_rows"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    assert (ours.oov_words, ours.ids, ours.references) == (theirs.oov_words, theirs.ids, theirs.references)
    for i, length in enumerate(theirs.lengths.tolist()):
        real = torch.arange(ours.source.shape[2]) < ours.lengths[i].unsqueeze(1)
        assert torch.equal(ours.source_extended[i][real], theirs.source_extended[i, :length])
        assert torch.equal(ours.source[i][real], theirs.source[i, :length])


def test_cutting_the_source_later_deals_it_out_again(tmp_path):
    for split, parts in (("even", [4, 4]), ("paragraphs", [7, 1])):
        data = build(tmp_path, agents=2, split=split)
        rows = [row(data, TEXT, [["zebra gnu"]])]
        assert data.collate(rows).target.tolist() == [[V, V + 4, STOP]]
        data.lengths_now = (8, 2)
        cut = data.collate(rows)
        assert cut.lengths.tolist() == [parts] and cut.oov_words == [["zebra", "a", "yak"]]
        assert cut.target.tolist() == [[V, UNK]]
        # a document without words is one unknown word
        for empty in ([[" "]], [], [[]]):
            batch = data.collate([row(data, empty)])
            assert batch.source.tolist() == [[[UNK], [PAD]]] and batch.lengths.tolist() == [[1, 0]]


def test_ids_equal_those_of_a_plain_loop_and_lengths_stay_on_the_host(tmp_path):
    data = build(tmp_path, PointerGeneratorData, max_source=8, max_target=5)
    first = row(data, [["The zebra sat."], ["A yak, the zebra"]], [["Zebra sat."], ["unused"]], "a")
    batch = data.collate([first, row(data, [["Cat."]], [["the gnu"]], "b")])
    words = [["the", "zebra", "sat", ".", "a", "yak", ",", "the"], ["cat", "."]]
    targets = [["zebra", "sat", "."], ["the", "gnu"]]
    vocabulary = data.tokenizer.words[4:]
    for i, (source, target) in enumerate(zip(words, targets)):
        oov_words = [word for word in dict.fromkeys(source) if word not in vocabulary]
        ids = {word: V + k for k, word in enumerate(oov_words)} | {word: 4 + k for k, word in enumerate(vocabulary)}
        expected = [ids[word] for word in source] + [PAD] * (8 - len(source))
        assert batch.source_extended[i].tolist() == expected and batch.oov_words[i] == oov_words
        assert batch.source[i].tolist() == [UNK if x >= V else x for x in expected]
        gold = [*(ids.get(word, UNK) for word in target), STOP]
        length = int(batch.target_lengths[i])
        assert batch.target[i, :length].tolist() == gold and batch.target[i, length:].eq(PAD).all()
        inputs = [START, *(UNK if x >= V else x for x in gold[:-1])]
        assert batch.target_input[i, :length].tolist() == inputs and batch.lengths[i] == len(source)
    assert batch.target.flatten()[batch.target_rows].ne(PAD).all()
    assert len(batch.target_rows) == batch.target_lengths.sum() == 7
    assert batch.references[0] == [["Zebra sat."], ["unused"]] and batch.ids == ["a", "b"]
    moved = batch.to("meta")
    assert moved.lengths.device.type == "cpu" and moved.source.device.type == "meta"
    assert moved.ids == batch.ids and batch.source.device.type == "cpu"


def test_impossible_lengths_are_named(tmp_path):
    with pytest.raises(ValueError, match="max_target must be at least 2, got 1"):
        build(tmp_path, max_target=1)
    for name in ("batch_size", "agents"):
        with pytest.raises(ValueError, match=rf"data\.{name} must be at least 1, got 0"):
            build(tmp_path, **{name: 0})
