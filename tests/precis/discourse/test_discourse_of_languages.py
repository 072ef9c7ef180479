"""Discourse in other languages: a Chinese treebank, a parser and a segmenter trained on it, and the English ones."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from conftest import write, write_lines

from datamodules.discourse.parses import ParseRequest
from datamodules.discourse.treebanks import read_treebank
from datamodules.documents import Document
from datamodules.graphs import make_graph
from datamodules.graphs.rst import RST
from datamodules.treebank import SegmentationData, TreebankData
from experiments.studies.parser_training.segmenter import main as segmenter_study
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.discourse_parser.segmenter import EduSegmenter
from precis.config.parsers import load_parser

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


def test_english_parsers_say_so():
    parser, request = DiscourseParser.load("small", band=2), ParseRequest.of(RUSSIAN)
    (warning, *_) = messages = warnings_of(parser.parse, request)
    assert warning.startswith("the discourse parsers and EDU segmenters of the suite are English, and these texts")
    assert len(set(messages)) == 1  # Python shows the same warning once
    assert warnings_of(EduSegmenter.load("small").segment, [request]) == [warning]
    assert not warnings_of(parser.parse, ParseRequest.of(Document("en", [["An otter lives by the mill."]])))
    parser.is_english = parser.segmenter.is_english = False
    assert not warnings_of(parser.parse, request)


def test_english_graphs_say_so(tmp_path):
    graph = make_graph("discourse")
    assert warnings_of(graph.prepare, [RUSSIAN]) and not warnings_of(graph.prepare, [])
    rst = RST(SimpleNamespace(is_english=True, fingerprint="x", rows="side", band=8), tmp_path / "parses")
    for each in (graph, rst):
        each.language = "de"
        assert warnings_of(each.prepare, [])


@pytest.mark.integration
def test_a_parser_and_a_segmenter_are_trained_and_used(precis, treebank, tmp_path):
    run, text = tmp_path / "run", write(tmp_path / "text.txt", TEXT)
    files = [f"--data.train={treebank}", f"--data.val={treebank}", "--data.language=zh", "--model.hidden_size=8"]
    files += ["--trainer.accelerator=cpu", "--trainer.max_epochs=2"]
    config = "experiments/configs/discourse_parser/small.yaml"
    precis("fit", "--config", config, *files, "--data.licences=null", f"--run_dir={run}", "--wandb=off").succeeded()
    quiet = [f"--trainer.{name}=false" for name in ("logger", "enable_checkpointing", "enable_progress_bar")]
    segmenter_study(["fit", *files, f"--out={run / 'segmenter'}", "--model.projection=8", *quiet])
    parser = load_parser(str(run))
    assert isinstance(parser.segmenter, EduSegmenter) and not parser.is_english and not parser.segmenter.is_english
    stored = EduSegmenter.load(run / "segmenter").state_to_keep()
    assert all(torch.equal(value, stored[name]) for name, value in parser.segmenter.state_to_keep().items())
    chinese = ["--parser", run, "--language", "zh"]
    scored = precis("score-parser", treebank, *chinese, "--resamples", 20).succeeded()
    shown = precis("parse", "--show", text, *chinese).succeeded()
    assert "right-branching" in scored.out and "Byron" in shown.out and "English" not in shown.err + scored.err
