import json
import re
import shutil
import weakref
from io import StringIO

import numpy as np
import pytest
from cases_extractive import CASES
from rich.console import Console

from datamodules.corpora import Texts
from datamodules.corpora.corpus import as_document
from datamodules.documents import Document, UserError
from datamodules.matchsum import MatchSumData
from lightning_modules.extractive.summary import ExtractiveSummary
from precis.runs.run_folder import load_run
from precis.summarizing.show_extraction import draw_sentence_attention, marked_document, page, sentence_lines
from precis.training.run_scorer import RunScorer

PNG = b"\x89PNG\r\n\x1a\n"
TEXT = "A storm hit the coast. Boats <sank>. Nobody had slept."
SUMMARY = ExtractiveSummary(
    "storm & co", ["Boats <sank>."], [], positions=[1], sentence_scores=[0.25, 0.5, 0.125],
    document=["A storm hit the coast.", "Boats <sank>.", "Nobody had slept."],
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory, corpus_files):
    """Run folders of BertSum, and of MatchSum over its proposals."""
    from precis.command_line.cli import main

    folder, (bertsum, matchsum) = tmp_path_factory.mktemp("extractive"), CASES[:2]
    common = ["--trainer.max_steps=2", "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false"]
    common += ["--trainer.enable_model_summary=false", "--wandb=off", "--previews=0"]
    found = {name: folder / name for name in ("bertsum", "matchsum")}
    assert main(["fit", *bertsum.arguments(corpus_files), *common, f"--run_dir={found['bertsum']}"]) == 0
    given = [a for a in matchsum.arguments(corpus_files) if not a.startswith("--data.scorer")]
    given += ["--data.scorer=precis.training.run_scorer.RunScorer", f"--data.scorer.run={found['bertsum']}"]
    assert main(["fit", *given, *common, f"--run_dir={found['matchsum']}"]) == 0
    return found


@pytest.mark.parametrize("name", ["bertsum", "matchsum"])
def test_summaries_have_scores_and_positions(name, runs, tmp_path, precis):
    file = tmp_path / "storm.txt"
    file.write_text(TEXT, encoding="utf-8")
    done = precis("summarize", "--checkpoint", runs[name], file, "--json", "true")
    assert done.status == 0, done.err
    row = json.loads(done.out)
    assert len(row["sentence_scores"]) == 3 and 1 <= len(row["positions"]) <= 2
    assert all(sentence in TEXT for sentence in row["summary"])
    lines = precis("summarize", "--checkpoint", runs[name], file, "--scores", "true").out.splitlines()
    assert [line[0] == "*" for line in lines] == [index in row["positions"] for index in range(3)]
    assert all(f"{score:.3f}" in line for score, line in zip(row["sentence_scores"], lines))
    marked = precis("summarize", "--checkpoint", runs[name], file, "--mark", "true").out.strip()
    assert re.sub(r"[\[\]]", "", marked) == TEXT and marked.count("[") == len(row["positions"])


def test_page_and_heat_map_are_written(runs, tmp_path, precis):
    for number in (1, 2):
        (tmp_path / f"{number}.txt").write_text(TEXT, encoding="utf-8")
    out = ["--html", tmp_path / "page.html", "--heat_map", tmp_path / "map.png"]
    done = precis("summarize", "--checkpoint", runs["bertsum"], tmp_path / "1.txt", tmp_path / "2.txt", *out)
    assert done.status == 0, done.err
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<mark") == 2
    for number in (1, 2):
        assert (tmp_path / f"map-{number}.png").read_bytes().startswith(PNG)


def test_a_page_has_paragraphs_headed_columns_and_what_was_not_read():
    shown = page([SUMMARY], {"storm & co": [2, 2]})
    assert re.findall("<p>(.*)</p>", re.sub("<(/?span|/?mark)[^>]*>", "", shown)) == [
        "A storm hit the coast. Boats &lt;sank&gt;.", "Nobody had slept.",
        "The model did not read the last 1 of 4 sentences.",
    ]  # fmt: skip
    heads = re.findall("<th[^>]*>([^<]*)</th>", shown)
    assert heads == ["sentence", "score", "text (selected sentences are marked)"]


def test_what_a_model_does_not_have_is_refused(runs, trained, tmp_path, precis):
    (tmp_path / "1.txt").write_text(TEXT, encoding="utf-8")
    for run, option, part in (
        (trained, "--scores=true", "PointerGenerator selects no sentences"),
        (trained, "--heat_map=map.png", "PointerGenerator selects no sentences"),
        (runs["matchsum"], f"--heat_map={tmp_path}/map.png", "MatchSum has no attention between sentences"),
    ):
        done = precis("summarize", "--checkpoint", run, tmp_path / "1.txt", option)
        assert done.status == 1 and part in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "map.png").exists()


def test_a_run_proposes_what_its_model_scores(runs):
    run = load_run(runs["bertsum"])
    batch = next(iter(run.data.val_dataloader()))
    expected = dict(zip(batch.ids, run.model.sentence_scores(batch)))
    documents = [as_document(row) for row in run.data.documents("val")]
    for size, pool in ((1, 512), (10_000, 512), (10_000, 2)):
        found = RunScorer(runs["bertsum"], size, pool).sentence_scores(documents)
        for document, scores in zip(documents, found, strict=True):
            if document.id in expected:
                assert scores == pytest.approx(expected[document.id], abs=1e-5)


def test_sentences_that_a_run_could_not_score_are_proposed_last(runs, tmp_path):
    config = (runs["bertsum"] / "config.yaml").read_text(encoding="utf-8")
    run = shutil.copytree(runs["bertsum"], tmp_path / "run")
    changed = re.sub(r"\bmax_words: null", "max_words: 6", re.sub(r"\bmin_words: 0", "min_words: 3", config))
    assert changed.count("_words: 6") == changed.count("_words: 3") == 1
    (run / "config.yaml").write_text(changed, encoding="utf-8")
    sentences = ["Boats.", "A storm hit.", "It was the longest storm that anybody could remember.", "Rain fell on."]
    documents = [Document("mixed", [sentences]), Document("short", [["Boats.", "Rain."]])]
    mixed, short = RunScorer(run).sentence_scores(documents)
    assert mixed[0] == mixed[2] == 0 < min(mixed[1], mixed[3])
    assert min(short) > 0, "where no sentence is of a good length, all are candidates"
    assert RunScorer(run).fingerprint == RunScorer(runs["bertsum"]).fingerprint
    whole = MatchSumData(Texts([]), RunScorer(run), keep=2, sizes=[2], encoder=None)
    assert whole.choices(mixed) == [[1, 3]]


def test_few_documents_are_in_memory_while_a_corpus_is_scored(runs):
    class Watched(Document):
        """A document that can be counted while it is in memory."""

    live: set[int] = set()
    most = 0

    def corpus():
        nonlocal most
        for number in range(60):
            document = Watched(str(number), [[f"A storm hit coast {number}.", "Boats sank."]])
            live.add(number)
            weakref.finalize(document, live.discard, number)
            most = max(most, len(live))
            yield document

    scores = list(RunScorer(runs["bertsum"], pool=5).sentence_scores(corpus()))
    assert [len(row) for row in scores] == [2] * 60 and most <= 2 * 5


def test_the_run_of_another_model_proposes_nothing(trained):
    with pytest.raises(UserError, match="PointerGenerator scores no sentences; give a run of BertSum"):
        RunScorer(trained).sentence_scores([])


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
