"""Trees, their forms, and the relations of their nodes."""

import gzip
import json
from collections import Counter
from dataclasses import replace

import pytest
from conftest import GUM, needs_gum
from hypothesis import given
from random_trees import to_dependencies, trees

from datamodules.discourse.formats.conllu import from_dependencies
from datamodules.discourse.records import TreebankDocument, TreebankError
from datamodules.discourse.relations import GUM as GUM_RELATIONS
from datamodules.discourse.relations import GUM_COUNTS, INVENTORIES, RST_DT, coarsened, inventory_of
from datamodules.discourse.treebanks import read_treebank
from datamodules.discourse.trees import SPAN, Node, Span, Tree, TreeError

# ((0 <- 1) and 2 and 3) <- 4
FIVE = ["NS", "cause", ["NN", "list", ["NS", "elaboration", 0, 1], 2, 3], 4]


def test_a_tree_by_hand():
    tree = Tree.from_nested(FIVE)
    ends = Node((0, 4), 4, "NS", (SPAN, "cause")), Node((0, 1), 1, "NS", (SPAN, "elaboration"))
    assert tree.nodes == (ends[0], Node((0, 2, 3), 3, "NNN", ("list", "list", "list")), ends[1])
    assert tree.nodes[1].children == [(0, 1), (2, 2), (3, 3)]
    assert tree.node(0, 3) is tree.nodes[1] and tree.node(2, 3) is None and tree.node(4, 4) is None
    assert tree.nested() == FIVE
    spans = [(0, 3, 4, "NS", "cause"), (0, 1, 3, "NN", "list"), (0, 0, 1, "NS", "elaboration"), (2, 2, 3, "NN", "list")]
    assert tree.binary().spans() == [Span(*span) for span in spans]
    # 1 and 4 are satellites of 0, 2 and 3 further nuclei beside (0 1): attached in the order 1, then 2 and 3, then 4
    heads, relations = (-1, 0, 0, 0, 0), ("ROOT", "elaboration", "list", "list", "cause")
    expected = (heads, relations, ("root", "s", "m", "m", "s"), (0, 0, 1, 1, 2))
    assert to_dependencies(tree) == expected and from_dependencies(*expected) == tree


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


@given(trees())
def test_forms_are_lossless(tree):
    assert Tree.from_nested(json.loads(json.dumps(tree.nested()))) == tree
    assert from_dependencies(*to_dependencies(tree)) == tree
    binary = tree.binary()
    assert all(len(node.starts) == 2 for node in binary.nodes) and len(binary.nodes) == tree.size - 1
    assert binary.binary() == binary and Tree.from_spans(reversed(binary.spans()), tree.size) == binary
    assert {(node.start, node.end) for node in tree.nodes} <= {(node.start, node.end) for node in binary.nodes}


def test_deep_trees_need_no_recursion():
    size = 2000
    tree = Tree.from_spans([Span(i, i, size - 1, "NS", "list") for i in range(size - 1)], size)
    assert Tree.from_nested(tree.nested()) == tree == from_dependencies(*to_dependencies(tree)) == tree.binary()
    assert len(tree.spans()) == size - 1 and hash(tree) == hash(tree.binary())


def of_heads(*heads: int) -> Tree:
    return from_dependencies(heads, ("x",) * len(heads), ("s",) * len(heads), range(len(heads)))


@pytest.mark.parametrize("build, arguments, said", [
    (Tree.from_nested, [["NS", "x", 0, 1, 2]], "'NS', 'x' do not fit 3 children"),
    (Tree.from_nested, [["SNS", ["x", "span"], 0, 1, 2]], "has 3 children, but"),
    (Tree.from_nested, [["SS", ["x", "y"], 0, 1]], "nuclearity 'SS'"),
    *((Tree.from_nested, [[kind, SPAN, 0, 1]], "of a single nucleus, and only of it") for kind in ("NN", "NS")),
    *((Tree.from_nested, [tree], "neither an EDU nor") for tree in (["NN", "x", 0], ["NN", "x", 0, True], "tree")),
    (Tree.from_spans, [[], 2], "no node covers EDUs 0 to 1"),
    (Tree.from_spans, [[(0, 0, 1, "NS", "x")] * 2, 2], "twice"),
    (Tree.from_spans, [[(0, 1, 2, "NS", "x"), (1, 1, 2, "NS", "x")], 3],
     "no node covers EDUs 0 to 1, but one over EDUs 1 to 2"),
    (Tree.from_spans, [[(0, 1, 1, "NS", "x")], 2], "empty child"),
    (Tree.from_spans, [[], 0], "at least one EDU"),
    (of_heads, (-1, -1), "2 roots: EDUs 0, 1"),
    (of_heads, (1, 0), "0 roots; a tree has one"),
    (of_heads, (-1, 2, 1), "EDU 1 depends on itself in a cycle"),
    (of_heads, (2, 3, -1, 2), "cross"),
])  # fmt: skip
def test_invalid_trees_are_refused(build, arguments, said):
    with pytest.raises(TreeError, match=said):
        build(*arguments)


