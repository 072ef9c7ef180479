"""Documents are built once, whole or not at all, by one process or several."""

import gc
import os
import signal
import subprocess
import sys
import time
from multiprocessing import Process

import pytest
from conftest import write_lines
from test_other_layouts import documents

from datamodules.atomic_write import LOCK
from datamodules.corpora import Files, Folds, OwnSentences, Texts
from datamodules.corpora.corpus import Corpus, as_document, build_documents, read_manifest
from datamodules.corpora.parallel import mapper
from datamodules.corpora.texts import Records
from datamodules.documents import BadRecord, Document, Record, UserError


class Listed(Corpus):
    """Records given one by one, with pauses; an exception among them is raised."""

    def __init__(self, records, name="listed", pause=0.0):
        self.list, self.name, self.pause, self.read = records, name, pause, 0

    def splits(self):
        return ["train"]

    def records(self, split):
        self.read += 1
        for record in self.list:
            time.sleep(self.pause)
            if isinstance(record, BaseException):
                raise record
            yield record

    def fingerprint(self, split):
        return self.name


def record(name, *parts, references=("Short one.",)):
    return Record(name, list(parts), list(references), f"x.jsonl:{name}")


GOOD = [
    record("a", "One sentence. And two.", "  \n", ["kept  as", " ", "given"]),
    record("b", "Only one.", references=["First. Second.", ["As", "given"]]),
]
BROKEN = BadRecord("x.jsonl:7", "broken JSON", "fix it")


def left_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != LOCK)


def test_documents_come_back_as_they_went_in_and_are_built_again_when_content_changes(tmp_path):
    corpus = Listed(GOOD)
    dataset = build_documents(corpus, "train", tmp_path)
    first = Document("a", [["One sentence.", "And two."], ["kept as", "given"]], [["Short one."]])
    second = Document("b", [["Only one."]], [["First.", "Second."], ["As", "given"]])
    assert [as_document(row) for row in dataset] == [first, second]
    assert read_manifest(dataset).items() >= {"documents": 2, "skipped": [], "without_references": 0}.items()
    assert build_documents(corpus, "train", tmp_path).cache_files == dataset.cache_files and corpus.read == 1
    build_documents(corpus, "train", tmp_path, require_references=True)  # the same documents: each has a reference
    assert corpus.read == 1
    corpus.name = "other content"
    build_documents(corpus, "train", tmp_path)
    assert corpus.read == 2 and len(list(tmp_path.glob("[!.]*"))) == 2


def test_two_processes_convert_as_one_does(tmp_path):
    records = [record(str(i), f"Number {i} is here. It stays.") for i in range(700)]
    one = build_documents(Listed(records), "train", tmp_path / "1")
    two = build_documents(Listed(records), "train", tmp_path / "2", num_proc=2)
    assert one["parts"][:] == two["parts"][:]
    assert one["id"][:] == two["id"][:] == [str(i) for i in range(700)]
    assert read_manifest(one)["digest"] == read_manifest(two)["digest"]


@pytest.mark.parametrize(("bad", "problem"), [
    (BROKEN, "x.jsonl:7: broken JSON; fix it"),
    (record("a", "Again."), "x.jsonl:a: id 'a' is also the id of x.jsonl:a"),
    (record(" ", "Text."), "its id is empty"),
    (record("c", " ", "\n", [" "]), "x.jsonl:c: the document is empty"),
    (record("c", "Half \ud800 a pair."), "x.jsonl:c: half of a surrogate pair, U\\+D800"),
    (record("c", "Text.", references=[]), "x.jsonl:c: it has no reference"),
    (record("c", "Text.", references=[" "]), "x.jsonl:c: its reference is empty"),
])  # fmt: skip
def test_bad_records_end_the_build_or_are_counted_and_named(tmp_path, bad, problem):
    corpus = Listed([GOOD[0], bad, GOOD[1]])
    with pytest.raises(UserError, match=problem) as error:
        build_documents(corpus, "train", tmp_path, require_references=True)
    assert "\n" not in str(error.value)
    assert bad is BROKEN or "--data.on_bad_record skip" in str(error.value)
    assert left_in(tmp_path) == []
    with pytest.warns(UserWarning, match="left out 1 bad record.*x.jsonl"):
        dataset = build_documents(corpus, "train", tmp_path, on_bad_record="skip", require_references=True)
    assert dataset["id"][:] == ["a", "b"]
    assert [entry["where"] for entry in read_manifest(dataset)["skipped"]] == [bad.where]


def test_a_build_with_skips_does_not_satisfy_who_wants_none_and_a_split_has_a_document(tmp_path):
    corpus = Listed([*GOOD, BROKEN])
    for _ in range(2):  # the second time from the cache
        with pytest.warns(UserWarning, match="x.jsonl:7: broken JSON"):
            build_documents(corpus, "train", tmp_path, on_bad_record="skip")
    with pytest.raises(UserError, match=r"x.jsonl:7: broken JSON.*--data.on_bad_record skip"):
        build_documents(corpus, "train", tmp_path)
    for records in ([], [BROKEN], [record("a", " ")]):
        with pytest.raises(UserError, match="train: no usable document"):
            build_documents(Listed(records), "train", tmp_path / "none", on_bad_record="skip")
        assert left_in(tmp_path / "none") == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("disk full"), SystemExit(143)])
