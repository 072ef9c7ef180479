"""Scores of parsers, and discourse in other languages: a parser and a segmenter trained on a Chinese treebank."""

import json
import math
import random
import warnings

import pytest
import torch
from conftest import write, write_lines
from made_up_treebank import made_up_row, made_up_treebank

from datamodules.discourse.parses import ParseRequest
from datamodules.discourse.treebanks import read_treebank
from datamodules.documents import Document
from datamodules.treebank import SegmentationData, TreebankData
from experiments.studies.parser_training.segmenter import main as segmenter_study
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.discourse_parser.segmenter import EduSegmenter
from lightning_modules.metrics.parseval import parseval_scores
from precis.config.parsers import load_parser
from precis.discourse.score_parser import intervals
from precis.statistics.statistics import resampled_sums


def test_intervals_are_quantiles_of_resampled_scores():
    rng = random.Random(0)
    counts = torch.tensor([[rng.randrange(9) for _ in range(4)] + [10, 12] for _ in range(12)])
    sums = resampled_sums(counts.double().numpy(), 500, 0)
    for column, interval in enumerate(intervals(counts, parseval_scores, 500)):
        drawn = sorted(200 * row[column] / (row[4] + row[5]) for row in sums)
        assert interval.mean == pytest.approx(200 * counts[:, column].sum().item() / (12 * 22))
        assert drawn[11] <= interval.low <= drawn[13] and drawn[486] <= interval.high <= drawn[488]
    assert all(math.isnan(value) for value in intervals(torch.zeros(3, 6), parseval_scores, 10)[0])


def test_scores_of_a_parser(precis, tmp_path):
    treebank, out, weights = made_up_treebank(tmp_path / "made_up.jsonl"), tmp_path / "scores", tmp_path / "random"
    torch.manual_seed(0)
    DiscourseParser(members=2, hidden_size=8, fit_size=4, dropout=0.0).eval().save(weights)
    done = precis("score-parser", treebank, "--parser", weights, "--out", out, "--resamples", 50).succeeded()
    for text in ("original Parseval, gold EDUs | right-branching", "RST-Parseval, end to end", "EDU F1"):
        assert text in done.out
    assert (out / "scores.md").read_text().strip() == done.out.strip()
    result = json.loads((out / "scores.json").read_text())
    assert result["documents"] == 6 and result["edus"] == 48
    assert set(result["gold_edus"]) == {"random", "right-branching"}
    segmentation = result["end_to_end"]["segmentation_f1"]
    assert 0 < segmentation["low"] <= segmentation["value"] <= segmentation["high"] <= 100
    bare = [json.loads(row) | {"sentences": None} for row in treebank.read_text(encoding="utf-8").splitlines()]
    path = write_lines(tmp_path / "bare.jsonl", bare)  # sentences are then found in the text, also for the baseline
    precis("score-parser", path, "--parser", weights, "--out", out, "--resamples", 50).succeeded()
    assert json.loads((out / "scores.json").read_text())["gold_edus"] == result["gold_edus"]


@pytest.mark.integration
def test_a_treebank_with_relations_of_its_own(precis, tmp_path):
    """Train, score and parse with relation names that no inventory of the suite has."""
    names = {"causal-cause": "because", "adversative-concession": "yet", "contingency-condition": "if"}
    rows = made_up_treebank(tmp_path / "gum.jsonl").read_text(encoding="utf-8")
    for old, new in {**names, "joint-list": "and"}.items():
        rows = rows.replace(old, new)
    treebank, run = write(tmp_path / "own.jsonl", rows), tmp_path / "run"
    arguments = ["--model=DiscourseParser", "--model.hidden_size=8", "--data=TreebankData", f"--run_dir={run}"]
    arguments += [f"--data.train={treebank}", f"--data.val={treebank}", "--trainer.max_steps=1"]
    arguments += ["--trainer.accelerator=cpu", "--checkpoint.monitor=val/loss", "--checkpoint.mode=min", "--wandb=off"]
    precis("fit", *arguments).refused("is not in the inventory GUM; choose that of its treebank (--model.inv")
    precis("fit", *arguments, "--model.inventory={hypotactic: [because, yet, if], and: []}").succeeded()
    precis("score-parser", treebank, "--parser", run, "--out", tmp_path / "scores", "--resamples", 10).succeeded()
    assert json.loads((tmp_path / "scores" / "scores.json").read_text(encoding="utf-8"))["relations"] == 2
    text = "The otter swam, because it rained. The heron watched, and nobody else did. Then they left."
    out = precis("parse", "--parser", run, "--show", write(tmp_path / "a.txt", text)).succeeded().out
    assert "hypotactic" in out or " and" in out.replace(text, "")


@pytest.mark.parametrize("change, options, problem", [
    ({"tree": None}, [], "the first 'made-up-1'; a parser is scored on gold trees"),
    ({"tree": ["NS", "odd", 0, 1], "edus": [[0, 15], [16, 34]], "text": "The otter slept because it rained.",
      "sentences": [], "paragraphs": []}, [], "made-up-1, EDUs 0"),
])  # fmt: skip
def test_wrong_input_in_one_line(precis, tmp_path, change, options, problem):
    row = made_up_row(1, 3) | {"tree_nary": None} | change
    row = {name: value for name, value in row.items() if value is not None}
    path = write_lines(tmp_path / "made_up.jsonl", [made_up_row(0, 3), row])
    precis("score-parser", path, "--parser", "right_branching", *options).failed_in_one_line(problem)


