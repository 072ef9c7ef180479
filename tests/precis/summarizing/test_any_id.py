"""Ids and texts that look like markup or formulas are shown as they are."""

import json
import shutil

import numpy as np
import pytest
from conftest import read_lines, write, write_lines

from callbacks.previews import draw_attention

PNG = b"\x89PNG\r\n\x1a\n"
MARKUP, FORMULA = "a[/red][bold]b\\", "price $\\frac{1$ of $x_"
TEXT = "A storm hit the coast. Boats sank.\n\nNobody had slept. They left."


@pytest.mark.integration
def test_markup_in_ids_is_reported_literally(run_folder, precis, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    row = {"id": MARKUP, "document": f"The otter {MARKUP} paints.", "summary": f"{MARKUP} paints"}
    records = write_lines(tmp_path / "records.jsonl", [row])
    config = run_folder / "config.yaml"
    text = config.read_text(encoding="utf-8")
    before = next(line.split("test: ")[1] for line in text.split("\n") if line.strip().startswith("test: "))
    config.write_text(text.replace(before, str(records)), encoding="utf-8")
    assert precis("test", "--run", run_folder).status == 0
    done = precis("report", run_folder)
    assert done.status == 0 and done.out.count(MARKUP) >= 3, done.err
    assert precis("compare", run_folder, "--metric=rouge1").status == 0


def test_formulas_in_a_parse_and_words(precis, tmp_path):
    path = write(tmp_path / f"{FORMULA}.txt", TEXT)
    precis("parse", "--show", path, "--parser=right_branching", "--heat_map", tmp_path / "map.png").succeeded()
    assert (tmp_path / "map.png").read_bytes().startswith(PNG)
    draw_attention(tmp_path / "words.png", [FORMULA, "b"], [FORMULA], np.ones((1, 2)) / 2, np.ones(2))
    assert (tmp_path / "words.png").read_bytes().startswith(PNG)


@pytest.mark.integration
def test_records_are_summarized_one_by_one(run_folder, precis, corpus_files, tmp_path):
    assert precis("predict", "--run", run_folder).status == 0
    done = precis("summarize", "--checkpoint", run_folder, corpus_files["test"], "--json", "true")
    summarized = [json.loads(line) for line in done.out.split("\n")[:-1]]
    predicted = read_lines(run_folder / "predictions.predict.jsonl")
    assert [(row["id"], row["summary"]) for row in summarized] == [(row["id"], row["summary"]) for row in predicted]
    shutil.copy(corpus_files["test"], tmp_path / "other.jsonl")
    done = precis("summarize", "--checkpoint", run_folder, corpus_files["test"], tmp_path / "other.jsonl")
    assert done.status == 1 and "holds records, not a text" in done.err
    (tmp_path / "bad.csv").write_text("id,text\n1,a\n", encoding="utf-8")
    precis("summarize", "--checkpoint", run_folder, tmp_path / "bad.csv").refused("bad.csv:2", "no field 'document'")
