"""Tables of `precis compare`."""

import csv
import io
import json
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from run_folders import make_run, prediction

from precis.evaluation.compare import escape_latex

SCORES = np.random.default_rng(1).uniform(10, 60, size=(2, 2, 2, 8))  # pointer, width, seeds, documents
ROUGE = "--metric=rouge1,length"


@pytest.fixture
def grid(tmp_path) -> list[Path]:
    """Two seeds of each point of a grid of two axes, the points of the second axis together."""
    runs = []
    for pointer, width, seed in product((0, 1), (0, 1), (1, 2)):
        scores = SCORES[pointer, width, seed - 1]
        rows = [prediction(number, "a b c", {"rouge1": score}) for number, score in enumerate(scores.tolist())]
        curve = {"val/rouge1": [1.0, 2.0 + pointer], "train/loss": [3.0, 2.0]}
        folder = tmp_path / f"p{pointer}w{width}s{seed}"
        runs.append(make_run(folder, rows, seed=seed, curve=curve, pointer=bool(pointer), hidden_size=8 << width))
    return runs


def test_csv_has_every_number_of_the_comparison(grid, tmp_path, precis):
    done = precis("compare", *grid, ROUGE, "--json", "--csv", tmp_path / "table.csv").succeeded()
    systems = {system["name"]: system for system in json.loads(done.out)["systems"]}
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text(encoding="utf-8"))))
    places = [(row["hidden_size"], row["pointer"]) for row in rows]  # grouped by the axes
    assert places == [("8", "false"), ("8", "true"), ("16", "false"), ("16", "true")]
    for row, (width, pointer) in zip(rows, product((0, 1), (0, 1))):
        assert float(row["rouge1_mean"]) == pytest.approx(SCORES[pointer, width].mean())
        system = systems[row["system"]]
        assert row["seeds"] == "2"
        for measure, cell in system["scores"].items():
            for key, value in cell.items():
                text = row.get(f"{measure}_{key}")
                if text is not None:
                    assert text == ("" if value is None else str(value))


def test_latex_marks_the_best_mean_repeats_no_value_and_separates_groups(grid, tmp_path, precis):
    precis("compare", *grid, ROUGE, "--latex", tmp_path / "table.tex")
    text = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert text.count(r"\midrule") == 2 and text.count(" \\\\\n") == 5 and r"hidden\_size" in text
    body = [line.split(" & ") for line in text.splitlines() if line.endswith(r"\\")][1:]
    assert [line[0] for line in body] == ["8", "", "16", ""]
    means = SCORES.mean((2, 3))
    assert [line[3].startswith(r"\textbf{") for line in body] == [mean == means.max() for mean in means.T.flat]
    assert rf"{means[0, 0]:.2f}\pm {SCORES[0, 0].mean(1).std(ddof=1):.2f}" in body[0][3]
    assert text.startswith("% ") and "95 % intervals" in text
    assert text.count(r"\textbf{") == 1 and text.count("{") == text.count("}")
    if shutil.which("pdflatex"):
        page = r"\documentclass{article}\usepackage{booktabs}\begin{document}" + text + r"\end{document}"
        (tmp_path / "page.tex").write_text(page, encoding="utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
        assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=100).returncode == 0


@pytest.mark.parametrize("text", ["a_b", "50 %", "x & y", r"\input{x}", "$a^2$", "~#{}"])
def test_latex_interprets_no_name(text):
    commands = r"\\(textbackslash|textasciitilde|textasciicircum)\{\}|\\[&%$#_{}]"
    assert not re.search(r"[\\&%$#_{}~^]", re.sub(commands, "", escape_latex(text)))
