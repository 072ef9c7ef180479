"""`make controls`: all arms of all controls, results that are kept, tables and plots."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from experiments.studies.controls import real_text, run
from experiments.studies.controls.points import SEEDS, all_points, extraction_points, reduced
from experiments.studies.controls.real_text import PAGE, read_effects
from experiments.studies.controls.report import MEASURES

pytestmark = pytest.mark.integration


def test_every_control_has_its_arms_three_times_and_reduced_points_are_run_once(tmp_path, monkeypatch):
    points = all_points()
    assert {point.control for point in points} == set(MEASURES)
    assert len({point.name for point in points}) == len(points)
    assert all([point.seed for point in arm] == list(SEEDS) for arm in run.by_arm(points))
    first = {point.control: point for point in reversed(points) if point.seed == 1}
    monkeypatch.setattr(run, "all_points", lambda: [first[c] for c in ("pointer", "rst_extraction", "selection")])
    arguments = ["--out", str(tmp_path), "--quick", "true"]
    run.main(arguments)
    lines = (tmp_path / "controls_table.md").read_text(encoding="utf-8").splitlines()
    assert [line.split("|")[2].strip() for line in lines[6:]] == ["plain", "off", "one word: top_k"]
    assert ElementTree.parse(tmp_path / "controls.svg").getroot().tag.endswith("svg")
    monkeypatch.setattr(run, "run_point", None)  # would raise
    run.main(arguments)
    (stored,) = tmp_path.glob("points/pointer_off_*.json")
    stored.unlink()
    with pytest.raises(TypeError):
        run.main(arguments)


def test_results_of_other_settings_are_not_taken(tmp_path):
    point = next(extraction_points())
    path = tmp_path / "points" / f"{point.name}.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"measures": {"accuracy": 50.0}}), encoding="utf-8")
    assert run.read_result(point, tmp_path).measures == {"accuracy": 50.0}
    assert run.read_result(reduced(point), tmp_path) is None


def test_the_page_of_results_is_read_and_drawn(tmp_path):
    effects = read_effects(PAGE.read_text(encoding="utf-8"))
    assert len(effects) >= 6 and all(effect.low < effect.mean < effect.high for effect in effects)
    for name in ("one", "two"):
        real_text.main(["--plot", str(tmp_path / f"{name}.svg")])
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    texts = "".join(ElementTree.parse(tmp_path / "one.svg").getroot().itertext())
    assert all(effect.measure in texts for effect in effects)
