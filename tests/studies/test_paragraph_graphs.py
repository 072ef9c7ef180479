"""Turns of meetings as documents, and the study that chooses one of them by a graph."""

from itertools import product

import pytest
import torch
from conftest import write_lines

from experiments.studies.controls.tasks import MeetingTurns
from experiments.studies.paragraph_graphs import run

TOPICS = ("budget for new printers", "colour of remote controls", "length of weekly reports")


def turns_of(topic: str, number: int) -> list[str]:
    """Return turns about a topic, all of one length but the last; the first has the most words of the answer."""
    plain = [f"Speaker {turn}: {{pause}} I said {number} things on the {topic}, item {turn}." for turn in range(2, 9)]
    return [f"Speaker 1: We decided for a week: {topic} gets version {number}.", *plain, "Speaker 9: Okay."]


@pytest.fixture
def files(tmp_path):
    """Paths of training and validation queries: three about each of ten meetings, and one about everything."""
    rows = {"train": [], "val": []}
    for meeting, number in product(range(10), range(4)):
        topic, kind = TOPICS[number % 3], "general" if number == 3 else "specific"
        row = {"id": f"M{meeting}#{number}", "type": kind, "query": f"What was decided on the {topic}?"}
        row |= {"document": "\n".join(turns_of(topic, meeting)), "summary": f"Decided: {topic} gets version {meeting}."}
        rows["train" if meeting < 8 else "val"].append(row)
    return [write_lines(tmp_path / f"{split}.jsonl", of_split) for split, of_split in rows.items()]


def test_a_query_comes_with_its_turns_and_those_of_other_queries(files):
    corpus = MeetingTurns(*files, turns=6)
    records = list(corpus.records("train"))
    assert [record.id for record in records] == [f"M{meeting}#{number}" for meeting in range(8) for number in range(3)]
    for record in records:
        meeting, number = int(record.id[1]), int(record.id[-1])
        (query,), *turns = record.parts
        assert query == f"what was decided on the {TOPICS[number]} ?"
        on_topic = [turn for (turn,) in turns if TOPICS[number] in turn]
        assert len(turns) == len({turn for (turn,) in turns}) == 12 and len(on_topic) == 6
        assert not any("okay" in turn or "pause" in turn for (turn,) in turns)
        assert record.references == [[f"speaker 1 : we decided for a week : {TOPICS[number]} gets version {meeting} ."]]
    assert list(corpus.records("train")) == records, "the same documents every time"


def test_graph_inputs_equal_loops():
    weights = torch.rand(5, 5, dtype=torch.float64)
    for turn, values in enumerate(run.graph_inputs(weights).tolist(), start=1):
        others = [other for other in range(1, 5) if other != turn]
        among = sum(float(weights[turn, other]) for other in others)
        through = sum(float(weights[turn, other] * weights[0, other]) for other in others)
        assert values == pytest.approx([float(weights[0, turn]), among / 4, through / 4])


def test_the_graph_finds_the_turns_of_a_query_and_a_permuted_one_does_not(files, capsys):
    run.main([str(path) for path in files])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    right = {row[0].strip("| "): float(row[2]) for row in rows[2:]}
    assert right["similarity"] > 2 * max(right["permuted"], right["none"])
    with pytest.raises(SystemExit, match="2 meetings have queries with enough turns"):
        run.main([str(files[1])] * 2)
