import json

from hypothesis import given
from hypothesis import strategies as st

from datamodules.text.lines import counted, json_line, split_lines

SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"


@given(st.text())
def test_a_record_is_one_line_for_every_reader(text):
    line = json_line({"id": text})
    assert json.loads(line) == {"id": text}
    assert len(line.splitlines()) == 1 and line.endswith("\n")


def test_only_feeds_and_returns_end_a_line():
    assert split_lines(f"a{SEPARATORS}b\nc\r\nd\re\n\nf") == [f"a{SEPARATORS}b", "c", "d", "e", "", "f"]
    assert split_lines("a\n") == ["a"] and split_lines("") == []


def test_nouns_agree_with_their_numbers():
    numbers = [counted(count, noun) for noun in ("document", "entry", "batch") for count in (0, 1, 1200)]
    assert numbers == [
        "0 documents", "1 document", "1,200 documents", "0 entries", "1 entry", "1,200 entries", "0 batches", "1 batch",
        "1,200 batches",
    ]  # fmt: skip