# As GCDT writes it: words between spaces, and no sentences.
TREE = """<rst><header><relations>
<rel name="joint-list" type="multinuc"/><rel name="elaboration-additional" type="rst"/>
</relations></header><body>
<segment id="1" parent="4" relname="span">他 在 2017年 11月 回 家 ，</segment>
<segment id="2" parent="1" relname="elaboration-additional">因为 “ 下 雨 ” 了 。</segment>
<segment id="3" parent="5" relname="joint-list">我们 去 Byron 的 公园 。</segment>
<group id="4" type="span" parent="5" relname="joint-list"/>
<group id="5" type="multinuc"/>
</body></rst>"""
TEXT = "他在2017年11月回家，因为“下雨”了。我们去Byron的公园。"
EDUS = ["他在2017年11月回家，", "因为“下雨”了。", "我们去Byron的公园。"]
RUSSIAN = Document("ru", [["Выдра живёт за рекой.", "Она чинит мост."]])


@pytest.fixture
def treebank(tmp_path):
    folder = tmp_path / "treebank"
    for name in "ab":
        write_lines(folder / f"{name}.rs3", [TREE])
    return folder


def warnings_of(function, *arguments) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*arguments)
    return [message for warning in caught if "these texts are not" in (message := str(warning.message))]


def test_a_chinese_treebank_is_read_as_the_language_writes_it(treebank):
    document, _ = read_treebank(treebank, "zh")
    assert document.text == TEXT and document.edu_texts == EDUS
    assert [TEXT[start:end] for start, end in document.sentences] == ["".join(EDUS[:2]), EDUS[2]]
    english, _ = read_treebank(treebank)
    assert english.edu_texts[1] == "因为 “ 下 雨 ” 了 。" and not english.sentences and english.tree == document.tree
    data = TreebankData(treebank, treebank, language="zh")
    features = data.encode(data.documents("train")[0], None)
    assert features.sentence.tolist() == [0, 0, 1] and features.token_edus.bincount().tolist() == [9, 8, 8]
    for sentences in ("gold", "own"):
        features = SegmentationData(treebank, treebank, language="zh", sentences=sentences).encode(document, None)
        assert features.starts == [0, document.edus[2][0]] and features.tags.sum() == 3


def test_english_parsers_say_so(precis, tmp_path):
    parser, request = DiscourseParser.load("small", band=2), ParseRequest.of(RUSSIAN)
    (warning, *_) = messages = warnings_of(parser.parse, request)
    assert warning.startswith("the discourse parsers and EDU segmenters of the suite are English, and these texts")
    assert len(set(messages)) == 1  # Python shows the same warning once
    assert warnings_of(EduSegmenter.load("small").segment, [request]) == [warning]
    assert not warnings_of(parser.parse, ParseRequest.of(Document("en", [["An otter lives by the mill."]])))
    parser.is_english = parser.segmenter.is_english = False
    assert not warnings_of(parser.parse, request)
    german = write(tmp_path / "text.txt", "Es regnet.")
    assert warnings_of(precis, "parse", "--show", "--parser=small", "--language=de", german) == [warning]


@pytest.mark.integration
def test_a_parser_and_a_segmenter_are_trained_and_used(precis, treebank, tmp_path, caplog):
    run, text = tmp_path / "run", write(tmp_path / "text.txt", TEXT)
    files = [f"--data.train={treebank}", f"--data.val={treebank}", "--data.language=zh", "--model.hidden_size=8"]
    files += ["--trainer.accelerator=cpu", "--trainer.max_epochs=2"]
    config = "experiments/configs/discourse_parser/small.yaml"
    precis("fit", "--config", config, *files, "--data.licences=null", f"--run_dir={run}", "--wandb=off").succeeded()
    assert f"next: precis validate --run {run}" in caplog.text, "there is no treebank for a test"
    quiet = [f"--trainer.{name}=false" for name in ("logger", "enable_checkpointing", "enable_progress_bar")]
    segmenter_study(["fit", *files, f"--out={run / 'segmenter'}", "--model.projection=8", *quiet])
    parser = load_parser(str(run / "checkpoints" / "best.ckpt"))
    assert isinstance(parser.segmenter, EduSegmenter) and not parser.is_english and not parser.segmenter.is_english
    stored = EduSegmenter.load(run / "segmenter").state_to_keep()
    assert all(torch.equal(value, stored[name]) for name, value in parser.segmenter.state_to_keep().items())
    chinese = ["--parser", run, "--language", "zh"]
    scored = precis("score-parser", treebank, *chinese, "--resamples", 20).succeeded()
    shown = precis("parse", "--show", text, *chinese).succeeded()
    assert "right-branching" in scored.out and "Byron" in shown.out and "English" not in shown.err + scored.err
