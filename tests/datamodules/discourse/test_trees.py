import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from random_trees import trees

from datamodules.discourse.formats.conllu import from_dependencies
from datamodules.discourse.treebanks import read_treebank
from datamodules.discourse.trees import SPAN, Node, Span, Tree, TreeError
from tests.datamodules.discourse.treebank_writers import to_dependencies

GUM = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "gum"
needs_gum = pytest.mark.skipif(not GUM.is_dir(), reason="needs the GUM data in ../shared/data")

# ((0 <- 1) and 2 and 3) <- 4
FIVE = ["NS", "cause", ["NN", "list", ["NS", "elaboration", 0, 1], 2, 3], 4]


def test_a_tree_by_hand():
    tree = Tree.from_nested(FIVE)
    assert tree.size == 5 and any(len(node.starts) > 2 for node in tree.nodes)
    assert tree.nodes == (
        Node((0, 4), 4, "NS", (SPAN, "cause")),
        Node((0, 2, 3), 3, "NNN", ("list", "list", "list")),
        Node((0, 1), 1, "NS", (SPAN, "elaboration")),
    )
    assert tree.nodes[1].children == [(0, 1), (2, 2), (3, 3)]
    assert tree.node(0, 3) is tree.nodes[1] and tree.node(2, 3) is None and tree.node(4, 4) is None
    assert tree.nested() == FIVE
    assert tree.binary().spans() == [
        Span(0, 3, 4, "NS", "cause"),
        Span(0, 1, 3, "NN", "list"),
        Span(0, 0, 1, "NS", "elaboration"),
        Span(2, 2, 3, "NN", "list"),
    ]
    assert tree.map_relations(str.upper).nested()[1] == "CAUSE"
    # 1 and 4 are satellites of 0, 2 and 3 further nuclei beside (0 1): attached in the order 1, then 2 and 3, then 4
    expected = (
        (-1, 0, 0, 0, 0),
        ("ROOT", "elaboration", "list", "list", "cause"),
        ("root", "s", "m", "m", "s"),
        (0, 0, 1, 1, 2),
    )
    assert to_dependencies(Tree.from_nested(FIVE)) == expected
    assert from_dependencies(*expected) == Tree.from_nested(FIVE)


@pytest.mark.parametrize("letters, expected", [
    ("SNS", [(0, 0, 2, "SN", "r0"), (1, 1, 2, "NS", "r2")]),
    ("NSS", [(0, 1, 2, "NS", "r2"), (0, 0, 1, "NS", "r1")]),
    ("SSN", [(0, 0, 2, "SN", "r0"), (1, 1, 2, "SN", "r1")]),
    ("NNS", [(0, 1, 2, "NS", "r2"), (0, 0, 1, "NN", "list")]),
    ("NSN", [(0, 1, 2, "NN", "list"), (0, 0, 1, "NS", "r1")]),
    ("SNN", [(0, 0, 2, "SN", "r0"), (1, 1, 2, "NN", "list")]),
])  # fmt: skip
def test_satellites_are_attached_one_after_the_other(letters, expected):
    shared = "list" if letters.count("N") > 1 else SPAN
    names = tuple(shared if letter == "N" else f"r{place}" for place, letter in enumerate(letters))
    tree = Tree(3, (Node((0, 1, 2), 2, letters, names),))
    assert tree.binary().spans() == [Span(*span) for span in expected]
    assert Tree.from_nested(json.loads(json.dumps(tree.nested()))) == tree


@given(trees())
def test_forms_are_lossless(tree):
    assert Tree.from_nested(json.loads(json.dumps(tree.nested()))) == tree
    assert from_dependencies(*to_dependencies(tree)) == tree
    binary = tree.binary()
    assert all(len(node.starts) == 2 for node in binary.nodes) and len(binary.nodes) == tree.size - 1
    assert binary.binary() == binary
    assert Tree.from_spans(reversed(binary.spans()), tree.size) == binary
    assert {(node.start, node.end) for node in tree.nodes} <= {(node.start, node.end) for node in binary.nodes}


def test_deep_trees_need_no_recursion():
    size = 2000
    tree = Tree.from_spans([Span(i, i, size - 1, "NS", "list") for i in range(size - 1)], size)
    assert Tree.from_nested(tree.nested()) == tree == from_dependencies(*to_dependencies(tree)) == tree.binary()
    assert len(tree.spans()) == size - 1 and hash(tree) == hash(tree.binary())


@pytest.mark.parametrize("nested, said", [
    (["NS", "x", 0, 2], "EDU 2 where EDU 1"),
    (["NS", "x", 0, 1, 2], "'NS', 'x' do not fit 3 children"),
    (["SS", ["x", "y"], 0, 1], "nuclearity 'SS'"),
    (["NS", ["y", "x"], 0, 1], "single nucleus is `span`"),
    (["SNS", ["x", "span"], 0, 1, 2], "has 3 children, but"),
    (["NN", "x", 0], "neither an EDU nor"),
    (["NN", "x", 0, True], "neither an EDU nor"),
    ("tree", "neither an EDU nor"),
])  # fmt: skip
def test_invalid_nested_trees_are_refused(nested, said):
    with pytest.raises(TreeError, match=said.replace("(", r"\(")):
        Tree.from_nested(nested)


@pytest.mark.parametrize("spans, size, said", [
    ([], 2, "no node covers EDUs 0 to 1"),
    ([(0, 0, 2, "NS", "x")], 3, "no node covers EDUs 1 to 2"),
    ([(0, 0, 1, "NS", "x"), (0, 0, 1, "NS", "x")], 2, "twice"),
    ([(0, 1, 2, "NS", "x"), (1, 1, 2, "NS", "x")], 3, "no node covers EDUs 0 to 1, but one over EDUs 1 to 2"),
    ([(0, 0, 1, "NX", "x")], 2, "nuclearity 'NX'"),
    ([(0, 1, 1, "NS", "x")], 2, "empty child"),
    ([], 0, "at least one EDU"),
])  # fmt: skip
def test_what_are_no_spans_of_a_tree(spans, size, said):
    with pytest.raises(TreeError, match=said):
        Tree.from_spans(spans, size)


@pytest.mark.parametrize("heads, said", [
    ((-1, -1), "2 roots: EDUs 0, 1"),
    ((1, 0), "0 roots; a tree has one"),
    ((-1, 2, 1), "EDU 1 depends on itself in a cycle"),
    ((2, 3, -1, 2), "cross"),
])  # fmt: skip
def test_what_are_no_dependencies_of_a_tree(heads, said):
    size = len(heads)
    with pytest.raises(TreeError, match=said):
        from_dependencies(heads, ("x",) * size, ("s",) * size, range(size))


@needs_gum
def test_validation_documents_of_gum():
    path = GUM / "val.jsonl.gz"
    documents = {document.id: document for document in read_treebank(path)}
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert len(lines) == len(documents) > 10
    for record in map(json.loads, lines):
        tree = documents[record["id"]].tree
        assert tree.nested() == record["tree_nary"]
        assert tree.binary().nested() == record["tree"]
        columns = [tuple(record[name]) for name in ("heads", "relations", "nuclearity", "depths")]
        assert to_dependencies(tree) == tuple(columns)
        assert from_dependencies(*columns) == tree
        assert from_dependencies(*to_dependencies(tree.binary())) == tree.binary()
