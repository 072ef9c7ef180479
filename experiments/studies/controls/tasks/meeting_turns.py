"""Queries about meetings with turns of speakers: the graph can lead from a query to the turns that answer it."""

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

from datamodules.corpora.corpus import Corpus
from datamodules.documents import Record
from datamodules.text.hashing import file_digest
from datamodules.text.words import tokenize
from experiments.studies.discourse_extraction.documents import content_f1, read_records

MIN_WORDS = 8  # of a turn; shorter ones are left out
_NOISE = re.compile(r"\{[^}]*\}")  # {pause}, {disfmarker} and the like in the transcripts


class MeetingTurns(Corpus):
    """Queries of QMSum about a part of a meeting, each with turns that answer it and turns that answer other queries.

    The first paragraph of a document is the query, each other one a turn, in random order and lower case. Turns that
    answer it are from the passages that annotators marked (the gold spans): the closest one, with the highest F1 of
    content words with the summary, and randomly drawn ones. Queries about everything are left out, and so are those
    with too few turns of either kind.

    Args:
        train, val: files of QMSum with gold spans.
        turns: number of turns of either kind, at least 1.

    Raises:
        ValueError: if no turn is to be read.
    """

    def __init__(self, train: Path, val: Path, turns: int = 6) -> None:
        if turns < 1:
            raise ValueError(f"corpus.turns must be at least 1, got {turns}")
        self.paths = {"train": Path(train), "val": Path(val)}
        self.turns = turns

    def splits(self) -> list[str]:
        return list(self.paths)

    def fingerprint(self, split: str) -> str:
        return f"meeting turns 1 {self.turns} of {file_digest(self.paths[split])}"

    def records(self, split: str) -> Iterator[Record]:
        rows = [row for row in read_records(self.paths[split]) if row["type"] == "specific"]
        turns = {row["id"]: turns_of(row["document"]) for row in rows}
        meeting_of = {row["id"]: row["id"].split("#")[0] for row in rows}
        for row in rows:
            same_meeting = (id for id in turns if meeting_of[id] == meeting_of[row["id"]])
            of_others = {turn for id in same_meeting for turn in turns[id]} - set(turns[row["id"]])
            if min(len(turns[row["id"]]), len(of_others)) >= self.turns:
                yield self._record(row, turns[row["id"]], sorted(of_others))

    def _record(self, row: dict, turns: list[str], of_others: list[str]) -> Record:
        """Return the document of a query, from its own turns and those of other queries about the meeting."""
        random = Random(row["id"])  # so that a choice does not depend on other documents
        closest = max(turns, key=lambda turn: content_f1(turn, [row["summary"]]))
        drawn = random.sample([turn for turn in turns if turn != closest], self.turns - 1)
        chosen = [closest, *drawn, *random.sample(of_others, self.turns)]
        random.shuffle(chosen)
        parts = [[text] for text in (words_of(row["query"]), *chosen)]
        return Record(row["id"], parts, [[closest]], where=row["id"])


def turns_of(passages: str) -> list[str]:
    """Return the turns that are long enough, each once, in order."""
    turns = dict.fromkeys(words_of(line) for line in passages.split("\n"))
    return [turn for turn in turns if len(turn.split()) >= MIN_WORDS]


def words_of(text: str) -> str:
    """Return the words of a text in lower case, separated by spaces, without marks of the transcript."""
    return " ".join(tokenize(_NOISE.sub(" ", text)))
