"""Paragraphs, the cues in them, and graphs of the cues."""

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.documents import Document
from datamodules.graphs import Discourse, ParagraphRule
from datamodules.graphs.cues import cues, deverbal, verb_of
from datamodules.graphs.discourse import CUES
from tests.datamodules.graphs.made_up import assert_is_graph

SOURCES = ParagraphRule(parts="sources")


def by_hand(found, use):
    """Return the number of relations between paragraphs, by a loop over pairs of sentences and cues."""
    listed = [(place, s) for place, text in enumerate(found.texts) for s in range(len(text))]
    marks = cues([found.texts[place][s] for place, s in listed])
    counts = np.zeros((len(found), len(found)))
    for (a, (i, s)), (b, (j, t)) in product(enumerate(listed), repeat=2):
        if not (a < b and i != j):
            continue
        one, other = marks[a], marks[b]
        same = not found.separate or found.parts[i] == found.parts[j]
        next_to = j == i + 1 and t == 0 and s == len(found.texts[i]) - 1 and found.follows(j)
        made = any(deverbal(noun, verb) for noun in other.definite for verb in one.verbs)
        back = any(deverbal(noun, verb) for noun in one.definite for verb in other.verbs)
        relations = {
            "marker": next_to and other.marker,
            "entity": bool(one.entities & other.entities),
            "event": bool(one.verbs & other.verbs),
            "deverbal": made or (back and not same),
            "coreference": (next_to and other.pronoun) or (same and bool(other.definite & one.indefinite)),
        }
        counts[i, j] += sum(relations[name] for name in use)
        counts[j, i] = counts[i, j]
    return counts


def story(seed):
    rng = random.Random(seed)
    lines = [
        "However, it attacked the mill.", "The attack surprised Quillon.", "A stranger came to see Brisbet.",
        "The stranger resigned later.", "This resignation was expected.", "They attacked again.",
        "He would bid.", "These bids rose.", "Vorrick Ospreta expected a letter.",
        "As a result, the letter was lost.", "Nothing else.", "",
    ]  # fmt: skip
    return Document("s", [[rng.choice(lines) for _ in range(rng.randrange(4))] for _ in range(rng.randrange(1, 8))])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", [ParagraphRule(), SOURCES, ParagraphRule(4, 1, "sources", "spread")])
def test_relations_equal_those_found_pair_by_pair(seed, rule):
    found = rule(story(seed))
    for use in (CUES, *([name] for name in CUES)):
        graph = Discourse(use)
        related = graph.relations(found)
        np.fill_diagonal(related, 0)
        expected = by_hand(found, use)
        np.testing.assert_array_equal(related, expected)
        weights = graph(found)
        assert_is_graph(weights, len(found), symmetric=False)
        for i, row in enumerate(expected):
            shares = [value / row.sum() if row.sum() else 0 for value in row]
            np.testing.assert_allclose(np.delete(weights[i], i), np.delete(shares, i), atol=1e-6)


CASED = """Marie Curie measured the old mill in New Tolland.
However, she left the town.
Later, on Friday, Curie’s team wrote a short letter to the mayor.
As a result the measurement was repeated, and nobody slept.
Nobody from New Tolland said anything about the wounded heron.""".splitlines()


def test_cues_of_sentences():
    found = cues(CASED)
    assert [cue.marker for cue in found] == [False, True, True, True, False]
    assert [cue.pronoun for cue in found] == [False, True, False, False, False]
    names = [set(cue.entities) for cue in found]
    assert names[0] == {"marie curie", "curie", "new tolland", "tolland"}
    assert names[1] == set() and {"friday", "curie"} <= names[2] and "later" not in names[2]
    assert names[4] == {"new tolland", "tolland"}
    assert [set(cue.verbs) for cue in found] == [{"measur"}, {"leav"}, {"write"}, {"repeat", "sleep"}, set()]
    assert [set(cue.definite) for cue in found] == [{"mill"}, {"town"}, {"mayor"}, {"measurement"}, {"heron"}]
    assert [set(cue.indefinite) for cue in found] == [set(), set(), {"letter"}, set(), set()]
    # text without capitals
    found = cues(["the new delhi police arrested him .", "he was in new delhi , police said .", "this pleased them ."])
    assert "new delhi" in found[0].entities & found[1].entities
    assert not any("said" in name or "arrested" in name for cue in found for name in cue.entities)
    assert [cue.pronoun for cue in found] == [False, True, True]
    # sentences without words
    assert all(not (cue.marker or cue.pronoun or cue.entities or cue.verbs) for cue in cues(["", "...", "— 12 —"]))
    assert cues([]) == [] and not cues(["Herons wade, however."])[0].marker
    # the first word of a sentence is a name if it is one elsewhere
    first, second, third = cues(["Heavy rain fell.", "Brisbet swam to the mill.", "We saw Brisbet there."])
    assert first.entities == set() and second.entities == third.entities == {"brisbet"}


