import pytest

from datamodules.graphs.cues import cues, deverbal, verb_of

CASED = [
    "Marie Curie measured the old mill in New Tolland.",
    "However, she left the town.",
    "Later, on Friday, Curie’s team wrote a short letter to the mayor.",
    "As a result the measurement was repeated, and nobody slept.",
    "Nobody from New Tolland said anything about the wounded heron.",
]


def test_cues_of_text_with_capitals():
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


def test_cues_of_other_texts():
    found = cues(["the new delhi police arrested him .", "he was in new delhi , police said .", "this pleased them ."])
    assert "new delhi" in found[0].entities & found[1].entities
    assert not any("said" in name or "arrested" in name for cue in found for name in cue.entities)
    assert [cue.pronoun for cue in found] == [False, True, True]
    # sentences without words
    assert all(not (cue.marker or cue.pronoun or cue.entities or cue.verbs) for cue in cues(["", "...", "— 12 —"]))
    assert cues([]) == []
    # the first word of a sentence is a name if it is one elsewhere
    first, second, third = cues(["Heavy rain fell.", "Brisbet swam to the mill.", "We saw Brisbet there."])
    assert first.entities == set() and second.entities == third.entities == {"brisbet"}


@pytest.mark.parametrize("before, word, expected", [
    ("they", "attacked", "attack"),
    ("will", "resign", "resign"),
    ("he", "won", "win"),
    ("the", "wounded", None),  # describes a noun
    ("she", "said", None),  # in every other sentence of news
    ("a", "morning", None),
    ("to", "the", None),
    ("", "Opening", "open"),
    ("red", "bed", None),
])  # fmt: skip
def test_verbs(before, word, expected):
    assert verb_of(before, word) == expected


@pytest.mark.parametrize("noun, verb, expected", [
    ("resignation", "resigned", True),
    ("decision", "decided", True),
    ("explosion", "exploded", True),
    ("arrival", "arrived", True),
    ("killing", "killed", True),
    ("party", "parted", False),
    ("woman", "won", False),
    ("nation", "named", False),
])  # fmt: skip
def test_nouns_made_of_verbs(noun, verb, expected):
    assert deverbal(noun, verb_of("they", verb)) is expected
