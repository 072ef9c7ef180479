"""Turns of meetings as documents, and the study that chooses one of them by a graph."""

import json

import pytest
import torch

from experiments.studies.controls.tasks import MeetingTurns
from experiments.studies.meeting_graph import run

TOPICS = ("budget for new printers", "colour of remote controls", "length of weekly reports")


def turns_of(topic: str, number: int) -> list[str]:
    """Return turns about a topic, all of one length but the last; the first has the most words of the answer."""
    plain = [f"Speaker {turn}: {{pause}} I said {number} things on the {topic}, item {turn}." for turn in range(2, 9)]
    return [f"Speaker 1: We decided for a week: {topic} gets version {number}.", *plain, "Speaker 9: Okay."]


@pytest.fixture
def files(tmp_path):
    """Paths of training and validation queries: three about each of ten meetings, and one about everything."""
    paths = []
    for split, meetings in (("train", range(8)), ("val", range(8, 10))):
        rows = []
        for meeting in meetings:
            for number, topic in enumerate(TOPICS):
                rows.append({
                    "id": f"M{meeting}#{number}", "type": "specific", "query": f"What was decided on the {topic}?",
                    "document": "\n".join(turns_of(topic, meeting)),
                    "summary": f"They decided that {topic} gets version {meeting}.",
                })  # fmt: skip
            rows.append(rows[-1] | {"id": f"M{meeting}#9", "type": "general"})
        paths.append(tmp_path / f"{split}.jsonl")
        paths[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return paths


@pytest.mark.parametrize("target", ["turn", "summary"])
def test_a_query_comes_with_its_turns_and_those_of_other_queries(files, target):
    corpus = MeetingTurns(*files, target=target, turns=6)
    records = list(corpus.records("train"))
    assert [record.id for record in records] == [f"M{meeting}#{number}" for meeting in range(8) for number in range(3)]
    for record in records:
        meeting, number = int(record.id[1]), int(record.id[-1])
        (query,), *turns = record.parts
        assert query == f"what was decided on the {TOPICS[number]} ?"
        own = [turn for (turn,) in turns if TOPICS[number] in turn]
        assert len(turns) == len({turn for (turn,) in turns}) == 12 and len(own) == 6
        assert not any("okay" in turn or "pause" in turn for (turn,) in turns)
        closest = f"speaker 1 : we decided for a week : {TOPICS[number]} gets version {meeting} ."
        assert closest in own
        summary = f"they decided that {TOPICS[number]} gets version {meeting} ."
        assert record.references == [[closest if target == "turn" else summary]]
    assert list(corpus.records("train")) == records, "the same documents every time"


def test_graph_inputs_equal_loops():
    weights = torch.rand(5, 5, dtype=torch.float64)
    weights = (weights + weights.T).fill_diagonal_(1)
    inputs = run.graph_inputs(weights)
    for turn in range(4):
        others = [other for other in range(4) if other != turn]
        among = [float(weights[turn + 1, other + 1]) for other in others]
        steps = [edge * float(weights[0, other + 1]) for edge, other in zip(among, others)]
        expected = [float(weights[0, turn + 1]), sum(among) / 4, sum(steps) / 4]
        assert inputs[turn].tolist() == pytest.approx(expected)


def test_the_graph_finds_the_turns_of_a_query_and_a_permuted_one_does_not(files, capsys):
    run.main([str(path) for path in files])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    right = {row[0].strip("| "): float(row[2]) for row in rows[2:]}
    assert right["similarity"] > 2 * max(right["permuted"], right["none"])
    with pytest.raises(SystemExit, match="2 meetings have queries with enough turns"):
        run.main([str(files[1])] * 2)
