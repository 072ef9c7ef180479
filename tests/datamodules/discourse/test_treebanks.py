"""Treebanks in every format: files by hand, round trips, and what is wrong with a file in one line."""

import gzip
import json
import re
from dataclasses import replace

import pytest
from conftest import write, write_lines
from hypothesis import assume, given
from random_trees import documents, to_dependencies

from datamodules.discourse.formats import conllu, dis, rs3
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.treebanks import TreebankError, read_treebank
from datamodules.discourse.trees import SPAN, Node, Span, Tree
from datamodules.documents import UserError

SPANS = {"edus": [(0, 10), (11, 22), (23, 31)], "sentences": [(0, 22), (23, 31)], "paragraphs": [(0, 31)]}
RECORD = {"id": "doc", "genre": "news", "license": "CC BY 4.0", "text": "It rained, so we left. The end.", **SPANS}
RECORD["tree"] = ["NN", "list", ["SN", "cause", 0, 1], 2]
TREE = Tree.from_spans([Span(0, 1, 2, "NN", "list"), Span(0, 0, 1, "SN", "cause")], 3)
DOCUMENT = TreebankDocument("doc", RECORD["text"], **SPANS, tree=TREE, genre="news", licence="CC BY 4.0")


def jsonl(**changes: object) -> str:
    """A file whose second line is `RECORD` with changes."""
    return "\n" + json.dumps(RECORD | changes)


def test_records_of_json_and_folders_of_them(tmp_path):
    with pytest.raises(TreebankError, match="no such file"):
        read_treebank(tmp_path / "absent.dis")
    with pytest.raises(TreebankError, match="no treebank file in this folder"):
        read_treebank(tmp_path)
    assert read_treebank(write_lines(tmp_path / "a.jsonl", [RECORD, ""])) == [DOCUMENT]
    assert DOCUMENT.edu_texts == ["It rained,", "so we left.", "The end."]
    write_lines(tmp_path / "b.jsonl", [RECORD])
    with pytest.raises(TreebankError, match=r"b.jsonl: doc is in .*a.jsonl already"):
        read_treebank(tmp_path)
    path = write(tmp_path / "b.json", '{"id": "doc", "text": "a", "edus": [[0, 1]]}')
    assert read_treebank(path) == [TreebankDocument("doc", "a", [(0, 1)])]
    nary = RECORD | {"tree": ["NN", "list", 0, ["NN", "list", 1, 2]], "tree_nary": ["NN", "list", 0, 1, 2]}
    assert read_treebank(write_lines(tmp_path / "c.jsonl", [nary]))[0].tree.nested() == nary["tree_nary"]


def word(identifier: object, form: str, misc: str = "_") -> str:
    return "\t".join([str(identifier), form, *["_"] * 7, misc])


LINES = [
    "# newdoc id = first", "# global.Entity = GRP-etype", "# meta::genre = news", "# sent_id = first-1", "# newpar",
    "# newpar_block = head (1 s)",
    word(1, "Rain", "Discourse=organization-heading:1->3:1:grf-ly-1+sem-lxchn-1,4|SpaceAfter=No"), word(2, "!"), "",
    "# newpar",
    word(1, "She", "Discourse=attribution-positive:2->3:0|Entity=(1-person"), word(2, "said"),
    word("3-4", "didn't", "SpaceAfter=No"), word(3, "did", "Discourse=ROOT:3:0"), word(4, "n't"),
    word("4.1", "ghost"), word(5, ","), "",
    word(1, "and", "Discourse=joint-list_m:4->3:2:_;causal-cause:4->2:0:0:orp-1"), word(2, "snow"), "",
    "# newdoc id = second", word(1, "Alone", "Discourse=ROOT:1:0"), "",
]  # fmt: skip


def with_line(line: int, new: str) -> str:
    return "\n".join([*LINES[:line], new, *LINES[line + 1 :]])


