"""Docstrings and modules of packages as documents, in splits without near-copies."""

import hashlib
import random
import subprocess
import sys
from itertools import combinations

import pytest
from sklearn.feature_extraction.text import CountVectorizer

from datamodules.corpora.corpus import as_document, build_documents, read_manifest
from datamodules.corpora.docstrings import Docstrings, Modules, clusters, shingles, split_by_cluster
from datamodules.corpora.harvest import Docstring, harvest, source_files
from datamodules.documents import UserError

WORDS = [first + last for first in "bcdfghlmnprst" for last in ("ando", "emi", "ilo", "ora", "umba", "esto", "arin")]


def prose(generator, count):
    return " ".join(generator.choice(WORDS) for _ in range(count)).capitalize() + "."


def function(name, summary, body):
    return f'def {name}():\n    """{summary}\n\n    {body}\n    """\n\n\n'


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder of packages: 400 functions, a fifth of them near-copies of others, and all that must be left out."""
    folder = tmp_path_factory.mktemp("site-packages")
    generator = random.Random(0)
    for module in range(8):
        source = f'"""{prose(generator, 6)}\n\n{prose(generator, 45)}\n"""\n\n'
        for number in range(40):
            body = prose(generator, 60).split()
            source += function(f"f{number}", prose(generator, 8), " ".join(body))
            if number % 4 == 0:
                body[generator.randrange(60)] = "copied"
                source += function(f"copy{number}", prose(generator, 8), " ".join(body))
        path = folder / f"package{module}" / "code.py"
        path.parent.mkdir()
        path.write_text(source, encoding="utf-8")
    forbidden = function("left_out", "This must not be found.", prose(generator, 50))
    for place in ("package0/tests/code.py", "package0/test_code.py", "package1/_vendor/x.py", "datamodules/x.py"):
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_text(forbidden, encoding="utf-8")
    (folder / "raises.py").write_text("raise RuntimeError('imported')\n" + function("g", "Not at all.", "Short."))
    (folder / "broken.py").write_text("def broken(:\n")
    (folder / "binary.py").write_bytes(b"\x00\xff\xfe")
    return folder


@pytest.fixture(scope="module")
def corpus(packages):
    return Docstrings([str(packages)], num_proc=1)


def test_long_documents_can_be_left_out_and_records_are_named_and_placed(packages, corpus):
    short = Docstrings([str(packages)], num_proc=1, max_words=50)
    for split in corpus.splits():
        expected = [record for record in corpus.records(split) if len(" ".join(record.parts).split()) <= 50]
        assert list(short.records(split)) == expected and expected != list(corpus.records(split))
    assert len({made.fingerprint("val") for made in (corpus, short, Docstrings([str(packages)], max_words=51))}) == 3
    with pytest.raises(UserError, match="max_words must be at least 1, got 0"):
        Docstrings([str(packages)], max_words=0)
    by_id = {record.id: record for split in corpus.splits() for record in corpus.records(split)}
    record = by_id["package3.code.f7"]
    path, line = record.where.rsplit(":", 1)
    source = (packages / "package3" / "code.py").read_text(encoding="utf-8").splitlines()
    assert path == str(packages.resolve() / "package3" / "code.py")
    assert source[int(line) - 2 : int(line)] == ["def f7():", f'    """{record.references[0]}']
    assert "package3.code" in by_id  # the module's own
    assert not any("left_out" in name or name.startswith(("datamodules", "raises")) for name in by_id)
    assert "raises" not in sys.modules and "package0" not in sys.modules


def leaked(train, test):
    """The share of test texts with a text in train of Jaccard similarity 0.7 or more, by their five-grams."""
    table = CountVectorizer(ngram_range=(5, 5), binary=True).fit_transform([*train, *test])
    ours, theirs = table[len(train) :], table[: len(train)]
    both = (ours @ theirs.T).toarray()
    either = ours.sum(1) + theirs.sum(1).T - both
    return (both >= 0.7 * either).any(1).mean()


def test_splits_leak_nothing_where_a_hash_split_does(corpus):
    records = [corpus.records(split) for split in corpus.splits()]
    train, val, test = (["\n".join(record.parts) for record in split] for split in records)
    assert (len(train) + len(val) + len(test), len(val), len(test)) == (408, 20, 20)
    assert leaked(train, test) == leaked(train, val) == leaked(val, test) == 0
    by_hash = sorted(train + val + test, key=lambda text: hashlib.md5(text.encode()).digest())
    assert leaked(by_hash[80:], by_hash[:80]) > 0.2
    # no summary is in two splits
    generator = random.Random(3)
    summaries = ["Return the number of things."] * 30 + [prose(generator, 7) for _ in range(300)]
    summaries[40:60] = [summary.upper() for summary in summaries[60:80]]
    docstrings = [Docstring(f"m.f{i}", f"m.py:{i}", s, (prose(generator, 50),)) for i, s in enumerate(summaries)]
    splits = split_by_cluster(docstrings)
    sets = {name: {docstring.summary.lower() for docstring in split} for name, split in splits.items()}
    assert sum(map(len, splits.values())) == 330 and all(sets.values())
    assert all(one.isdisjoint(other) for one, other in combinations(sets.values(), 2))
    assert summaries[0].lower() in sets["train"]  # a large family would weigh on the scores of a small split


SCRIPT = """
import sys
from datamodules.corpora.corpus import build_documents, read_manifest
from datamodules.corpora.docstrings import Docstrings
if __name__ == '__main__':
    dataset = build_documents(Docstrings([sys.argv[1]], num_proc=2), 'train', sys.argv[2], require_references=True)
    print(read_manifest(dataset)['digest'])
"""


