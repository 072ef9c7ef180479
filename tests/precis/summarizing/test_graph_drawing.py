import random
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from datamodules.graphs import Similarity
from precis.summarizing.graph_drawing import ARCS, draw_svg, strongest
from tests.datamodules.graphs.made_up import cluster, paragraphs

SVG = "{http://www.w3.org/2000/svg}"


def shapes(svg, kind):
    return [path for path in ET.fromstring(svg).iter(f"{SVG}path") if path.get("class") == kind]


def test_the_strongest_links_of_each_paragraph():
    weights = np.array([[1, 0.9, 0.1, 0.5], [0.2, 1, 0.3, 0.01], [0.1, 0, 1, 0.015], [0.4, 0, 0, 1]])
    # one each: 0-1 (0.9), 1-0, 2-1 (0.3 back), 3-0 (0.5)
    assert strongest(weights, max_links=1) == [(0, 1), (0, 3), (1, 2)]
    assert strongest(weights, max_links=3) == [(0, 1), (0, 2), (0, 3), (1, 2)]  # the others are below 0.02
    assert strongest(weights, max_links=3, min_weight=0.45) == [(0, 1), (0, 3)]
    assert strongest(np.ones((1, 1))) == []


def test_links_and_looks_are_as_thick_as_their_weights():
    found = paragraphs(*cluster(3).parts)
    weights = Similarity()(found)
    attention = np.array([[0.6, 0.3, 0.1, 0, 0], [0, 0, 0, 0.04, 0.96]])
    svg = draw_svg(weights, found.texts, ["One.", "Two."], attention)
    links, looks = shapes(svg, "link"), shapes(svg, "look")
    said = [path.find(f"{SVG}title").text for path in links]
    pairs = [tuple(int(number) - 1 for number in text.split(":")[0].split(" to ")) for text in said]
    assert sorted(pairs) == strongest(weights)
    widths = [float(path.get("stroke-width")) for path in links]
    assert widths == sorted(widths) and widths[-1] == 4.5  # the strongest last, that is on top
    assert len(looks) == 4  # 0.04 is too little
    widest = max(looks, key=lambda path: float(path.get("stroke-width")))
    assert widest.find(f"{SVG}title").text == "sentence 2 to paragraph 5: 0.96"


@pytest.mark.parametrize("size", [1, 2, 64])
def test_any_text_makes_a_sound_image_that_holds_it(size):
    rng = random.Random(size)
    texts = [["<b> & \x00 \ud7ff 😀 " * rng.randrange(5)] for _ in range(size)]
    svg = draw_svg(np.full((size, size), 0.5), texts, ["]]> &amp;"], np.full((1, size), 1 / size))
    root = ET.fromstring(svg)
    height = float(root.get("height"))
    for path in shapes(svg, "link"):
        start, depth = path.get("d").split("A")[0][1:].split(), float(path.get("d").split("A")[1].split()[0])
        assert float(start[0]) - depth > 0 and depth <= ARCS and float(start[1]) < height
    others = 5  # two lines of the legend, two heads and a sentence
    assert sum(len(text.text or "") > 0 for text in root.iter(f"{SVG}text")) == size + others