def test_conllu_by_hand():
    first, second = conllu.read("\n".join(LINES), "gum.conllu")
    assert first.text == "Rain!\nShe said didn't, and snow"
    assert first.edu_texts == ["Rain!", "She said", "didn't,", "and snow"]
    assert [first.text[start:end] for start, end in first.sentences] == ["Rain!", "She said didn't,", "and snow"]
    assert [first.text[start:end] for start, end in first.paragraphs] == ["Rain!", "She said didn't, and snow"]
    assert (first.id, first.genre, second.id, second.genre) == ("first", "news", "second", "")
    heading = ["SN", "organization-heading", 0, ["SN", "attribution-positive", 1, 2]]
    assert first.tree.nested() == ["NN", "joint-list", heading, 3]
    assert second.text == "Alone" and second.tree == Tree(1)
    # a file without documents is one
    lines = [word(1, "So", "Discourse=joint-list_m:1->2:0"), word(2, "what", "Discourse=ROOT:2:0")]
    (document,) = conllu.read("\n".join(lines), "x/gum.conllu")
    assert document.id == "gum" and document.paragraphs == []


def write_conllu(document: TreebankDocument) -> str:
    """Return a document as CoNLL-U, in one sentence whose words are what stands between spaces."""
    words = []
    columns = zip(document.edus, *to_dependencies(document.tree), strict=True)
    for edu, ((start, end), head, relation, kind, depth) in enumerate(columns, 1):
        nucleus, target = "_m" if kind == "m" else "", f"->{head + 1}" if head >= 0 else ""
        forms = document.text[start:end].split()
        miscs = [f"Discourse={relation}{nucleus}:{edu}{target}:{depth}", *["_"] * (len(forms) - 1)]
        if document.text[end : end + 1].strip():
            miscs[-1] += "|SpaceAfter=No"
        words += zip(forms, miscs)
    lines = [word(place, form, misc) for place, (form, misc) in enumerate(words, 1)]
    return "\n".join([f"# newdoc id = {document.id}", *lines, ""])


@given(documents(most_edus=8, satellites=False))
def test_conllu_written_and_read(document):
    assume(set(document.text) - set("_ \n"))  # words that are all underscores are blanked out, which is an error
    (again,) = conllu.read(write_conllu(document), "x.conllu")
    assert replace(again, sentences=[]) == document


FOUR = """( Root (span 1 4)
  ( Satellite (leaf 1) (rel2par attribution) (text _!She said (twice)_!) )
  ( Nucleus (span 2 4) (rel2par span)
    ( Nucleus (leaf 2) (rel2par List) (text _!that it rained,<P>_!) )
    ( Nucleus (leaf 3) (rel2par List) (text _!that it
 snowed_!) )
    ( Nucleus (leaf 4) (rel2par List) (text _!and "that".<P>_!) )//TT_ERR left over )
  )
)
"""


def four(old: str, new: str) -> str:
    assert FOUR.count(old) == 1
    return FOUR.replace(old, new)


def test_dis_by_hand():
    (document,) = dis.read(FOUR, "wsj/wsj_0600.out.dis")
    assert document.id == "wsj_0600"
    assert document.edu_texts == ["She said (twice)", "that it rained,", "that it snowed", 'and "that".']
    attribution = Node((0, 1), 3, "SN", ("attribution", SPAN))
    assert document.tree.nodes == (attribution, Node((1, 2, 3), 3, "NNN", ("List",) * 3))
    paragraphs = [document.text[start:end] for start, end in document.paragraphs]
    assert paragraphs == ["She said (twice) that it rained,", 'that it snowed and "that".']
    # other layouts
    text = "(Root\n(span 1 2)(Nucleus(leaf 1)(rel2par Span)(text _!a_!))(Satellite(leaf 2)(rel2par x-e)(text _!b_!)))"
    assert dis.read(text, "a.dis")[0].tree.spans() == [Span(0, 0, 1, "NS", "x-e")]
    assert dis.read("( Root (leaf 1) (text _!alone_!) )", "a.dis")[0].tree == Tree(1)


HEADER = """<rst><header><relations>
  <rel name="elaboration" type="rst"/> <rel name="cause" type="rst"/>
  <rel name="restatement" type="rst"/> <rel name="restatement" type="multinuc"/>
  <rel name="list" type="multinuc"/><rel name="same-unit" type="multinuc"/>
</relations></header><body>
"""


def rst(*elements: str) -> str:
    return HEADER + "".join(elements) + "</body></rst>"


def read_rst(*elements: str) -> TreebankDocument:
    (document,) = rs3.read(rst(*elements), "folder/one.rs3")
    return document


def labels(*elements: str) -> list[tuple[str, str]]:
    """Nuclearity and relation of each span."""
    return [span[3:] for span in read_rst(*elements).tree.spans()]


