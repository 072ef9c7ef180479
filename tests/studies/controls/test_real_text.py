"""Effects on real text: what is read from the page of results, and the plot."""

import xml.etree.ElementTree as ElementTree

from experiments.studies.controls.real_text import PAGE, Effect, main, read_effects

TABLE = """# Page

## Real text

| mechanism | compared with | corpus | difference, interval | detectable | page |
|---|---|---|---|---|---|
| `log_bias` | plain | news, 3 seeds | ROUGE-1 -0.04 [-1.25, +1.17] | 1.6 | here |
| agents | one agent | mail | ROUGE-1 -1.86, no interval | unknown | here |
| graph | permuted | papers, 3 seeds | NLL 0.0000 nats [-0.0002, +0.0002] | 0.0003 | here |
| gold trees | none | GUM | rank correlation +0.012 [+0.002, +0.022] | 0.014 | here |

## Published

| a | b | c | ROUGE-1 +9.00 [+8.00, +9.50] | 1.0 | d |
"""


def test_rows_with_intervals_are_read():
    assert read_effects(TABLE) == [
        Effect("log_bias against plain: news", "ROUGE-1", -0.04, -1.25, 1.17, 1.6),
        Effect("graph against permuted: papers", "NLL", 0, -0.0002, 0.0002, 0.0003),
        Effect("gold trees against none: GUM", "rank correlation", 0.012, 0.002, 0.022, 0.014),
    ]


def test_the_page_of_results_is_read_and_drawn(tmp_path):
    effects = read_effects(PAGE.read_text(encoding="utf-8"))
    assert len(effects) >= 6 and all(effect.low < effect.mean < effect.high for effect in effects)
    plots = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for plot in plots:
        main(["--plot", str(plot)])
    assert plots[0].read_bytes() == plots[1].read_bytes()
    texts = "".join(ElementTree.parse(plots[0]).getroot().itertext())
    assert all(effect.measure in texts for effect in effects)
