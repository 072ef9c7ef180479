import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.text.sentences import split_sentences

GUM = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "gum"


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        (" \n\t ", []),
        ("One", ["One"]),
        ("It rained.  We\nstayed in. ", ["It rained.", "We stayed in."]),
        ("Dr. Smith met Mrs. Jones at 3.15 p.m. They spoke.", None),
        ("Use torch.nn.Module and numpy._core.Array here. Then stop.", None),
        ('He asked "Why?" She left.', ['He asked "Why?"', "She left."]),
    ],
)
def test_running_text(text, sentences):
    found = split_sentences(text)
    if sentences is None:  # the abbreviations and names hold no boundary but the last
        assert len(found) == 2 and found[0].split() + found[1].split() == text.split()
    else:
        assert found == sentences


def test_tokenized_text_splits_at_stops_that_are_tokens():
    text = "`` we saw it , '' said l.l. doungal . '' nobody came ! why ? the u.s. army was there ."
    expected = ["`` we saw it , '' said l.l. doungal . ''", "nobody came !", "why ?", "the u.s. army was there ."]
    assert split_sentences(text) == expected
    assert split_sentences(text, "tokenized") == expected
    assert split_sentences(text, "sentencex") != expected


def test_a_stray_stop_does_not_make_text_tokenized():
    text = "We went home. They stayed . We came back. All was well. Nobody spoke."
    assert split_sentences(text) == split_sentences(text, "sentencex")


def test_unknown_splitter_is_named():
    with pytest.raises(ValueError, match=r"'punkt'.*sentencex"):
        split_sentences("a b", "punkt")


@given(st.text(), st.sampled_from(["auto", "sentencex", "tokenized"]))
def test_nothing_is_lost_but_whitespace(text, splitter):
    sentences = split_sentences(text, splitter)
    assert "".join(" ".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == " ".join(sentence.split()) for sentence in sentences)


@pytest.mark.skipif(not GUM.is_dir(), reason="needs the GUM data in ../shared/data")
def test_boundary_f1_on_gum():
    """The figure in experiments/results/sentence_splitting.md, computed here over whole sentences instead."""
    hits = found = gold = 0
    with gzip.open(GUM / "val.jsonl.gz", "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            text = record["text"]
            for start, end in record["paragraphs"]:
                inside = [text[a:b] for a, b in record["sentences"] if start <= a and b <= end]
                mine = split_sentences(text[start:end])
                hits, found, gold = hits + len(set(mine) & set(inside)), found + len(mine), gold + len(inside)
    assert 2 * hits / (found + gold) > 0.93