def segment(number: int, parent: object = "", relation: str = "", text: str | None = None) -> str:
    link = f'parent="{parent}" relname="{relation}"' if parent != "" else ""
    return f'<segment id="{number}" {link}>{f"edu {number}" if text is None else text}</segment>\n'


def group(number: int, kind: str, parent: object = "", relation: str = "") -> str:
    link = f'parent="{parent}" relname="{relation}"' if parent != "" else ""
    return f'<group id="{number}" type="{kind}" {link}/>\n'


def test_satellites_on_a_segment_a_span_and_a_multinuclear_group():
    # ((1 <- 2) and 3) <- 4, and a satellite 5 on the span of it all
    document = read_rst(
        segment(1, 10, "span"), segment(2, 1, "elaboration"), segment(3, 11, "list"), segment(4, 11, "cause"),
        segment(5, 12, "elaboration", " of\n  <b>two</b>  lines &amp; marks "),
        group(10, "span", 11, "list"), group(11, "multinuc", 12, "span"), group(12, "span", 13, "span"),
        group(13, "span"),
    )  # fmt: skip
    spans = [(0, 3, 4, "NS", "elaboration"), (0, 2, 3, "NS", "cause")]
    spans += [(0, 1, 2, "NN", "list"), (0, 0, 1, "NS", "elaboration")]
    assert document.tree.spans() == [Span(*span) for span in spans]
    assert document.id == "one" and document.text == "edu 1 edu 2 edu 3 edu 4 of two lines & marks"


def test_several_satellites_of_one_nucleus_are_one_node_and_relations_are_of_both_kinds():
    tree = read_rst(segment(1, 2, "cause"), segment(2, 9, "span"), segment(3, 2, "elaboration"), group(9, "span")).tree
    assert tree.nodes == (Node((0, 1, 2), 2, "SNS", ("cause", SPAN, "elaboration")),)
    # a satellite on the root needs no group
    assert read_rst(segment(1), segment(2, 1, "cause")).tree.spans() == [Span(0, 0, 1, "NS", "cause")]
    # one EDU, and no header
    assert read_rst(segment(1)).tree == Tree(1)
    text = '<rst><body><segment id="a" parent="g" relname="joint">x</segment>'
    text += '<segment id="b" parent="g" relname="joint">y</segment><group id="g" type="multinuc"/></body></rst>'
    assert rs3.read(text, "x.rs4")[0].tree.spans() == [Span(0, 0, 1, "NN", "joint")]
    # a relation of both kinds
    nuclei = [segment(1, 9, "restatement"), segment(2, 9, "restatement"), segment(3, 9, "cause")]
    assert labels(*nuclei, group(9, "multinuc")) == [("NS", "cause"), ("NN", "restatement")]
    nuclei = [segment(1, 9, "list"), segment(2, 9, "list")]
    classes = labels(*nuclei, segment(3, 9, "restatement"), group(9, "multinuc"))
    assert classes == [("NS", "restatement"), ("NN", "list")]
    assert labels(segment(1, 9, "same-unit"), segment(2, 9, "list"), group(9, "multinuc")) == [("NN", "same-unit")]
    # a span group of multinuclear children is multinuclear
    classes = labels(*nuclei, segment(3, 9, "elaboration"), group(9, "span"))
    assert classes == [("NS", "elaboration"), ("NN", "list")]


TWO = segment(1, 9, "span") + segment(2, 1, "cause")


@pytest.mark.parametrize("name, text", [
    ("a.rs3", rst(TWO, group(9, "span"))), ("a.dis", FOUR), ("a.conllu", "\n".join(LINES)), ("a.jsonl", jsonl()),
])  # fmt: skip
def test_byte_order_marks_and_line_ends_of_windows_change_nothing(name, text, tmp_path):
    plain = read_treebank(write(tmp_path / name, text))
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert read_treebank(tmp_path / name) == plain


