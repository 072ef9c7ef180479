"""A run of RSTformer: summarized, drawn, exported, compared."""

import re

import pytest
import torch
from cases import RSTFORMER
from conftest import run_main

from lightning_modules.rstformer.attention_maps import EduAttention
from precis.summarizing.draw_attention import cut_off, layer_figure

pytestmark = pytest.mark.integration

TEXT = "The otter sleeps, because the mill is warm. The heron watches it; nobody else does. Then they leave.\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory, corpus_files):
    """Train runs with discourse and without, one step each; return their folder."""
    folder = tmp_path_factory.mktemp("rstformer-runs")
    short = ["--trainer.max_steps=1", "--trainer.limit_val_batches=0", "--trainer.accelerator=cpu", "--wandb=off"]
    short += ["--trainer.enable_progress_bar=false", "--previews=0"]
    for case in RSTFORMER:
        assert run_main("fit", *case.arguments(corpus_files), *short, f"--run_dir={folder / case.name}") == 0
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    return folder


def test_attention_is_drawn_beside_tree_and_summary(runs, precis, tmp_path):
    out = tmp_path / "pictures"
    precis("attention", runs / "rstformer", runs / "text.txt", "--out", out).succeeded()
    assert sorted(path.name for path in out.iterdir()) == ["layer1.png", "page.html", "tree.svg"]
    assert (out / "layer1.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "page.html").read_text(encoding="utf-8")
    assert page.count("data:image/png") == 1 and "<svg" in page and "The heron watches it;" in page
    assert not re.search(r"(?:src|href)=.http", page)
    assert re.search(r"<p>head 1: [a-z-]+(, [a-z-]+)*; head 2: ", page), "the relations of each head by their names"
    for wrong, inputs, message in (
        ("led", [runs / "text.txt"], "not the run of an RSTformer with discourse"),
        ("rstformer", [runs / "text.txt"] * 2, "draws one document, and there are 2"),
    ):
        precis("attention", runs / wrong, *inputs, "--out", tmp_path / "none").refused(message)
        assert not (tmp_path / "none").exists()


def test_omissions_in_drawings_are_reported():
    values = torch.rand(1, 2, 9, 9)
    title = layer_figure(EduAttention(values, values.flip(2)), 0, most=4).get_suptitle()
    assert title == "layer 1: attention between the first 4 of 9 EDUs"
    note = cut_off(size=500, num_read=300, num_drawn=200)
    assert "reads the first 300 of 500 EDUs" in note and "show the first 200 of these 300 EDUs" in note
    assert "first" not in cut_off(size=9, num_read=9, num_drawn=9)
