import json
import re
from io import StringIO

import numpy as np
import pytest
from conftest import write
from rich.console import Console
from run_folders import write_run

from lightning_modules.extractive.summary import ExtractiveSummary
from precis.summarizing.show_extraction import draw_sentence_attention, marked_document, page, sentence_lines

PNG = b"\x89PNG\r\n\x1a\n"
FORMULA = "price $\\frac{1$ of $x_"  # no formula
TEXT = "A storm hit the coast. Boats <sank>. Nobody had slept."
SUMMARY = ExtractiveSummary(
    "storm & co", ["Boats <sank>."], [], positions=[1], sentence_scores=[0.25, 0.5, 0.125],
    document=["A storm hit the coast.", "Boats <sank>.", "Nobody had slept."],
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory, corpus_files, extractive):
    """Run folders of BertSum, and of MatchSum over its proposals, with random weights."""
    scorer = {"class_path": "precis.training.run_scorer.RunScorer", "init_args": {"run": str(extractive)}}
    matchsum = write_run(tmp_path_factory.mktemp("run") / "matchsum", "matchsum", corpus_files, data_scorer=scorer)
    return {"bertsum": extractive, "matchsum": matchsum}


@pytest.mark.parametrize("name", ["bertsum", "matchsum"])
def test_summaries_have_scores_and_positions(name, runs, tmp_path, precis):
    file = write(tmp_path / "storm.txt", TEXT)
    done = precis("summarize", "--checkpoint", runs[name], file, "--json", "true").succeeded()
    row = json.loads(done.out)
    assert len(row["sentence_scores"]) == 3 and 1 <= len(row["positions"]) <= 2
    assert all(sentence in TEXT for sentence in row["summary"])
    lines = precis("summarize", "--checkpoint", runs[name], file, "--scores", "true").out.splitlines()
    assert [line[0] == "*" for line in lines] == [index in row["positions"] for index in range(3)]
    assert all(f"{score:.3f}" in line for score, line in zip(row["sentence_scores"], lines))
    marked = precis("summarize", "--checkpoint", runs[name], file, "--mark", "true").out.strip()
    assert re.sub(r"[\[\]]", "", marked) == TEXT and marked.count("[") == len(row["positions"])


def test_page_and_heat_map_are_written(runs, tmp_path, precis):
    texts = [tmp_path / f"{FORMULA}.txt", tmp_path / "2.txt"]
    for path in texts:
        path.write_text(TEXT.replace(" Nobody", "\n\nNobody"), encoding="utf-8")
    out = ["--html", tmp_path / "page.html", "--heat_map", tmp_path / "map.png"]
    precis("summarize", "--checkpoint", runs["bertsum"], *texts, *out).succeeded()
    written = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert FORMULA in written and written.count('<p dir="auto">') == 4, "a paragraph for each of the texts"
    assert 2 <= written.count("<mark") <= 4
    for number in (1, 2):
        assert (tmp_path / f"map-{number}.png").read_bytes().startswith(PNG)


def test_a_page_has_paragraphs_headed_columns_and_what_was_not_read():
    shown = page([SUMMARY], {"storm & co": [2, 2]})
    assert re.findall('<p(?: dir="auto")?>(.*)</p>', re.sub("<(/?span|/?mark)[^>]*>", "", shown)) == [
        "A storm hit the coast. Boats &lt;sank&gt;.", "Nobody had slept.",
        "The model did not read the last 1 of 4 sentences.",
    ]  # fmt: skip
    heads = re.findall("<th[^>]*>([^<]*)</th>", shown)
    assert heads == ["sentence", "score", "text (selected sentences are marked)"]


def test_what_a_model_does_not_have_is_refused(runs, trained, tmp_path, precis):
    file, picture = write(tmp_path / "1.txt", TEXT), tmp_path / "map.png"
    for flags, said in (
        (["--run", trained, "--scores=true"], "PointerGenerator selects no sentences"),
        (["--run", trained, f"--heat_map={picture}"], "PointerGenerator selects no sentences"),
        (["--run", runs["matchsum"], f"--heat_map={picture}"], "MatchSum has no attention between sentences"),
        (["--run", trained, "--prompt=words"], "prompt: an option of models of Hugging Face"),
        (["--model", "extractiv"], "extractive, small, docstring"),
    ):
        precis("summarize", file, *flags).failed_in_one_line(said)
    assert not picture.exists()


def test_texts_of_a_selection():
    assert sentence_lines(SUMMARY).splitlines()[1] == "* 2  0.500  Boats <sank>."
    assert marked_document(SUMMARY).plain == "A storm hit the coast. [Boats <sank>.] Nobody had slept."
    out = StringIO()
    console = Console(file=out, force_terminal=True)
    console.print(marked_document(SUMMARY))
    assert "\x1b[1;33m[Boats" in out.getvalue()
    written = page([SUMMARY])
    assert "<sank>" not in written and "Boats &lt;sank&gt;.</mark>" in written and "storm &amp; co" in written
    assert 'title="sentence 2, score 0.500"' in written and written.count('class="selected"') == 1


def test_a_heat_map_of_any_size(tmp_path):
    for size in (1, 90):
        draw_sentence_attention(tmp_path / f"{size}.png", np.full((size, size), 1 / size), [0], "x")
        assert (tmp_path / f"{size}.png").read_bytes().startswith(PNG)