@pytest.mark.parametrize("name, content, said", [
    ("a.jsonl", jsonl(edus=[[0, 10], [9, 22], [23, 31]]), ":2: doc: edus[1] is characters 9 to 22, which overlaps"),
    ("a.jsonl", jsonl(edus=[[0, 10], [23, 31]]), "'so we left.' (characters 10 to 23) belongs to no EDU; one is"),
    ("a.jsonl", jsonl(edus=[[0, 10], [11, 22], [23, 40]]), "which is empty or outside the text of 31 characters"),
    ("a.jsonl", jsonl(edus=[[0, 10], [11, "22"]]), ":2: doc: `edus` is not a list of [start, end]"),
    ("a.jsonl", jsonl(edus=[]), ":2: doc: there is no EDU"),
    ("a.jsonl", jsonl(edus=[[0, 31]]), ":2: doc: the tree has 3 EDUs, the text has 1"),
    ("a.jsonl", jsonl(tree=["NN", "list", 0, 2]), ":2: doc: not a tree: EDU 2 where EDU 1"),
    ("a.jsonl", "{", ":1: not JSON"),
    ("a.jsonl", "\n", ": no document in it"),
    ("a.jsonl", "[]", ":1: not a document"),
    ("a.jsonl", "[" * 100_000, ":1: not JSON (nested too deeply)"),
    ("a.jsonl", b"\xff", "not UTF-8 at byte 0"),
    ("a.jsonl.gz", gzip.compress(b"{}" * 99, mtime=0)[:-9], "cannot be read"),
    ("a.txt", "text", "not a treebank; known are .jsonl"),
    ("gum.conllu", with_line(7, word(2, "!")[:-2]), ":8: 9 columns instead of 10"),
    ("gum.conllu", "\n".join([word(1, "So"), word(2, "a", "Discourse=ROOT:1:0")]),
     "'So' (characters 0 to 3) belongs to no EDU"),
    ("gum.conllu", with_line(6, word(1, "Rain", "Discourse=r")), ":7: 'Discourse=r' is not Discourse=relation"),
    ("gum.conllu", with_line(6, word(1, "Rain", "Discourse=heading:2->3:0")), ":7: EDU 2 where EDU 1 should begin"),
    ("gum.conllu", with_line(6, word(1, "Rain", "Discourse=heading:1->9:0")), ":7: first: the head 9 does not exist"),
    ("gum.conllu", with_line(6, word(1, "Rain", "Discourse=ROOT:1:0")), ":7: first: not a tree: 2 roots: EDUs 0, 2"),
    ("gum.conllu", with_line(22, word(1, "Alone")), "second: no word has Discourse="),
    ("gum.conllu", with_line(22, word(1, "_", "Discourse=ROOT:1:0")), "second: the words are blanked out"),
    ("x.dis", four("(leaf 3)", "(leaf 5)"), ": EDU 3 is missing"),
    ("x.dis", four("n 2 4", "n 2 5"), ":3: the children cover EDUs 2 to 4, but the span of the node is 2 to 5"),
    ("x.dis", four("(rel2par span)", "(rel2par cause)"), ":1: the only nucleus has the relation cause"),
    ("x.dis", four("( Nucleus (sp", "( Satellite (sp"), ": not a tree: the node over EDUs 0 to 3 has nuclearity"),
    ("x.dis", four("(text _!She said (twice)_!)", "(text _! <P> _!)"), ":2: an EDU without text"),
    ("x.dis", four("  )\n)\n", "  )\n))\n"), ":9: a closing bracket without an opening one"),
    ("x.dis", four("( Root", "( Root (leaf 9) (text _!a_!) ) ( Root"), "2 trees"),
    ("one.rs3", rst(segment(1), segment(2)), "2 roots: 1, 2"),
    ("one.rs3", rst(TWO, group(9, "span"), group(7, "span", 8, "x"), group(8, "span", 7, "span")), "7 is attached to"),
    ("one.rs3", rst(segment(1), segment(2, 5, "cause")), "2 is attached to 5, which does not exist"),
    ("one.rs3", rst(TWO, group(9, "span"), group(8, "span", 9, "cause")), "group 8 has no nucleus"),
    ("one.rs3", rst(TWO, segment(3, 9, "span"), group(9, "span")), "the span 9 has 2 nuclei"),
    ("one.rs3", rst(segment(1), segment(1)), "the id '1' of a segment is empty or taken"),
    ("one.rs3", rst(segment(1, 2, "cause"), segment(2, 4, "cause"), segment(3, 1, "cause"), segment(4)),
     "are not adjacent"),
    ("one.rs3", rst("<segment"), "not XML"),
])  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TreebankError, match=re.escape(said)) as caught:
        read_treebank(tmp_path / name)
    assert isinstance(caught.value, UserError)
    assert str(caught.value).startswith(str(tmp_path / name)) and "\n" not in str(caught.value)
