import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.text.offsets import paragraph_offsets, sentence_offsets
from datamodules.text.sentences import split_sentences

GUM = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "gum"


def test_paragraphs_are_lines():
    text = " A title \n\n\tOne.  Two.\n"
    assert [text[a:b] for a, b in paragraph_offsets(text)] == ["A title", "One.  Two."]


def test_sentences_of_each_paragraph():
    text = "A title\nDr. Rai left.  He  came\tback!\nEnd"
    spans = sentence_offsets(text)
    assert [text[a:b] for a, b in spans] == ["A title", "Dr. Rai left.", "He  came\tback!", "End"]
    assert sentence_offsets(text, [(8, 21)]) == [(8, 21)]


@given(st.text(st.sampled_from("ab. !?\n\u00a0\u200bé\u0301'\"A🧬\u3000"), max_size=50))
def test_sentences_are_what_the_splitter_says_and_cover_all_that_is_visible(text):
    spans = sentence_offsets(text)
    covered = [at for start, end in spans for at in range(start, end) if not text[at].isspace()]
    assert covered == [at for at, letter in enumerate(text) if not letter.isspace()]
    split = [sentence for a, b in paragraph_offsets(text) for sentence in split_sentences(text[a:b])]
    assert [" ".join(text[a:b].split()) for a, b in spans] == split


@pytest.mark.skipif(not GUM.is_dir(), reason="needs the GUM data in ../shared/data")
def test_paragraphs_of_gum_are_found_exactly():
    with gzip.open(GUM / "val.jsonl.gz", "rt", encoding="utf-8") as file:
        for record in map(json.loads, file):
            assert [list(span) for span in paragraph_offsets(record["text"])] == record["paragraphs"]
