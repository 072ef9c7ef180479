import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.documents import Document
from datamodules.graphs import ParagraphRule

DOCUMENT = Document("a", [["1", "2", "3", "4", "5"], [], ["6"], ["  ", ""], ["7", "8", "9"]])


def test_parts_are_paragraphs_and_those_without_words_are_passed_over_and_counted():
    found = ParagraphRule()(DOCUMENT)
    assert found.texts == [["1", "2", "3", "4", "5"], ["6"], ["7", "8", "9"]]
    assert found.spans == [(0, 5), (5, 6), (8, 11)] and found.parts == [0, 2, 4]
    assert (found.total, found.dropped, found.empty, len(found), found.id) == (3, 0, 2, 3, "a")
    # groups of sentences stay within a part
    found = ParagraphRule(sentences=2)(DOCUMENT)
    assert found.texts == [["1", "2"], ["3", "4"], ["5"], ["6"], ["7", "8"], ["9"]]
    assert found.parts == [0, 0, 0, 2, 4, 4]


@pytest.mark.parametrize("keep, expected", [
    ("first", [["1", "2"], ["3", "4"], ["5"], ["6"]]),
    ("turns", [["1", "2"], ["3", "4"], ["6"], ["7", "8"]]),  # one of each part, then the first part's second
    ("spread", [["1", "2"], ["5"], ["6"], ["9"]]),  # places 0, 5/3, 10/3, 5
])  # fmt: skip
def test_of_too_many_some_are_kept_by_the_rule(keep, expected):
    found = ParagraphRule(max_paragraphs=4, sentences=2, keep=keep)(DOCUMENT)
    assert found.texts == expected and (found.total, found.dropped) == (6, 2)


def test_what_continues_in_the_next_paragraph():
    whole = ParagraphRule(sentences=2)(DOCUMENT)
    # blank lines before 7
    assert [whole.follows(place) for place in range(6)] == [False, True, True, True, False, True]
    sources = ParagraphRule(sentences=2, parts="sources")(DOCUMENT)
    assert [sources.follows(place) for place in range(6)] == [False, True, True, False, False, True]
    spread = ParagraphRule(max_paragraphs=4, sentences=2, keep="spread")(DOCUMENT)
    assert [spread.follows(place) for place in range(4)] == [False, False, True, False]
    # a document without words has one paragraph without sentences
    for parts in ([], [[]], [[""], ["  "]]):
        empty = ParagraphRule(sentences=3)(Document("empty", parts))
        assert empty.texts == [[]] and (len(empty), empty.total, empty.dropped, empty.empty) == (1, 0, 0, len(parts))


documents = st.lists(st.lists(st.sampled_from(["one", "two", " "]), max_size=7), max_size=7)
rules = st.builds(
    ParagraphRule,
    max_paragraphs=st.integers(1, 9),
    sentences=st.none() | st.integers(1, 4),
    parts=st.sampled_from(["paragraphs", "sources"]),
    keep=st.sampled_from(["first", "turns", "spread"]),
)


@given(documents, rules)
def test_any_document_by_any_rule(parts, rule):
    document = Document("a", parts)
    found = rule(document)
    everything = ParagraphRule(10_000, rule.sentences, rule.parts)(document)
    assert 1 <= len(found) <= rule.max_paragraphs and len(found) + found.dropped == max(1, found.total)
    assert found.spans == sorted(set(found.spans)) and set(found.spans) <= set(everything.spans)
    assert found.texts == [document.sentences[start:end] for start, end in found.spans]
    assert len(found) == min(rule.max_paragraphs, len(everything))
    if rule.keep == "turns" and len(found) < len(everything):
        counts = {part: found.parts.count(part) for part in everything.parts}
        for part, kept in counts.items():  # no part has two more than another that has some left
            if kept < everything.parts.count(part):
                assert max(counts.values()) <= kept + 1
    if rule.keep == "spread" and rule.max_paragraphs > 1:
        assert (found.spans[0], found.spans[-1]) == (everything.spans[0], everything.spans[-1])


@pytest.mark.parametrize("arguments, message", [
    ({"max_paragraphs": 0}, "max_paragraphs must be at least 1, got 0"),
    ({"sentences": 0}, "sentences must be at least 1, got 0"),
    ({"keep": "best"}, "keep 'best' is not one of first, turns, spread"),
    ({"parts": "chapters"}, "parts 'chapters' is not one of paragraphs, sources"),
])  # fmt: skip
def test_rules_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ParagraphRule(**arguments)
