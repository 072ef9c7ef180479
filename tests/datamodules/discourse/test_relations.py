from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from datamodules.discourse.records import TreebankDocument, TreebankError
from datamodules.discourse.relations import GUM, GUM_COUNTS, INVENTORIES, RST_DT, coarsened, inventory_of
from datamodules.discourse.treebanks import read_treebank
from datamodules.discourse.trees import Span, Tree


def test_classes_of_gum_are_what_stands_before_the_hyphen():
    fine = [name for name, group in GUM.classes.items() if name not in GUM.coarse or name == "same-unit"]
    assert len(fine) == 32 and len(GUM.coarse) == 15
    for name in fine:
        assert GUM.class_of(name) == ("same-unit" if name == "same-unit" else name.split("-")[0])


@pytest.mark.parametrize("relation, group", [
    ("elaboration-object-attribute-e", "elaboration"),
    ("Consequence-N-e", "cause"),
    ("TextualOrganization", "textual-organization"),
    ("statement-response-s", "topic-comment"),
    ("purpose", "enablement"),
])  # fmt: skip
def test_classes_of_rst_dt(relation, group):
    assert RST_DT.class_of(relation) == group and len(RST_DT.coarse) == 18
    for inventory in INVENTORIES.values():
        assert all(inventory.class_of(name) == name for name in inventory.coarse)


def test_own_relations_are_classes_or_belong_to_some():
    plain = inventory_of(["Cause", "contrast"])
    assert plain.coarse == ["cause", "contrast"] and plain.class_of("CAUSE") == "cause"
    grouped = inventory_of({"causal": ["Reason", "result"], "contrast": []})
    assert grouped.coarse == ["causal", "contrast"]
    classes = [grouped.class_of(name) for name in ("reason", "Result", "causal", "Contrast")]
    assert classes == ["causal", "causal", "causal", "contrast"]
    assert inventory_of("gum") is GUM and inventory_of("rst_dt") is RST_DT
    with pytest.raises(TreebankError, match=r"'list' is not in the inventory the treebank's.*--model\.inventory"):
        grouped.class_of("list")


@pytest.mark.parametrize("choice, problem", [
    ("pdtb", "'pdtb' is unknown; give gum, rst_dt, or your relations, such as"),
    ([], "at least one"),
    ({"a": ["x"], "b": ["X"]}, "'X' is in 'a' and in 'b'"),
    ({"a": ["b"], "b": []}, "'b' is in 'a' and in 'b'"),
    (["cause", "Span"], "'Span' is reserved and not a relation"),
])  # fmt: skip
def test_own_relations_that_cannot_be_are_refused(choice, problem):
    with pytest.raises(ValueError, match=problem):
        inventory_of(choice)


def test_documents_get_coarse_trees():
    tree = Tree.from_spans([Span(0, 1, 2, "NN", "joint-list"), Span(0, 0, 1, "NS", "causal-cause")], 3)
    document = TreebankDocument("doc", "a b c", [(0, 1), (2, 3), (4, 5)], tree=tree)
    bare = replace(document, tree=None)
    found = coarsened([document, bare])
    assert [span.relation for span in found[0].tree.spans()] == ["joint", "causal"]
    assert found[1] == bare
    problem = r"a\.dis: doc, EDUs 0 to 2: the relation 'joint-list' is not in the inventory RST-DT"
    with pytest.raises(TreebankError, match=problem):
        coarsened([document], RST_DT, where="a.dis")


def test_counts_equal_those_of_the_treebank():
    path = Path(__file__).resolve().parents[4] / "shared" / "data" / "gum" / "train.jsonl.gz"
    if not path.is_file():
        pytest.skip("needs the GUM data in ../shared/data")
    trees = [document.tree.binary() for document in coarsened(read_treebank(path))]
    assert Counter(span.relation for tree in trees for span in tree.spans()) == GUM_COUNTS
