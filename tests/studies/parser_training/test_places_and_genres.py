"""Parseval by place and genre."""

import json

from conftest import write_lines
from made_up_treebank import made_up_row

from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.trees import Span, Tree
from experiments.studies.parser_training.places_and_genres import PLACES, by_place, edu_units, main


def test_places_by_hand():
    """Two paragraphs of two sentences; the first two of them have two EDUs each."""
    spans = [
        Span(0, 3, 5, "NN", "joint"), Span(0, 1, 3, "NS", "causal"), Span(0, 0, 1, "NS", "causal"),
        Span(2, 2, 3, "NS", "mode"), Span(4, 4, 5, "NS", "causal"),
    ]  # fmt: skip
    document = TreebankDocument(
        "d", "abcdef", [(i, i + 1) for i in range(6)], sentences=[(0, 2), (2, 4), (4, 5), (5, 6)],
        paragraphs=[(0, 4), (4, 6)], tree=Tree.from_spans(spans, 6),
    )  # fmt: skip
    assert edu_units(document) == ([1, 1, 2, 2, 3, 4], [1, 1, 1, 1, 2, 2])
    other = Tree.from_spans([*spans[:2], *(s._replace(nuclearity="SN", relation="mode") for s in spans[2:])], 6)
    table = by_place([other], [document], 10)
    assert {place: row["nodes"] for place, row in table.items()} == dict(zip(PLACES, (2, 2, 1)))
    values = {place: [row[level].mean for level in "SNRF"] for place, row in table.items()}
    assert values == {
        PLACES[0]: [100, 0, 50, 0], PLACES[1]: [100, 50, 50, 50], PLACES[2]: [100, 100, 100, 100]
    }  # fmt: skip


def test_tables_are_printed(tmp_path, capsys):
    rows = [made_up_row(number, 3 + number % 3) | {"genre": ["fiction", "news"][number % 2]} for number in range(5)]
    single = {"id": "single", "genre": "fiction", "text": "Rain.", "edus": [[0, 5]], "tree": 0}
    treebank = write_lines(tmp_path / "made_up.jsonl", [json.dumps(row) for row in [*rows, single]])
    main([str(treebank), "--parser", "right_branching", "--resamples", "20"])
    printed = capsys.readouterr().out
    assert "| within sentences | right_branching | " in printed and "| fiction | right-branching | 4 | " in printed
