import xml.etree.ElementTree as ElementTree
from itertools import pairwise

from hypothesis import given, settings

from datamodules.discourse.trees import Span, Tree
from precis.discourse.tree_drawing import draw_svg, draw_text
from tests.datamodules.discourse.random_trees import documents

TREE = Tree.from_nested(["NS", "cause", ["NN", "list", 0, 1, 2], 3])
TEXTS = ["It <b>rained</b> & rained,", 'it "poured",', "it\nsnowed", "so we left."]
SVG = "{http://www.w3.org/2000/svg}"


def test_text_by_hand():
    assert draw_text(TREE, TEXTS, width=40).splitlines() == [
        "cause (NS) 1–4",
        "├─ N list (NNN) 1–3",
        "│  ├─ N [1] It <b>rained</b> & rained,",
        '│  ├─ N [2] it "poured",',
        "│  └─ N [3] it snowed",
        "└─ S [4] so we left.",
    ]
    assert draw_text(Tree(1), ["alone"]) == "[1] alone\n"


@given(documents())
@settings(max_examples=30)
def test_every_node_and_edu_is_drawn(document):
    tree, texts = document.tree, document.edu_texts
    lines = draw_text(tree, texts, width=200).splitlines()
    assert len(lines) == tree.size + len(tree.nodes)
    for edu, text in enumerate(texts):
        assert any(line.endswith(f"[{edu + 1}] {text}") for line in lines)
    root = ElementTree.fromstring(draw_svg(tree, texts))
    edus = [element for element in root.iter(f"{SVG}text") if element.get("class") == "edu"]
    assert [element.find(f"{SVG}title").text for element in edus] == texts
    lines = [path for path in root.iter(f"{SVG}path") if path.get("class") in ("N", "S")]
    assert len(lines) == 2 + sum(len(node.starts) for node in tree.nodes)  # two in the legend
    labels = [float(element.get("y")) for element in root.iter(f"{SVG}text") if not element.get("class")][2:]
    assert len(labels) == len(set(labels)) == len(tree.nodes)  # each on a line of its own


@given(documents())
@settings(max_examples=30)
def test_long_edus_continue_on_further_lines(document):
    texts = [f"{text} {'and a sentence that goes on ' * 3}" for text in document.edu_texts]
    root = ElementTree.fromstring(draw_svg(document.tree, texts, letters=30, wrap=True, tree_width=160))
    edus = [element for element in root.iter(f"{SVG}text") if element.get("class") == "edu"]
    for number, (element, text) in enumerate(zip(edus, texts, strict=True), start=1):
        lines = [span.text for span in element.iter(f"{SVG}tspan")]
        assert " ".join(lines).split() == [str(number), *text.split()]
        assert len(lines) > 2 and all(len(line) <= 30 for line in lines)
    heights = [float(span.get("y")) for element in edus for span in element.iter(f"{SVG}tspan")]
    assert all(lower - upper >= 16 for upper, lower in pairwise(heights))
    labels = [element.text for element in root.iter(f"{SVG}text") if not element.get("class")][2:]
    assert float(root.get("width")) <= 12 + 160 + 22 + 6 * max(map(len, labels), default=0) + 20 + 7.2 * 30
    assert heights[-1] < float(root.get("height"))


def test_deep_trees_fit():
    size = 1200
    tree = Tree.from_spans([Span(i, i, size - 1, "SN", "x" * 10) for i in range(size - 1)], size)
    texts = ["text " * 50] * size
    lines = draw_text(tree, texts, width=80).splitlines()
    assert max(map(len, lines)) == 80 and "1199… " in lines[-1] and "[1200] text" in lines[-1]
    image = draw_svg(tree, texts)
    root = ElementTree.fromstring(image)
    assert float(root.get("width")) < 2000 and float(root.get("height")) < 27 * size + 100
    assert len(image) < 1000 * size


def test_odd_characters():
    texts = ["null \x00 and escape \x1b[31m", "lone \ud800", "漢字 🙂", " "]
    root = ElementTree.fromstring(draw_svg(TREE, texts).encode())
    assert "null and escape [31m" in " ".join("".join(root.itertext()).split())
    assert "\x1b" not in draw_text(TREE, texts) and "🙂" in draw_text(TREE, texts)
