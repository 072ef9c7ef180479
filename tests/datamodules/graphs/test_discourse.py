import random
from itertools import product

import numpy as np
import pytest

from datamodules.documents import Document
from datamodules.graphs import Discourse, ParagraphRule
from datamodules.graphs.cues import cues, deverbal
from datamodules.graphs.discourse import CUES
from tests.datamodules.graphs.made_up import assert_is_graph, paragraphs

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
        "Vorrick Ospreta expected a letter.", "As a result, the letter was lost.", "Nothing else.", "",
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


@pytest.mark.parametrize("cue, first, second, related", [
    ("marker", "Otters swim.", "However, herons wade.", True),
    ("marker", "Otters swim.", "Herons wade, however.", False),
    ("entity", "We saw Brisbet swim.", "A heron met Brisbet there.", True),
    ("entity", "We saw Ada Brisbet swim.", "A heron met Brisbet there.", True),
    ("entity", "We saw Brisbet swim.", "A heron met Tamsel there.", False),
    ("event", "The river flooded the mill.", "It was flooding everything.", True),
    ("event", "She said so.", "He said nothing.", False),
    ("deverbal", "The mayor resigned.", "Nobody expected the resignation.", True),
    ("deverbal", "Nobody expected the resignation.", "The mayor resigned.", False),  # behind its verb
    ("deverbal", "The mayor resigned.", "Nobody expected a resignation.", False),
    ("coreference", "An otter swims.", "She dives.", True),
    ("coreference", "An otter swims.", "The otter dives.", True),
    ("coreference", "The otter swims.", "An otter dives.", False),
])  # fmt: skip
def test_each_cue(cue, first, second, related):
    weights = Discourse([cue])(paragraphs(first, second))
    assert weights[0, 1] == weights[1, 0] == float(related)
