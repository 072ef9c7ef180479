"""`precis dashboard`: what is read from run folders, and the page in a real browser."""

import csv
import json
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from run_folders import make_run, prediction

from precis.dashboards.run_feed import RunFeed, config_columns, find_run_folders

CURVE = {"train/loss": [5.0, 4.0, 3.0], "val/rouge1": [10.0, 12.0, 11.5]}
ROWS = [prediction(1, "an otter sleeps", {"rouge1": 20.0}), prediction(2, "a heron fishes", {"rouge1": 30.0})]


def draw(path: Path) -> Path:
    """Write a small picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(2, 1))
    figure.add_subplot().imshow([[0, 1], [1, 0]])
    figure.savefig(path)
    return path


def append_row(run: Path, step: int, **values: float) -> None:
    """Add a row to metrics.csv as a run does that still trains."""
    with (run / "metrics.csv").open("a", newline="", encoding="utf-8") as file:
        csv.writer(file).writerow([0, step, values.get("loss", ""), values.get("rouge1", "")])


@pytest.fixture
def sweep(tmp_path) -> Path:
    """A sweep of two ablations and two seeds."""
    rows = []
    for label, dropout in (("small", 0.1), ("large", 0.4)):
        for seed in (1, 2):
            make_run(tmp_path / "sweep" / f"{label}-{seed}", ROWS, seed=seed, curve=CURVE, dropout=dropout)
            rows.append({"run": f"{label}-{seed}", "label": f"{label} seed={seed}"})
    described = {"sweep": "rows", "base": "base.yaml", "after": [], "points": rows}
    (tmp_path / "sweep" / "points.json").write_text(json.dumps(described), encoding="utf-8")
    return tmp_path / "sweep"


# What is read


def test_a_folder_is_read_once_and_then_what_is_new(tmp_path):
    run = make_run(tmp_path / "run", ROWS, curve=CURVE)
    draw(run / "previews" / "step000010" / "0.png")
    feed = RunFeed(run)
    first = feed.read()
    expected = [(10 * n, {name: values[n] for name, values in CURVE.items()}) for n in range(3)]
    assert first.values == expected and not first.restarted
    assert first.pictures == [(10, "previews/0", run / "previews" / "step000010" / "0.png")]
    columns, table = first.tables["predictions"]
    assert columns == ["id", "reference", "summary", "rouge1"]
    assert table[1] == ["doc-2", "reference 2", "a heron fishes", 30]
    assert not feed.read()
    append_row(run, 30, rouge1=13.0)
    with (run / "metrics.csv").open("a") as file:
        file.write("0,40,2.")  # a row that is being written
    assert feed.read().values == [(30, {"val/rouge1": 13.0})] and not feed.read()
    (run / "results.json").write_text(json.dumps({"scores": {"test/rouge1": 25.0}}))
    assert feed.read().values == [(30, {"test/rouge1": 25.0})]


def test_a_run_that_was_resumed_from_an_earlier_step_is_shown_anew(tmp_path):
    run = make_run(tmp_path / "run", ROWS, curve=CURVE)
    feed = RunFeed(run)
    feed.read()
    lines = (run / "metrics.csv").read_text().splitlines()
    (run / "metrics.csv").write_text("\n".join([*lines[:2], "0,10,4.5,12.5"]) + "\n")
    news = feed.read()
    assert news.restarted and [step for step, _ in news.values] == [0, 10] and "predictions" in news.tables


def test_config_columns_are_the_keys_in_which_runs_differ(sweep):
    folders = find_run_folders([sweep.parent])
    assert [folder.name for folder in folders] == ["large-1", "large-2", "small-1", "small-2"]
    columns = config_columns(folders)
    large = {"model": "PointerGenerator", "ablation": "large", "seed": 1, "dropout": 0.4}
    assert columns[folders[0]] == large
    alone = config_columns(folders[:1])[folders[0]]
    assert alone["vocab_size"] == 40 and alone["batch_size"] == 4


@pytest.fixture
def trackio(monkeypatch):
    """Imports Trackio anew, because it reads the place of its database when it is imported."""
    pytest.importorskip("trackio")
    for name in [name for name in sys.modules if name.split(".")[0] == "trackio"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(os, "environ", os.environ.copy())


def test_wrong_input_is_one_line(tmp_path, sweep, trackio, precis):
    done = precis("dashboard", tmp_path / "none")
    assert done.status == 1 and "none: no such folder; give run folders" in done.err
    (tmp_path / "empty").mkdir()
    done = precis("dashboard", tmp_path / "empty")
    assert done.status == 1 and "empty: no run folder in it" in done.err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = precis("dashboard", sweep, "--port", taken.getsockname()[1], "--open", False)
    assert done.status == 1 and "cannot be used; give another --port" in done.err and done.err.count("\n") == 1
    assert precis("dashboard", sweep, "--port", 99999, "--open", False).status == 1


def test_without_trackio_the_message_has_the_extra(sweep, precis, monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setitem(sys.modules, "trackio", None)
    done = precis("dashboard", sweep, "--open", False)
    assert done.status == 1 and "the dashboard needs Trackio; pip install 'precis-suite[dashboard]'" in done.err


# The page


@pytest.fixture
def page():
    """A page of a real browser; skips where there is none that can start."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = next((found for name in ("chromium", "google-chrome") if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no chromium or chrome on PATH")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": 1400, "height": 1000})
        opened.set_default_timeout(300_000)  # a bound for a busy machine, not a measure
        yield opened
        browser.close()


def test_the_page_shows_curves_tables_and_pictures_and_follows_a_run(sweep, trackio, page):
    from precis.dashboards.local import serve

    draw(sweep / "small-1" / "previews" / "step000010" / "0.png")
    asked = set()
    page.on("request", lambda request: asked.add(request.url.split("/")[2].split(":")[0]))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serve([sweep], port, interval=0.2) as address:
        page.goto(address)
        page.get_by_text("rouge1", exact=True).first.wait_for()
        for name in ("small-1", "small-2", "large-1", "large-2"):
            page.get_by_text(name, exact=True).first.wait_for()
        shutil.copytree(sweep / "small-1", sweep / "added")  # a run that starts while the page is open
        page.get_by_text("added", exact=True).first.wait_for()
        page.get_by_text("Media & Tables").click()
        page.get_by_text("a heron fishes").first.wait_for()
        page.locator("img[src*='png']").first.wait_for()
    assert asked == {"127.0.0.1"}