@pytest.mark.integration
def test_the_same_packages_give_the_same_documents(corpus, packages, tmp_path):
    dataset = build_documents(corpus, "train", tmp_path / "here", require_references=True)
    command = [sys.executable, "-c", SCRIPT, str(packages), str(tmp_path / "there")]
    there = subprocess.run(command, env={"PYTHONHASHSEED": "77"}, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == read_manifest(dataset)["digest"]
    document = as_document(dataset[0])
    assert len(document.references) == 1 and len(document.text.split()) >= 40


def test_fingerprint_follows_the_sources_not_their_age(tmp_path):
    prints = []
    for source in ("x = 1\n", "x = 1\n", "x = 2\n"):
        (tmp_path / "a.py").write_text(source)
        prints.append([Docstrings([str(tmp_path)]).fingerprint(split) for split in ("val", "test")])
    assert prints[0] == prints[1] and len({*prints[1], *prints[2]}) == 4


def test_by_default_only_listed_packages_and_the_standard_library_are_read(tmp_path, monkeypatch):
    body = " ".join(["word"] * 40) + "."
    for place in ("library/mailbox.py", "site-packages/torch/nn.py", "site-packages/extra/code.py",
                  "site-packages/single.py", "site-packages/torch/extra/code.py"):  # fmt: skip
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(function("f", f"What is in {place}.", body))
    site_packages = str(tmp_path / "site-packages")
    paths = {"purelib": site_packages, "platlib": site_packages, "stdlib": str(tmp_path / "library")}
    monkeypatch.setattr("sysconfig.get_paths", lambda: paths)
    corpus = Docstrings(num_proc=1)
    names = {record.id for split in corpus.splits() for record in corpus.records(split)}
    assert names == {"mailbox.f", "torch.nn.f", "torch.extra.code.f"}


def test_lengths_overloads_and_copies(tmp_path):
    body = " ".join(["word"] * 40) + "."
    source = function("kept", "Just long enough.", body) + function("kept", "A second definition of it.", body)
    source += function("copy", "Just long enough.", body) + function("short_summary", "Too short.", body)
    source += function("long_summary", " ".join(["word"] * 61), body)
    source += function("short_body", "Just long enough too.", " ".join(["word"] * 39))
    source += "class C:\n    if True:\n        async def m(self):\n            "
    source += f'"""Nested, but found.\n\n            {body}\n            """\n'
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text(source)
    assert [docstring.name for docstring in harvest(source_files([tmp_path]))] == ["package.kept", "package.C.m"]
    # what cannot be harvested
    with pytest.raises(UserError, match="nowhere: no such folder"):
        Docstrings([str(tmp_path / "nowhere")]).fingerprint("train")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no usable document"):
        build_documents(Docstrings([str(tmp_path / "empty")], num_proc=1), "train", tmp_path / "cache")


MODULE = '''
"""Tools that measure and repair mills.

Not the summary.
"""
def measure():
    """Measures a mill from its floor.

    The height is taken last.

    Returns:
        the height of the mill in feet
    """
    def inner():
        """Definitions within a function are ignored."""
class Mill:
    """A mill beside the river that turns."""
    def turn(self):
        """Turns the wheel of the mill once."""
try:
    import missing
except ImportError:
    def missing():
        """Stands in where nothing else is found."""
'''


def test_a_module_summarizes_what_is_defined_in_it(tmp_path):
    (tmp_path / "mills").mkdir()
    (tmp_path / "mills" / "__init__.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "few.py").write_text('"""A module of one function."""\n' + function("f", "Measures a mill.", "Body."))
    (tmp_path / "none.py").write_text("".join(function(f"f{i}", "Measures a mill.", "Body.") for i in range(5)))
    (tmp_path / "broken.py").write_text("def broken(:\n")
    corpus = Modules([str(tmp_path)], num_proc=1)
    (record,) = [record for split in corpus.splits() for record in corpus.records(split)]
    assert (record.id, record.references) == ("mills", ["Tools that measure and repair mills."])
    assert record.where.endswith("mills/__init__.py:2")
    assert record.parts == [
        "measure: Measures a mill from its floor. The height is taken last. the height of the mill in feet",
        "Mill: A mill beside the river that turns.",
        "Mill.turn: Turns the wheel of the mill once.",
        "missing: Stands in where nothing else is found.",
    ]
    assert corpus.fingerprint("val") != Docstrings([str(tmp_path)], num_proc=1).fingerprint("val")


def test_copies_with_a_few_words_changed_go_together_by_their_shingles():
    assert shingles("One two, THREE four five -- six!") == {"one two three four five", "two three four five six"}
    assert shingles("Just three words") == {"just three words"}
    generator = random.Random(1)
    texts = []  # with the number of their family
    for number in range(120):
        base = [f"w{generator.randrange(5000)}" for _ in range(100)]
        for _ in range(1 + number % 3):
            texts.append((number, " ".join(base)))
            base[generator.randrange(100)] = "changed"
    generator.shuffle(texts)
    groups = clusters([text for _, text in texts])
    families = [[place for place, (family, _) in enumerate(texts) if family == number] for number in range(120)]
    assert groups == sorted(families)
    # equal keys join groups in chains
    texts = [" ".join(f"w{number}x{place}" for place in range(50)) for number in range(5)]
    by_summary, by_length = ["a", "b", "a", "c", "d"], [1, 2, 3, 2, 4]
    for num_proc in (1, 2):
        assert clusters(texts, [by_summary, by_length], num_proc=num_proc) == [[0, 2], [1, 3], [4]]
    assert clusters(texts, [by_summary, ["x", "x", 0, 1, 2]]) == [[0, 1, 2], [3], [4]]
