import re

import pytest

from datamodules.discourse.formats import dis
from datamodules.discourse.records import TreebankError
from datamodules.discourse.trees import SPAN, Node, Span, Tree

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


def test_a_file_by_hand():
    (document,) = dis.read(FOUR, "wsj/wsj_0600.out.dis")
    assert document.id == "wsj_0600"
    assert document.edu_texts == ["She said (twice)", "that it rained,", "that it snowed", 'and "that".']
    assert document.tree.nodes == (
        Node((0, 1), 3, "SN", ("attribution", SPAN)),
        Node((1, 2, 3), 3, "NNN", ("List",) * 3),
    )
    assert [document.text[start:end] for start, end in document.paragraphs] == [
        "She said (twice) that it rained,",
        'that it snowed and "that".',
    ]
    # other layouts
    text = "(Root\n(span 1 2)(Nucleus(leaf 1)(rel2par Span)(text _!a_!))(Satellite(leaf 2)(rel2par x-e)(text _!b_!)))"
    assert dis.read(text, "a.dis")[0].tree.spans() == [Span(0, 0, 1, "NS", "x-e")]
    assert dis.read("( Root (leaf 1) (text _!alone_!) )", "a.dis")[0].tree == Tree(1)


@pytest.mark.parametrize("old, new, said", [
    ("(leaf 3)", "(leaf 5)", ": EDU 3 is missing"),
    ("(leaf 3)", "(leaf 2)", ": EDU 2 occurs twice"),
    ("(span 2 4)", "(span 2 5)", ":3: the children cover EDUs 2 to 4, but the span of the node is 2 to 5"),
    ("(rel2par attribution)", "", ":2: a satellite inside another node without (rel2par ...)"),
    ("(rel2par span)", "(rel2par cause)", ":1: the only nucleus has the relation cause"),
    ("( Nucleus (span 2 4)", "( Satellite (span 2 4)", ": not a tree: the node over EDUs 0 to 3 has nuclearity"),
    ("(text _!She said (twice)_!)", "(text _! <P> _!)", ":2: an EDU without text"),
    ("(leaf 1)", "(leaf one)", ":2: a satellite with neither children nor (leaf NUMBER)"),
    ("( Root", "( Tree", ":1: begins with 'tree'"),
    ("  )\n)\n", "  )\n", ":1: this opening bracket is not closed"),
    ("  )\n)\n", "  )\n))\n", ":9: a closing bracket without an opening one"),
    ("( Root", "( Root (leaf 9) (text _!a_!) ) ( Root", "2 trees"),
    (FOUR, "", "0 trees"),
])  # fmt: skip
def test_invalid_trees_are_refused(old, new, said):
    assert FOUR.count(old) == 1
    with pytest.raises(TreebankError, match=re.escape(said)) as caught:
        dis.read(FOUR.replace(old, new), "x.dis")
    assert str(caught.value).startswith("x.dis:") and "\n" not in str(caught.value)