def test_verbs_and_nouns_made_of_them():
    for text, verb in {
        "they attacked": "attack", "will resign": "resign", "he won": "win", " Opening": "open",
        "the wounded": None,  # describes a noun
        "she said": None,  # in every other sentence of news
        "a morning": None, "to the": None, "red bed": None, "was flooding": "flood", "river flooded": "flood",
    }.items():  # fmt: skip
        assert verb_of(*text.split(" ")) == verb, text
    made = "resignation resigned, decision decided, explosion exploded, arrival arrived, killing killed"
    for pair in made.split(", "):
        noun, verb = pair.split()
        assert deverbal(noun, verb_of("they", verb)) is True, pair
    for noun, verb in (("party", "parted"), ("woman", "won"), ("nation", "named")):
        assert deverbal(noun, verb_of("they", verb)) is False, noun


DOCUMENT = Document("a", [["1", "2", "3", "4", "5"], [], ["6"], ["  ", ""], ["7", "8", "9"]])


def test_parts_are_paragraphs_that_may_continue_in_the_next_and_those_without_words_are_passed_over_and_counted():
    found = ParagraphRule()(DOCUMENT)
    assert found.texts == [["1", "2", "3", "4", "5"], ["6"], ["7", "8", "9"]]
    assert found.spans == [(0, 5), (5, 6), (8, 11)] and found.parts == [0, 2, 4]
    assert (found.total, found.dropped, found.empty, len(found), found.id) == (3, 0, 2, 3, "a")
    # groups of sentences stay within a part
    found = ParagraphRule(sentences=2)(DOCUMENT)
    assert found.texts == [["1", "2"], ["3", "4"], ["5"], ["6"], ["7", "8"], ["9"]]
    assert found.parts == [0, 0, 0, 2, 4, 4]
    # of too many some are kept by the rule
    for keep, expected in {
        "first": [["1", "2"], ["3", "4"], ["5"], ["6"]],
        "turns": [["1", "2"], ["3", "4"], ["6"], ["7", "8"]],  # one of each part, then the first part's second
        "spread": [["1", "2"], ["5"], ["6"], ["9"]],  # places 0, 5/3, 10/3, 5
    }.items():
        found = ParagraphRule(max_paragraphs=4, sentences=2, keep=keep)(DOCUMENT)
        assert found.texts == expected and (found.total, found.dropped) == (6, 2)
    # what continues in the next paragraph
    for settings, expected in (
        ({}, [False, True, True, True, False, True]),  # blank lines before 7
        ({"parts": "sources"}, [False, True, True, False, False, True]),
        ({"max_paragraphs": 4, "keep": "spread"}, [False, False, True, False]),
    ):
        found = ParagraphRule(sentences=2, **settings)(DOCUMENT)
        assert [found.follows(place) for place in range(len(found))] == expected
    # a document without words has one paragraph without sentences
    for parts in ([], [[]], [[""], ["  "]]):
        empty = ParagraphRule(sentences=3)(Document("empty", parts))
        assert empty.texts == [[]] and (len(empty), empty.total, empty.dropped, empty.empty) == (1, 0, 0, len(parts))


documents = st.lists(st.lists(st.sampled_from(["one", "two", " "]), max_size=7), max_size=7)
choices = (["paragraphs", "sources"], ["first", "turns", "spread"])
rules = st.builds(ParagraphRule, st.integers(1, 9), st.none() | st.integers(1, 4), *map(st.sampled_from, choices))


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
