"""Effects on real text: what is read from the page of results, and the plot."""

import xml.etree.ElementTree as ElementTree

from experiments.studies.controls.real_text import PAGE, main, read_effects


def test_the_page_of_results_is_read_and_drawn(tmp_path):
    effects = read_effects(PAGE.read_text(encoding="utf-8"))
    assert len(effects) >= 6 and all(effect.low < effect.mean < effect.high for effect in effects)
    plots = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for plot in plots:
        main(["--plot", str(plot)])
    assert plots[0].read_bytes() == plots[1].read_bytes()
    texts = "".join(ElementTree.parse(plots[0]).getroot().itertext())
    assert all(effect.measure in texts for effect in effects)
