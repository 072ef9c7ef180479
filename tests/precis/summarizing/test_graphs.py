"""Pictures of graphs of paragraphs, and of a discourse model's attention."""

import random
import re
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import numpy as np
import pytest
from cases import RSTFORMER
from conftest import write, write_lines
from datasets import Dataset

from datamodules.corpora.corpus import as_document
from datamodules.graphs import ParagraphRule, Similarity
from precis.files.templates import template
from precis.summarizing import graph_drawing as command
from precis.summarizing.graph_drawing import ARCS, draw_svg, strongest
from precis.summarizing.picture_commands import graph
from tests.datamodules.graphs.made_up import cluster, paragraphs

TEXT = "An otter swims in the river. It dives.\n\nThe otter guards the mill.\n\nNobody visits the library."


def test_a_text_s_graph_is_printed_and_drawn(tmp_path, precis):
    article, html = write(tmp_path / "article.txt", TEXT), tmp_path / "graph.html"
    out = precis("graph", article, f"--html={html}").succeeded().out
    assert "An otter swims" in out and "strongest links to" in out and "2 (0." in out
    assert "Nobody visits the library." in html.read_text(encoding="utf-8")
    for arguments in (
        ["--graph=discourse", "--paragraphs.sentences=1"],
        ["--graph=none", "--paragraphs.max_paragraphs=1"],
        ["--graph=rst", "--parser=right_branching", f"--parses={tmp_path / 'parses'}"],
    ):
        assert "An otter swims" in precis("graph", article, *arguments).succeeded().out
    chinese = write(tmp_path / "zh.txt", "今天天气很好。天气很好。")
    assert "2 (0." in precis("graph", chinese, "--language=zh", "--paragraphs.sentences=1").succeeded().out
    precis("graph", article, "--graph=topic").failed_in_one_line("topics are learned from a corpus; give the --run")


def test_a_run_s_documents_with_what_its_summaries_looked_at(tmp_path, monkeypatch, capsys):
    clusters = [{"id": f"cluster-[/red]{seed}", "parts": cluster(seed).parts} for seed in range(4)]
    table = Dataset.from_list([row | {"references": [["The reference <b>."]]} for row in clusters])
    data = SimpleNamespace(graph=Similarity(), paragraphs=ParagraphRule(), documents=lambda split: table)
    monkeypatch.setattr(command, "load_run", lambda folder: SimpleNamespace(data=data))
    predictions = []
    for number in (2, 0):
        attention = np.eye(2, len(as_document(table[number]).parts)).tolist()
        row = {"id": clusters[number]["id"], "summary": ["One.", "Two."], "references": []}
        predictions.append(row | {"paragraph_attention": attention})
    write_lines(tmp_path / "predictions.jsonl", predictions)
    run, html = tmp_path, tmp_path / "run.html"
    graph([f"--run={run}", f"--html={html}"])
    text = html.read_text(encoding="utf-8")
    assert re.findall("<h2>(.*?)</h2>", text) == ["cluster-[/red]2", "cluster-[/red]0"]  # in the predictions' order
    assert text.count('class="look"') == 4 and "The reference &lt;b&gt;." in text
    graph([f"--run={run}", '--id=["cluster-[/red]1"]', f"--html={html}"])
    assert "cluster-[/red]1" in html.read_text() and 'class="look"' not in html.read_text()
    assert "cluster-[/red]1: graph similarity" in capsys.readouterr().out  # markup is printed literally


SVG = "{http://www.w3.org/2000/svg}"


def shapes(svg, kind):
    return [path for path in ET.fromstring(svg).iter(f"{SVG}path") if path.get("class") == kind]


def test_the_strongest_links_of_each_paragraph_and_looks_are_as_thick_as_their_weights():
    weights = np.array([[1, 0.9, 0.1, 0.5], [0.2, 1, 0.3, 0.01], [0.1, 0, 1, 0.015], [0.4, 0, 0, 1]])
    # one each: 0-1 (0.9), 1-0, 2-1 (0.3 back), 3-0 (0.5)
    assert strongest(weights, max_links=1) == [(0, 1), (0, 3), (1, 2)]
    assert strongest(weights, max_links=3) == [(0, 1), (0, 2), (0, 3), (1, 2)]  # the others are below 0.02
    assert strongest(weights, max_links=3, min_weight=0.45) == [(0, 1), (0, 3)]
    assert strongest(np.ones((1, 1))) == []

    made = paragraphs(*cluster(3).parts)
    weights = Similarity()(made)
    svg = draw_svg(weights, made.texts, ["One.", "Two."], np.array([[0.6, 0.3, 0.1, 0, 0], [0, 0, 0, 0.04, 0.96]]))
    links, looks = shapes(svg, "link"), shapes(svg, "look")
    titles = [path.find(f"{SVG}title").text.split(":")[0] for path in links]
    assert sorted(tuple(int(end) - 1 for end in title.split(" to ")) for title in titles) == strongest(weights)
    widths = [float(path.get("stroke-width")) for path in links]
    assert widths == sorted(widths) and widths[-1] == 4.5  # the strongest last, that is on top
    assert len(looks) == 4  # 0.04 is too little
    widest = max(looks, key=lambda path: float(path.get("stroke-width")))
    assert widest.find(f"{SVG}title").text == "sentence 2 to paragraph 5: 0.96"
    labels = [element.text or "" for element in ET.fromstring(draw_svg(np.ones((1, 1)), [["漢" * 200]])).iter()]
    assert f"1  {'漢' * 77}…" in labels  # as wide as 155 Latin letters


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


@pytest.mark.integration
def test_attention_is_drawn_beside_tree_and_summary_and_omissions_are_reported(corpus_files, precis, tmp_path):
    text, out = "The otter sleeps, because the mill is warm. The heron watches it; nobody minds.", tmp_path / "pictures"
    short = ["--trainer.max_steps=1", "--trainer.limit_val_batches=0", "--trainer.accelerator=cpu", "--wandb=off"]
    short += ["--trainer.enable_progress_bar=false", "--previews=0"]
    for case in RSTFORMER:
        precis("fit", *case.arguments(corpus_files), *short, f"--run_dir={tmp_path / case.name}").succeeded()
    article = write(tmp_path / "text.txt", text)
    precis("attention", tmp_path / "rstformer", article, "--out", out).succeeded()
    assert sorted(path.name for path in out.iterdir()) == ["layer1.png", "page.html", "tree.svg"]
    assert (out / "layer1.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "page.html").read_text(encoding="utf-8")
    assert page.count("data:image/png") == 1 and "<svg" in page and "The heron watches it;" in page
    assert not re.search(r"(?:src|href)=.http", page)
    assert re.search(r"<p>head 1: [a-z-]+(, [a-z-]+)*; head 2: ", page), "the relations of each head by their names"
    done = precis("attention", tmp_path / "led", article, "--out", tmp_path / "none")
    done.refused("not the run of an RSTformer with discourse")
    note = template("precis.summarizing", "pages.html").module.attention("", [], [], 500, 300, 200)
    assert "reads the first 300 of 500 EDUs" in note and "show the first 200 of these 300 EDUs" in note
    assert "first" not in page
