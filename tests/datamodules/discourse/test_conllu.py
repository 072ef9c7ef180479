import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from random_trees import documents

from datamodules.discourse.formats import conllu
from datamodules.discourse.records import TreebankDocument, TreebankError
from datamodules.discourse.treebanks import read_treebank
from datamodules.discourse.trees import Tree
from tests.datamodules.discourse.treebank_writers import write_conllu

GUM = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "gum"


def word(identifier: object, form: str, misc: str = "_") -> str:
    return "\t".join([str(identifier), form, *["_"] * 7, misc])


LINES = [
    "# newdoc id = first",
    "# global.Entity = GRP-etype",
    "# meta::genre = news",
    "# sent_id = first-1",
    "# newpar",
    "# newpar_block = head (1 s)",
    word(1, "Rain", "Discourse=organization-heading:1->3:1:grf-ly-1+sem-lxchn-1,4|SpaceAfter=No"),
    word(2, "!"),
    "",
    "# newpar",
    word(1, "She", "Discourse=attribution-positive:2->3:0|Entity=(1-person"),
    word(2, "said"),
    word("3-4", "didn't", "SpaceAfter=No"),
    word(3, "did", "Discourse=ROOT:3:0"),
    word(4, "n't"),
    word("4.1", "ghost"),
    word(5, ","),
    "",
    word(1, "and", "Discourse=joint-list_m:4->3:2:_;causal-cause:4->2:0:0:orp-1"),
    word(2, "snow"),
    "",
    "# newdoc id = second",
    word(1, "Alone", "Discourse=ROOT:1:0"),
    "",
]


def read(lines: list[str]) -> list[TreebankDocument]:
    return conllu.read("\n".join(lines), "x/gum.conllu")


def test_a_file_by_hand():
    first, second = read(LINES)
    assert first.text == "Rain!\nShe said didn't, and snow"
    assert first.edu_texts == ["Rain!", "She said", "didn't,", "and snow"]
    assert [first.text[start:end] for start, end in first.sentences] == ["Rain!", "She said didn't,", "and snow"]
    assert [first.text[start:end] for start, end in first.paragraphs] == ["Rain!", "She said didn't, and snow"]
    assert (first.id, first.genre, second.id, second.genre) == ("first", "news", "second", "")
    heading = ["SN", "organization-heading", 0, ["SN", "attribution-positive", 1, 2]]
    assert first.tree.nested() == ["NN", "joint-list", heading, 3]
    assert second.text == "Alone" and second.tree == Tree(1)
    assert read(write_conllu([first, second]).split("\n")) == [first, second]


def test_a_file_without_documents_is_one():
    (document,) = read([word(1, "So", "Discourse=joint-list_m:1->2:0"), word(2, "what", "Discourse=ROOT:2:0")])
    assert document.id == "gum" and document.paragraphs == []
    with pytest.raises(TreebankError, match=r"'Well' .* belongs to no EDU"):
        read([word(1, "Well"), word(2, "no", "Discourse=ROOT:1:0"), ""])


@given(documents(most_edus=8, satellites=False))
def test_written_and_read(document):
    assume(set(document.text) - set("_ \n"))  # words that are all underscores are blanked out, which is an error
    # words are parted by spaces in the text already; without sentences it is written as one
    (again,) = conllu.read(write_conllu([document]), "x.conllu")
    assert replace(again, sentences=[]) == document


@pytest.mark.parametrize("line, new, said", [
    (7, word(2, "!")[:-2], ":8: 9 columns instead of 10"),
    (7, word("2-b", "!"), ":8: '2-b' is not the number of a word"),
    (6, word(1, "Rain", "Discourse=heading"), ":7: 'Discourse=heading' is not Discourse=relation"),
    (6, word(1, "Rain", "Discourse=heading:2->3:0"), ":7: EDU 2 where EDU 1 should begin"),
    (6, word(1, "Rain", "Discourse=heading:1->3"), "has no depth"),
    (6, word(1, "Rain", "Discourse=heading:1->9:0"), ":7: first: the head 9 does not exist"),
    (6, word(1, "Rain", "Discourse=ROOT:1:0"), ":7: first: not a tree: 2 roots: EDUs 0, 2"),
    (13, word(3, "did", "Discourse=cause:3->2:0"), "0 roots"),
    (22, word(1, "Alone"), "second: no word has Discourse="),
    (22, word(1, "_", "Discourse=ROOT:1:0"), "second: the words are blanked out"),
    (22, "", "second has no words"),
])  # fmt: skip
def test_what_cannot_be_read(line, new, said):
    lines = [*LINES[:line], new, *LINES[line + 1 :]]
    with pytest.raises(TreebankError, match=re.escape(said)) as caught:
        read(lines)
    assert str(caught.value).startswith("x/gum.conllu:") and "\n" not in str(caught.value)


@pytest.mark.skipif(not GUM.is_dir(), reason="needs the GUM data in ../shared/data")
def test_gum_written_and_read():
    given = [replace(document, licence="") for document in read_treebank(GUM / "val.jsonl.gz")]
    assert conllu.read(write_conllu(given), "gum.conllu") == given
