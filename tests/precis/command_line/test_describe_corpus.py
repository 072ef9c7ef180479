import json
from io import StringIO

import numpy as np
import pytest
from conftest import write_lines
from rich.console import Console

from datamodules.corpora import Files, Texts
from datamodules.corpora.corpus import build_documents
from precis.command_line.describe_corpus import describe, print_descriptions

LONG = "One two three four. Five six.\n\nSeven [red]eight[/red]."
ROWS = [{"id": "a", "document": LONG, "summary": ["Ab bc.", "Cd de. Ef fg."]}]
ROWS += 2 * [{"id": "b", "document": "One two.", "summary": ["Hello."]}]


def printed(description):
    console = Console(record=True, width=120, file=StringIO())
    print_descriptions([description], console)
    return console.export_text()


@pytest.mark.filterwarnings("ignore:Files val. left out 1")
def test_figures_equal_those_counted_by_hand_and_the_table_takes_text_literally(tmp_path):
    path = write_lines(tmp_path / "x.jsonl", ROWS)
    table = build_documents(Files(val=str(path)), "val", tmp_path / "cache", on_bad_record="skip")
    description = describe("val", table, examples=1)
    by_hand = {
        "document_words": [8, 2], "document_sentences": [3, 1], "parts": [2, 1], "references": [2, 1],
        "reference_words": [2, 4, 1], "reference_sentences": [1, 2, 1], "compression": [8 / 3, 2 / 1],
    }  # fmt: skip
    for name, values in by_hand.items():
        expected = {"mean": np.mean(values), "median": np.median(values), "p95": np.percentile(values, 95)}
        assert description[name] == pytest.approx(expected), name
    assert description["documents"] == 2 and [document.id for document in description["examples"]] == ["a"]
    (skipped,) = description["skipped"]
    assert skipped["where"] == f"{tmp_path}/x.jsonl:3 (id 'b')"
    text = printed(description)
    for piece in ("5.0 / 5.0 / 7.7", "skipped", "x.jsonl:3", "Seven [red]eight[/red].", "reference: Cd de. Ef fg."):
        assert piece in text
    without = describe("test", build_documents(Texts([("t", "Some text here.")]), "test", tmp_path))
    assert without["compression"] is None and without["references"]["mean"] == 0 and "none" in printed(without)


def test_equal_texts_of_two_splits_are_counted_apart_from_case_and_space(tmp_path, precis):
    texts = {"train": ["A lynx.", "a heron paints"], "val": ["A heron  PAINTS", "Nobody."], "test": ["nobody."] * 2}
    files = []
    for split, documents in texts.items():
        rows = [{"id": f"{split}-{n}", "document": text, "summary": "x"} for n, text in enumerate(documents)]
        files.append(f"--corpus.{split}={write_lines(tmp_path / f'{split}.jsonl', rows)}")
    arguments = ["corpus", "--corpus=Files", *files, "--examples=0"]
    assert "val val-0 equals train train-1" in precis(*arguments).out
    overlaps = {split["split"]: split["overlaps"] for split in json.loads(precis(*arguments, "--json=true").out)}
    assert [len(overlaps[split]) for split in texts] == [0, 1, 2]
    assert overlaps["test"][1] == {"id": "test-1", "other_split": "val", "other_id": "val-1"}
