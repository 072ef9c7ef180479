"""Treebanks of parsed texts, from which another parser can be trained."""

from dataclasses import replace

import pytest
import torch
from conftest import write_lines
from made_up_treebank import made_up_treebank

from datamodules.discourse.parses import ParseRequest
from datamodules.discourse.treebanks import read_treebank
from datamodules.documents import Document
from datamodules.treebank import TreebankData
from experiments.studies.parser_training.parsed_treebank import main, passages
from lightning_modules.discourse_parser.parser import DiscourseParser

pytestmark = pytest.mark.integration

STORY = "The otter slept because it rained. A heron left when it was late. It sang.\n\nThe lynx came back."
NOTE = "Rain fell, although the otter had hoped for sun. It slept."


def test_trees_of_the_parser_are_read_again_after_copies_of_gold_trees(tmp_path, capsys):
    torch.manual_seed(0)
    DiscourseParser(hidden_size=8, fit_size=2).save(folder := tmp_path / "weights")
    records = {"a": STORY, "same": STORY, "b": NOTE, "single": "Rain.", "not read": "It sang. It slept."}
    lines = [{"document": text, "id": name} for name, text in records.items()]
    texts, out = write_lines(tmp_path / "texts.jsonl", lines), tmp_path / "parsed.jsonl"
    bank = made_up_treebank(tmp_path / "gold.jsonl", documents=2)
    options = ["--number", "3", "--licence", "CC BY 4.0", "--gold", str(bank), "--gold_copies", "2"]
    main([str(texts), "--out", str(out), "--parser", str(folder), *options])
    assert "2 trees and 4 gold trees; 1 document of a single EDU left out" in capsys.readouterr().out
    gold = [document for document in read_treebank(bank) for _ in range(2)]
    copies, parsed = read_treebank(out)[:4], read_treebank(out)[4:]
    assert [replace(document, id=original.id) for document, original in zip(copies, gold)] == gold
    assert [document.id for document in copies] == ["made-up-0", "made-up-0 copy 2", "made-up-1", "made-up-1 copy 2"]
    assert [document.id for document in parsed] == [f"{tmp_path.name}/texts.jsonl/{name}" for name in ("a", "b")]
    parser = DiscourseParser.load(folder)
    for document, text in zip(parsed, (STORY, NOTE)):
        paragraphs = [paragraph.split(". ") for paragraph in text.split("\n\n")]
        parts = [[f"{s.removesuffix('.')}." for s in sentences] for sentences in paragraphs]
        parse = parser.parse(ParseRequest.of(Document("any", parts)))
        assert document.text == text and document.licence == "CC BY 4.0"
        assert [list(edu) for edu in document.edus] == parse.edus.tolist()
        assert document.tree.binary() == parse.best_tree()
        assert [document.text[a:b] for a, b in document.sentences] == [s for part in parts for s in part]
        assert [document.text[a:b] for a, b in document.paragraphs] == text.split("\n\n")
    data = TreebankData(train=out, val=out)
    data.setup("fit")
    assert len(data.documents("train")) == 6


def test_passages_are_whole_sentences():
    whole = [["a b c", "d e"], ["f"], ["g h i"]]
    for words, parts in ((1, [["a b c"]]), (3, [["a b c"]]), (5, whole[:1]), (6, whole[:2]), (9, whole)):
        assert passages(Document("x", whole), 1, words) == [Document("x", parts)]
    divided = [Document("x", [["a b c"]]), Document("x-1", [["d e"], ["f"]]), Document("x-2", [["g h i"]])]
    assert passages(Document("x", whole), 3, 3) == passages(Document("x", whole), 9, 3) == divided
    assert passages(Document("x", whole), 2, 3) == divided[:2]
    assert passages(Document("x", [*whole, ["j"]]), 9, 5)[-1].id == "x-1", "shorter than a fourth"
