"""Sentences and lines of a text, where sentences and paragraphs lie in it, and texts that are safe to print."""

import gzip
import json
import unicodedata
from unittest.mock import Mock

import pytest
import sentencex
from conftest import GUM, needs_gum
from hypothesis import given
from hypothesis import strategies as st

from datamodules.text.lines import counted, json_line, printable, printable_line, split_lines
from datamodules.text.offsets import paragraph_offsets, sentence_offsets
from datamodules.text.sentences import split_sentences


@pytest.mark.parametrize("sentences", [
    [],
    ["It rained.", "We stayed in."],
    ["Dr. Smith met Mrs. Jones at 3.15 p.m.", "They spoke."],
    ["Use torch.nn.Module and numpy._core.Array here.", "Then stop."],
    ['He asked "Why?"', "She left."],
])  # fmt: skip
def test_running_text(sentences):
    assert split_sentences(" \n\t " + "  ".join(sentences).replace("We ", "We\n")) == sentences


def test_tokenized_text_splits_at_stops_that_are_tokens():
    text = "`` we saw it , '' said l.l. doungal . '' nobody came ! why ? the u.s. army was there ."
    expected = ["`` we saw it , '' said l.l. doungal . ''", "nobody came !", "why ?", "the u.s. army was there ."]
    assert split_sentences(text) == expected and split_sentences(text, "tokenized") == expected
    assert split_sentences(text, "sentencex") != expected
    french = ["Le ministre a parlé.", "Que dira-t-il ?"]  # no tokens, but French marks
    assert split_sentences(" ".join(french), language="fr") == french
    for hindi in (["राम गया।", "वह आया ?", "सीता गई।"], ["राम गया ।", "वह आया ?"]):  # its stop
        assert split_sentences(" ".join(hindi), language="hi") == hindi
    for end in (". ''", ". )", "! '' -rrb-", "?"):  # closing marks are no sentence
        assert split_sentences(f"`` it rained {end} we stayed {end}") == [f"`` it rained {end}", f"we stayed {end}"]


@pytest.mark.parametrize("unit, sentences", [
    ("'\"“‘(", 1),  # quotes that nothing closes
    ("今天天气很好。", 1),  # stops without a space
    ("“It rained,” she said of `it`. ", 20_000),
])  # fmt: skip
def test_texts_that_sentencex_reads_in_quadratic_time_are_split_in_windows(unit, sentences, monkeypatch):
    segment = Mock(side_effect=sentencex.segment)
    monkeypatch.setattr(sentencex, "segment", segment)
    text = (unit * 20_000).strip()
    assert split_sentences(text) == ([text] if sentences == 1 else [unit.strip()] * sentences)
    lengths = [len(part) for (_, part), _ in segment.call_args_list]
    assert max(lengths) <= 2_000 and sum(lengths) <= 3 * len(text)
    segment.reset_mock()
    split_sentences("It rained, and we didn't go out; she said “no”. " * 1_000)
    assert segment.call_count == 1


@given(st.text(), st.sampled_from(["auto", "sentencex", "tokenized"]))
def test_nothing_is_lost_but_whitespace(text, splitter):
    sentences = split_sentences(text, splitter)
    assert "".join(" ".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == " ".join(sentence.split()) for sentence in sentences)


@needs_gum
def test_boundary_f1_and_paragraphs_of_gum():
    """The figure in experiments/results/sentence_splitting.md, computed here over whole sentences instead."""
    hits = found = gold = 0
    with gzip.open(GUM / "val.jsonl.gz", "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            text = record["text"]
            assert [list(span) for span in paragraph_offsets(text)] == record["paragraphs"]
            for start, end in record["paragraphs"]:
                inside = [text[a:b] for a, b in record["sentences"] if start <= a and b <= end]
                mine = split_sentences(text[start:end])
                hits, found, gold = hits + len(set(mine) & set(inside)), found + len(mine), gold + len(inside)
    assert 2 * hits / (found + gold) > 0.93


@given(st.text(st.sampled_from("ab. !?\n\u00a0\u200bé\u0301'\"A🧬\u3000"), max_size=50))
def test_sentences_are_what_the_splitter_says_and_cover_all_that_is_visible(text):
    spans = sentence_offsets(text)
    covered = [at for start, end in spans for at in range(start, end) if not text[at].isspace()]
    assert covered == [at for at, letter in enumerate(text) if not letter.isspace()]
    split = [sentence for a, b in paragraph_offsets(text) for sentence in split_sentences(text[a:b])]
    assert [" ".join(text[a:b].split()) for a, b in spans] == split


SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"


@given(st.text())
def test_a_record_is_one_line_for_every_reader(text):
    line = json_line({"id": text})
    assert json.loads(line) == {"id": text}
    assert len(line.splitlines()) == 1 and line.endswith("\n")


def test_only_feeds_and_returns_end_a_line_and_nouns_agree_with_their_numbers():
    assert split_lines(f"a{SEPARATORS}b\nc\r\nd\re\n\nf") == [f"a{SEPARATORS}b", "c", "d", "e", "", "f"]
    assert split_lines("a\n") == ["a"] and split_lines("") == []
    numbers = [counted(count, noun) for count, noun in ((0, "entry"), (1, "document"), (1200, "batch"))]
    assert numbers == ["0 entries", "1 document", "1,200 batches"]


def test_what_a_terminal_would_obey_is_shown():
    # an escape sequence, a title, an escape sequence that begins with one control character, and directions
    text = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J over\rwritten \x08\x7f \u202etxt.exe\u2028"
    expected = r"\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J over\rwritten \x08\x7f \u202etxt.exe\u2028"
    assert printable(text) == expected == printable_line(text)
    text = "Zürich – 東京 🧬 e\u0301"
    assert printable(text) == text == printable_line(text)


@given(st.text())
def test_no_control_character_is_left(text):
    assert not {unicodedata.category(character) for character in printable_line(text)} & {"Cc", "Zl", "Zp"}
