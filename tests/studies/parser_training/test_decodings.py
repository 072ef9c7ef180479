"""Trees of a parser's decodings, scored."""

import torch
from made_up_treebank import made_up_treebank

from datamodules.discourse.parses import nodes_of
from experiments.studies.parser_training.decodings import decoded_trees, main
from lightning_modules.discourse_parser.parser import DiscourseParser
from precis.discourse.score_parser import gold_documents, parsed, request_of

SMALL = {"hidden_size": 8, "fit_size": 2}


def test_decodings_of_one_scorer_and_of_several(tmp_path, capsys):
    treebank = made_up_treebank(tmp_path / "trees.jsonl", documents=3)
    torch.manual_seed(0)
    parser = DiscourseParser(**SMALL, members=2).eval()
    documents = gold_documents(treebank, parser.relations)
    before = parser.reader
    trees = decoded_trees(parser, documents)
    assert list(trees) == ["mbr", "mbr_spans", "scorer 1 of 2, mbr", "scorer 1 of 2, cky"] and parser.reader is before
    alone = DiscourseParser(**SMALL, members=1, decoding="cky").eval()
    found = decoded_trees(alone, documents)
    own = [one.best_tree() for one in parsed(alone, [request_of(document) for document in documents], "")]
    assert found["cky"] == own and len(found["mbr"]) == 3
    assert len(nodes_of(found["mbr"][0], alone.relations)) == len(documents[0].edus) - 1
    parser.save(tmp_path / "parser")
    main([str(treebank), "--parser", str(tmp_path / "parser")])
    assert "| scorer 1 of 2, cky | " in capsys.readouterr().out