def test_nothing_half_written_stays(tmp_path, error):
    many = [record(str(i), "Text.") for i in range(600)]  # more than a batch: some rows are on disk by then
    with pytest.raises(type(error)):
        build_documents(Listed([*many, error]), "train", tmp_path)
    assert left_in(tmp_path) == []


@pytest.mark.integration
def test_processes_that_build_at_once_agree(tmp_path):
    records = [record(str(i), f"Text {i}.") for i in range(20)]
    arguments = (Listed(records, pause=0.05), "train", tmp_path)
    processes = [Process(target=build_documents, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    (folder,) = tmp_path.glob("[!.]*")
    assert sorted(path.name for path in folder.iterdir()) == ["documents.arrow", "manifest.json"]
    assert build_documents(Listed(records), "train", tmp_path)["id"][:] == [str(i) for i in range(20)]


INTERRUPTED = """
import itertools, sys
from datamodules.corpora.corpus import build_documents
from datamodules.corpora.texts import Texts
from datamodules.documents import Record

class Endless(Texts):
    def records(self, split):
        for i in itertools.count():
            if i == 600: print("writing", flush=True)
            yield Record(str(i), ["Some text. More of it."], [], f"x:{i}")

try:
    build_documents(Endless([]), "test", sys.argv[1], num_proc=2)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.integration
def test_ctrl_c_stops_the_pool_and_cleans_up(tmp_path):
    command, pipes = [sys.executable, "-c", INTERRUPTED, tmp_path], dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, **pipes, text=True, start_new_session=True)
    assert process.stdout.readline() == "writing\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to parent and workers
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in errors and left_in(tmp_path) == []


def test_workers_leave_the_garbage_of_the_parent_alone(tmp_path):
    class Cycle:
        def __init__(self):
            self.itself = self

        def __del__(self):
            (tmp_path / str(os.getpid())).touch()

    gc.disable()
    try:
        Cycle()
        with mapper(2) as mapped:
            list(mapped(gc.collect, [2, 2]))
    finally:
        gc.enable()
    assert {path.name for path in tmp_path.iterdir()} <= {str(os.getpid())}


FIRST = "The cat sat on the mat. A dog ran by.\n\nThe cat and the dog sat on the mat. It rained."
TEXTS = [("a", FIRST), ("b", "Only one sentence here.")]


def test_lead_is_the_first_sentence_and_the_principal_one_shares_most_words(tmp_path):
    for row, plain in zip(documents(OwnSentences(Texts(TEXTS)), tmp_path), documents(Texts(TEXTS), tmp_path)):
        assert (row.parts, row.references, plain.references) == (plain.parts, [[plain.sentences[0]]], [])
    assert plain == Document("b", [["Only one sentence here."]], [])
    assert documents(Records([{"document": "It rains."}]), tmp_path) == [Document("1", [["It rains."]], [])]
    # "the cat (and the dog) sat on the mat" meets both others; "it rained" and "a dog ran by" hardly anything
    principal, _ = documents(OwnSentences(Texts(TEXTS), "ind-orig"), tmp_path, require_references=True)
    assert principal.references == [["The cat and the dog sat on the mat."]] and principal.text == FIRST
    for options, words in (({"selection": "best"}, "ind-orig"), ({"number": 0}, "at least 1")):
        with pytest.raises(ValueError, match=words):
            OwnSentences(Texts(TEXTS), **options)


def test_random_draws_are_of_the_document():
    many = [(str(i), " ".join(f"Word {j} is here." for j in range(10))) for i in range(30)]
    corpus, later = OwnSentences(Texts(many), "random"), OwnSentences(Texts(many[7:]), "random")
    drawn = {record.id: record.references for record in corpus.records("test")}
    assert all(drawn[record.id] == record.references for record in later.records("test"))
    assert len({references[0][0] for references in drawn.values()}) > 5


def test_bad_records_and_empty_documents_pass(tmp_path):
    broken = OwnSentences(Listed([BROKEN, record("a", " \n "), record("b", "It rains.")]))
    assert broken.splits() == ["train"]
    with pytest.warns(UserWarning, match="x.jsonl:7: broken"):
        rows = build_documents(broken, "train", tmp_path, on_bad_record="skip", require_references=True)
    assert rows["id"] == ["b"]


def ids(corpus, split):
    return [getattr(record, "id", "damaged") for record in corpus.records(split)]


def test_each_record_is_held_out_once(tmp_path):
    rows = [{"id": str(number), "document": f"Text {number}.", "summary": "x"} for number in range(11)]
    path = write_lines(tmp_path / "train.jsonl", [*rows[:4], "damaged", *rows[5:]])
    numbers = Files(train=str(path), val=str(tmp_path / "nowhere.jsonl"))  # `val` fails when it is read
    corpora = [Folds(numbers, fold, folds=3) for fold in range(3)]
    held_out = [["0", "3", "6", "9"], ["1", "damaged", "7", "10"], ["2", "5", "8"]]
    assert [ids(corpus, "val") for corpus in corpora] == held_out
    everything = sorted(ids(numbers, "train"))
    for corpus in corpora:
        assert corpus.splits() == ["train", "val"]
        assert sorted(ids(corpus, "train") + ids(corpus, "val")) == everything
    made = [*corpora[:2], Folds(numbers, 0, folds=4)]
    assert len({corpus.fingerprint(split) for corpus in made for split in ("train", "val")}) == 6
