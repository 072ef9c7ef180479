import re

import pytest

from datamodules.discourse.formats import rs3
from datamodules.discourse.records import TreebankDocument, TreebankError
from datamodules.discourse.trees import SPAN, Node, Span, Tree

HEADER = """<rst><header><relations>
  <rel name="elaboration" type="rst"/> <rel name="cause" type="rst"/>
  <rel name="restatement" type="rst"/> <rel name="restatement" type="multinuc"/>
  <rel name="list" type="multinuc"/>
</relations></header><body>
"""
END = "</body></rst>"


def read(body: str, name: str = "folder/one.rs3") -> TreebankDocument:
    (document,) = rs3.read(HEADER + body + END, name)
    return document


def segment(number: int, parent: object = "", relation: str = "", text: str | None = None) -> str:
    link = f'parent="{parent}" relname="{relation}"' if parent != "" else ""
    return f'<segment id="{number}" {link}>{f"edu {number}" if text is None else text}</segment>\n'


def group(number: int, kind: str, parent: object = "", relation: str = "") -> str:
    link = f'parent="{parent}" relname="{relation}"' if parent != "" else ""
    return f'<group id="{number}" type="{kind}" {link}/>\n'


def test_satellites_on_a_segment_a_span_and_a_multinuclear_group():
    # ((1 <- 2) and 3) <- 4, and a satellite 5 on the span of it all
    body = (
        segment(1, 10, "span")
        + segment(2, 1, "elaboration")
        + segment(3, 11, "list")
        + segment(4, 11, "cause")
        + segment(5, 12, "elaboration", " of\n  <b>two</b>  lines &amp; marks ")
        + group(10, "span", 11, "list")
        + group(11, "multinuc", 12, "span")
        + group(12, "span", 13, "span")
        + group(13, "span")
    )
    document = read(body)
    assert document.tree.spans() == [
        Span(0, 3, 4, "NS", "elaboration"),
        Span(0, 2, 3, "NS", "cause"),
        Span(0, 1, 2, "NN", "list"),
        Span(0, 0, 1, "NS", "elaboration"),
    ]
    assert document.id == "one"
    assert document.edu_texts[-1] == "of two lines & marks"
    assert document.text == "edu 1 edu 2 edu 3 edu 4 of two lines & marks"


def test_several_satellites_of_one_nucleus_are_one_node():
    body = segment(1, 2, "cause") + segment(2, 9, "span") + segment(3, 2, "elaboration") + group(9, "span")
    assert read(body).tree.nodes == (Node((0, 1, 2), 2, "SNS", ("cause", SPAN, "elaboration")),)
    # a satellite on the root needs no group
    assert read(segment(1) + segment(2, 1, "cause")).tree.spans() == [Span(0, 0, 1, "NS", "cause")]
    # one EDU, and no header
    assert read(segment(1)).tree == Tree(1)
    text = '<rst><body><segment id="a" parent="g" relname="joint">x</segment>'
    text += '<segment id="b" parent="g" relname="joint">y</segment><group id="g" type="multinuc"/></body></rst>'
    assert rs3.read(text, "x.rs4")[0].tree.spans() == [Span(0, 0, 1, "NN", "joint")]


def test_a_relation_of_both_kinds():
    nuclei = segment(1, 9, "restatement") + segment(2, 9, "restatement") + segment(3, 9, "cause") + group(9, "multinuc")
    assert [span.nuclearity for span in read(nuclei).tree.spans()] == ["NS", "NN"]
    satellite = segment(1, 9, "list") + segment(2, 9, "list") + segment(3, 9, "restatement") + group(9, "multinuc")
    assert [span[3:] for span in read(satellite).tree.spans()] == [("NS", "restatement"), ("NN", "list")]
    # a span group of multinuclear children is multinuclear
    body = segment(1, 9, "list") + segment(2, 9, "list") + segment(3, 9, "elaboration") + group(9, "span")
    assert [span[3:] for span in read(body).tree.spans()] == [("NS", "elaboration"), ("NN", "list")]


TWO = segment(1, 9, "span") + segment(2, 1, "cause")


@pytest.mark.parametrize("body, said", [
    (segment(1) + segment(2), "2 roots: 1, 2"),
    (segment(1, 9, "span") + group(9, "span", 1, "cause"), "0 roots"),
    (TWO + group(9, "span") + group(7, "span", 8, "cause") + group(8, "span", 7, "span"), "7 is attached to"),
    (segment(1) + segment(2, 5, "cause"), "2 is attached to 5, which does not exist"),
    (TWO + group(9, "span") + group(8, "span", 9, "cause"), "group 8 has no nucleus"),
    (TWO + segment(3, 9, "span") + group(9, "span"), "the span 9 has 2 nuclei"),
    (segment(1) + segment(1), "the id '1' of a segment is empty or taken"),
    (segment(1) + segment(2, 1, "cause", " \u200b"), "segment 2 has no text"),
    (segment(1, 2, "cause") + segment(2, 4, "cause") + segment(3, 1, "cause") + segment(4), "are not adjacent"),
    ("", "no segment"),
    ("<segment", "not XML"),
])  # fmt: skip
def test_invalid_trees_are_refused(body, said):
    with pytest.raises(TreebankError, match=re.escape(said)) as caught:
        read(body)
    assert str(caught.value).startswith("folder/one.rs3: ") and "\n" not in str(caught.value)