@needs_gum
def test_validation_documents_of_gum_and_counts_of_the_treebank():
    path = GUM / "val.jsonl.gz"
    documents = {document.id: document for document in read_treebank(path)}
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert len(lines) == len(documents) > 10
    for record in map(json.loads, lines):
        tree = documents[record["id"]].tree
        assert tree.nested() == record["tree_nary"] and tree.binary().nested() == record["tree"]
        columns = [tuple(record[name]) for name in ("heads", "relations", "nuclearity", "depths")]
        assert to_dependencies(tree) == tuple(columns) and from_dependencies(*columns) == tree
        assert from_dependencies(*to_dependencies(tree.binary())) == tree.binary()
    trees = [document.tree.binary() for document in coarsened(read_treebank(GUM / "train.jsonl.gz"))]
    assert Counter(span.relation for tree in trees for span in tree.spans()) == GUM_COUNTS


def test_classes_of_gum_and_rst_dt():
    fine = [name for name, group in GUM_RELATIONS.classes.items() if name not in GUM_RELATIONS.coarse]
    assert len(fine) == 31 and len(GUM_RELATIONS.coarse) == 15
    assert all(GUM_RELATIONS.class_of(name) == name.split("-")[0] for name in fine)
    assert GUM_RELATIONS.class_of("same-unit") == "same-unit"
    for relation, group in {
        "elaboration-object-attribute-e": "elaboration", "Consequence-N-e": "cause", "purpose": "enablement",
        "TextualOrganization": "textual-organization", "statement-response-s": "topic-comment",
    }.items():  # fmt: skip
        assert RST_DT.class_of(relation) == group
    assert len(RST_DT.coarse) == 18
    for inventory in INVENTORIES.values():
        assert all(inventory.class_of(name) == name for name in inventory.coarse)


def test_own_relations_are_classes_or_belong_to_some():
    plain = inventory_of(["Cause", "contrast"])
    assert plain.coarse == ["cause", "contrast"] and plain.class_of("CAUSE") == "cause"
    grouped = inventory_of({"causal": ["Reason", "result"], "contrast": []})
    assert grouped.coarse == ["causal", "contrast"]
    classes = [grouped.class_of(name) for name in ("reason", "Result", "causal", "Contrast")]
    assert classes == ["causal", "causal", "causal", "contrast"]
    assert inventory_of("gum") is GUM_RELATIONS and inventory_of("rst_dt") is RST_DT
    with pytest.raises(TreebankError, match=r"'list' is not in the inventory the treebank's.*--model\.inventory"):
        grouped.class_of("list")
    for choice, problem in [
        ("pdtb", "'pdtb' is unknown; give gum, rst_dt, or your relations, such as"),
        ([], "at least one"),
        ({"a": ["x"], "b": ["X"]}, "'X' is in 'a' and in 'b'"),
        ({"a": ["b"], "b": []}, "'b' is in 'a' and in 'b'"),
        (["cause", "Span"], "'Span' is reserved and not a relation"),
    ]:
        with pytest.raises(ValueError, match=problem):
            inventory_of(choice)


def test_documents_get_coarse_trees():
    tree = Tree.from_spans([Span(0, 1, 2, "NN", "joint-list"), Span(0, 0, 1, "NS", "causal-cause")], 3)
    document = TreebankDocument("doc", "a b c", [(0, 1), (2, 3), (4, 5)], tree=tree)
    bare = replace(document, tree=None)
    coarse = coarsened([document, bare])
    assert [span.relation for span in coarse[0].tree.spans()] == ["joint", "causal"] and coarse[1] == bare
    problem = r"a\.dis: doc, EDUs 0 to 2: the relation 'joint-list' is not in the inventory RST-DT"
    with pytest.raises(TreebankError, match=problem):
        coarsened([document], RST_DT, where="a.dis")
