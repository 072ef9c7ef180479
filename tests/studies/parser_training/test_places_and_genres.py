"""Parseval by place and genre, and after errors of the segmenter are repaired."""

from conftest import write_lines
from made_up_treebank import made_up_row, made_up_treebank

from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.relations import GUM
from datamodules.discourse.trees import Span, Tree
from experiments.studies.parser_training.compare_parsers import report as compare
from experiments.studies.parser_training.places_and_genres import PLACES, by_place, edu_units, main
from experiments.studies.parser_training.segmentation_errors import repairs, report
from lightning_modules.discourse_parser.right_branching import RightBranchingParser
from precis.discourse.score_parser import edu_starts, gold_documents, parseval, request_of


def test_places_by_hand():
    """Two paragraphs of two sentences; the first two of them have two EDUs each."""
    spans = [Span(0, 3, 5, "NN", "joint"), Span(0, 1, 3, "NS", "causal"), Span(0, 0, 1, "NS", "causal")]
    spans += [Span(2, 2, 3, "NS", "mode"), Span(4, 4, 5, "NS", "causal")]
    document = TreebankDocument(
        "d", "abcdef", [(i, i + 1) for i in range(6)], sentences=[(0, 2), (2, 4), (4, 5), (5, 6)],
        paragraphs=[(0, 4), (4, 6)], tree=Tree.from_spans(spans, 6),
    )  # fmt: skip
    assert edu_units(document) == ([1, 1, 2, 2, 3, 4], [1, 1, 1, 1, 2, 2])
    other = Tree.from_spans([*spans[:2], *(s._replace(nuclearity="SN", relation="mode") for s in spans[2:])], 6)
    table = by_place([other], [document], 10)
    assert {place: row["nodes"] for place, row in table.items()} == dict(zip(PLACES, (2, 2, 1)))
    values = [[table[place][level].mean for level in "SNRF"] for place in PLACES]
    assert values == [[100, 0, 50, 0], [100, 50, 50, 50], [100, 100, 100, 100]]


def test_tables_are_printed(tmp_path, capsys):
    rows = [made_up_row(number, 3 + number % 3) | {"genre": ["fiction", "news"][number % 2]} for number in range(5)]
    single = {"id": "single", "genre": "fiction", "text": "Rain.", "edus": [[0, 5]], "tree": 0}
    treebank = write_lines(tmp_path / "made_up.jsonl", [*rows, single])
    main([str(treebank), "--parser", "right_branching", "--resamples", "20"])
    printed = capsys.readouterr().out
    assert "| within sentences | right_branching | " in printed and "| fiction | right-branching | 4 | " in printed


def test_repairs_of_a_segmenter_and_a_parser_compared_with_itself(tmp_path):
    """Without any error F is that over gold EDUs; a repair of missed boundaries adds those of its relation alone."""
    gold = gold_documents(made_up_treebank(tmp_path / "treebank.jsonl", documents=9), tuple(GUM.coarse))
    parser = RightBranchingParser()
    starts = [edu_starts(document)[0] for document in gold]
    # each document is one EDU, and has one boundary too many
    named = {name: rows for (name, _), rows in repairs(gold, [{start, start + 4} for start in starts]).items()}
    for document, start, boundaries in zip(gold, starts, named["missed: joint"]):
        assert boundaries == {start, start + 4} | {first for first, _ in document.sentences[1:]}
    text = report(parser, gold, "en")
    expected = parseval([parser.parse(request_of(d)).best_tree() for d in gold], [d.tree for d in gold])
    name, _, score, _ = text.splitlines()[-1].strip("| ").split(" | ")
    assert (name, score) == ("both: gold EDUs", f"{expected['original']['F'].mean:.1f}")
    cells = [line.strip("| ").split(" | ") for line in compare([parser, parser], gold).splitlines()[-4:]]
    assert cells[0][2:6] == [f"{expected['original'][name].mean:.1f}" for name in "SNRF"] and cells[0][6] == "100.0"
    assert cells[1][-1] == cells[3][-1] == "+0.0 [+0.0, +0.0]" and float(cells[3][6]) < 100
