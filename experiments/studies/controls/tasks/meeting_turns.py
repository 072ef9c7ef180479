"""Queries about meetings with turns of speakers: the graph can lead from a query to the turns that answer it."""

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Literal, get_args

from datamodules.corpora.corpus import Corpus
from datamodules.documents import Record
from datamodules.text.hashing import file_digest
from datamodules.text.words import tokenize
from experiments.studies.discourse_extraction.documents import content_f1, read_records

Target = Literal["turn", "summary"]
_NOISE = re.compile(r"\{[^}]*\}")  # {pause}, {disfmarker} and the like in the transcripts


class MeetingTurns(Corpus):
    """Queries of QMSum about a part of a meeting, each with turns that answer it and turns that answer other queries.

    The first paragraph of a document is the query, each other one a turn, in random order and lower case. Turns that
    answer it are from the passages that annotators marked (the gold spans): the closest one, with the highest F1 of
    content words with the summary, and randomly drawn ones. Queries about everything are left out, and so are those
    with too few turns of either kind.

    Args:
        train, val: files of QMSum with gold spans.
        target: the reference is the closest `turn`, which measures the choice alone, or the `summary`.
        turns: number of turns of either kind, at least 1.
        min_words: minimal number of words of a turn.

    Raises:
        ValueError: if there is no such target, or no turn is to be read.
    """

    def __init__(self, train: Path, val: Path, target: Target = "turn", turns: int = 6, min_words: int = 8) -> None:
        if target not in get_args(Target) or turns < 1:
            raise ValueError(f"corpus.target {target!r}, turns {turns}: needs turn or summary, and at least 1 turn")
        self.paths = {"train": Path(train), "val": Path(val)}
        self.target = target
        self.turns = turns
        self.min_words = min_words

    def splits(self) -> list[str]:
        return list(self.paths)

    def fingerprint(self, split: str) -> str:
        return f"meeting turns 1 {self.target} {self.turns} {self.min_words} of {file_digest(self.paths[split])}"

    def records(self, split: str) -> Iterator[Record]:
        rows = [row for row in read_records(self.paths[split]) if row["type"] == "specific"]
        turns = {row["id"]: self._turns(row["document"]) for row in rows}
        meeting_of = {row["id"]: row["id"].split("#")[0] for row in rows}
        for row in rows:
            same_meeting = (id for id in turns if meeting_of[id] == meeting_of[row["id"]])
            of_others = {turn for id in same_meeting for turn in turns[id]} - set(turns[row["id"]])
            if min(len(turns[row["id"]]), len(of_others)) >= self.turns:
                yield self._record(row, turns[row["id"]], sorted(of_others))

    def _turns(self, passages: str) -> list[str]:
        """Return the turns that are long enough, each once, in order."""
        turns = dict.fromkeys(words_of(line) for line in passages.split("\n"))
        return [turn for turn in turns if len(turn.split()) >= self.min_words]

    def _record(self, row: dict, turns: list[str], of_others: list[str]) -> Record:
        """Return the document of a query, from its own turns and those of other queries about the meeting."""
        random = Random(row["id"])  # so that a choice does not depend on other documents
        closest = max(turns, key=lambda turn: content_f1(turn, [row["summary"]]))
        drawn = random.sample([turn for turn in turns if turn != closest], self.turns - 1)
        chosen = [closest, *drawn, *random.sample(of_others, self.turns)]
        random.shuffle(chosen)
        reference = closest if self.target == "turn" else words_of(row["summary"])
        parts = [[text] for text in (words_of(row["query"]), *chosen)]
        return Record(row["id"], parts, [[reference]], where=row["id"])


def words_of(text: str) -> str:
    """Return the words of a text in lower case, separated by spaces, without marks of the transcript."""
    return " ".join(tokenize(_NOISE.sub(" ", text)))
