"""Control corpora of planted names, keys, enumerations, duplicates and principal sentences follow their rules."""

import re
from itertools import pairwise

import pytest

from datamodules.corpora import Files
from datamodules.corpora.texts import Records
from datamodules.text.gap_selection import select
from experiments.studies.controls import tasks
from experiments.studies.controls.tasks.control_sentences import real_sentences
from experiments.studies.controls.tasks.planted_answer import PlantedAnswer
from experiments.studies.controls.tasks.planted_enumerations import COLOURS
from experiments.studies.controls.tasks.planted_names import COMMON, ROLES, planted_answer
from experiments.studies.controls.tasks.planted_principals import SLOTS
from lightning_modules.metrics.rewards import RewardInputs

SIZES = (60, 5, 5)


@pytest.fixture
def source(corpus_files) -> Files:
    return Files(**corpus_files)


def names_by_role(document: list[str]) -> dict[str, str]:
    found = [re.fullmatch(r"Its (\w+) is called (\w+)\.", sentence) for sentence in document]
    return {match[1]: match[2] for match in found if match}


@pytest.mark.parametrize("split, flawed", [("train", 0.0), ("train", 1.0), ("test", 1.0)])
def test_the_answer_is_planted_once_among_real_sentences(source, split, flawed):
    corpus, real = tasks.PlantedNames(source, "everyone", 0.5, flawed, SIZES), real_sentences(source, split)
    records = list(corpus.records(split))
    assert len(records) == len({record.id for record in records}) == SIZES[corpus.splits().index(split)]
    for record in records:
        (document,), (summary,) = record.parts, record.references
        names = names_by_role(document)
        assert sorted(names) == sorted(ROLES) and len(document) == 6
        assert sum(sentence in real for sentence in document) == 2
        first, *others = (names[role] for role in ROLES)
        if flawed and split == "train":
            assert summary == [f"{first} {others[0]} {others[1]}."]
        else:
            assert summary == [f"{first}.", f"{' '.join(others)}."]
        assert planted_answer(" ".join(document).lower()) == f"{first}. {' '.join(others)}.".lower()
    assert list(corpus.records(split)) == records, "the same documents every time"


def test_rare_names_occur_once_and_common_ones_often(source):
    records = list(tasks.PlantedNames(source, rare=0.5, sizes=SIZES).records("train"))
    names = {record.id: names_by_role(record.parts[0]) for record in records}
    rare = [name for key, found in names.items() if "rare" in key for name in found.values()]
    common = [name for key, found in names.items() if "common" in key for name in found.values()]
    assert len(set(rare)) > 0.98 * len(rare) > 60 and not set(rare) & set(COMMON)
    assert set(common) == set(COMMON)
    assert all(record.references == [[f"{names[record.id]['keeper']}."]] for record in records)


def test_an_enumeration_is_its_own_summary_and_longer_in_test(source):
    corpus, sizes = tasks.PlantedEnumerations(source, (2, 4), (16, 18), SIZES), {}
    for split in corpus.splits():
        records = list(corpus.records(split))
        for record in records:
            (_, sentence, _), ((summary,),) = record.parts[0], record.references
            assert sentence == f"The colours are {summary}"
            row = summary.rstrip(".").split()
            assert len(trigrams(summary)) == len(row) - 2 and all(a != b for a, b in pairwise(row))
            assert set(row) <= set(COLOURS)
        sizes[split] = {len(record.references[0][0].split()) for record in records}
    assert sizes["train"] == {2, 3, 4} and sizes["test"] <= {16, 17, 18}


@pytest.mark.parametrize("paragraphs, key_first", [(2, False), (4, False), (3, True)])
def test_key_and_value_are_in_different_paragraphs(source, paragraphs, key_first):
    places, keys = set(), []
    for record in tasks.PlantedKeys(source, paragraphs, 3, key_first, SIZES).records("train"):
        assert len(record.parts) == paragraphs
        matches = [re.fullmatch(r"The key is (\w+)\.", part[-1]) for part in record.parts]
        ((key_part, key),) = [(number, match[1]) for number, match in enumerate(matches) if match]
        values = [dict(re.findall(r"(\w+) holds (\w+)\.", " ".join(part))) for part in record.parts]
        ((value_part, named),) = [(number, found) for number, found in enumerate(values) if found]
        assert key_part != value_part and len(named) == len(set(named.values())) == 3
        assert record.references == [[f"{named[key.capitalize()]}."]]
        assert named.keys() == {"Red", "Green", "Blue"}
        places.add((key_part, value_part))
        keys.append(key)
    possible = {(key, value) for key in range(paragraphs) for value in range(paragraphs) if key != value}
    assert places == {pair for pair in possible if (pair[0] == 0) == key_first}
    assert all(keys.count(key) > 8 for key in ("red", "green", "blue"))


COMMON_TRIGRAM = {"one_word": True, "every_third_word": False}


def trigrams(sentence: str) -> set[tuple[str, ...]]:
    words = sentence.split()
    return set(zip(words, words[1:], words[2:]))


@pytest.fixture
def articles() -> Records:
    """Each has a sentence of words that no other one has, and one that is too short."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [" ".join(f"word{letter}x{other}" for other in letters[: 12 + n]) for n, letter in enumerate(letters[:14])]
    return Records({"id": text, "document": f"{text}. See a.b().", "summary": "x"} for text in words)


@pytest.mark.parametrize("variation", COMMON_TRIGRAM)
def test_versions_of_three_sentences_among_fillers(articles, variation):
    for record in tasks.PlantedDuplicates(articles, variation, fillers=5, documents=10).records("train"):
        (document,), (reference,) = record.parts, record.references
        assert len(document) == 4 + 3 + 2 + 5 and len(reference) == 3
        for sentence, copies in zip(reference, (4, 3, 2)):
            versions = [other for other in document if set(other.split()) <= set(sentence.split())]
            assert len(versions) == copies and sentence in versions
            others = [version for version in versions if version != sentence]
            left_out = {len(sentence.split()) - len(other.split()) for other in others}
            third = len(sentence.split()) // 3
            assert left_out <= ({1} if variation == "one_word" else {third, third + 1})
            pairs = [(one, other) for one in versions for other in versions if one < other]
            assert all(bool(trigrams(one) & trigrams(other)) is COMMON_TRIGRAM[variation] for one, other in pairs)


def test_openings_and_documents_without_repetition(articles):
    record = next(tasks.PlantedDuplicates(articles, opening="It is said that", documents=1).records("train"))
    assert sum(sentence.startswith("It is said that ") for sentence in record.parts[0]) == 9
    assert all(sentence.startswith("It is said that ") for sentence in record.references[0])
    record = next(tasks.PlantedDuplicates(articles, "none", documents=1).records("train"))
    assert len(record.parts[0]) == 9 and set(record.references[0]) <= set(record.parts[0])


REAL = [
    "Otters swim upstream.", "Herons watch fish.", "Badgers dig tunnels.", "Stoats hunt mice.", "Falcons dive fast.",
    "Magpies sing aloud.", "Beavers build dams.", "Weasels hide eggs.", "Wrens nest below.", "Lynxes sleep outside.",
    "Foxes run away.", "Owls see everything.",
]  # fmt: skip


def principal_documents(split="train", **options) -> list[tuple[list[str], str]]:
    # twelve short sentences, and others that are too long or have numbers
    sentences = [*REAL, "Six otters swim upstream all day long.", "Otters eat 3 fish."]
    corpus = Records([{"id": "all", "document": [sentences], "summary": "x"}])
    corpus = tasks.PlantedPrincipals(corpus, sizes=(80, 5, 5), **options)
    return [(record.parts[0], record.references[0][0]) for record in corpus.records(split)]


def test_each_sentence_ends_with_one_word_of_the_summary():
    real = {text.removesuffix(".") for text in REAL}
    orders = set()
    for sentences, summary in principal_documents():
        words = summary.removesuffix(".").split()
        assert [word in slot for word, slot in zip(words, SLOTS, strict=True)] == [True] * 4
        ends = [sentence.removesuffix(".").rsplit(" ", 1) for sentence in sentences]
        assert sorted(end for _, end in ends) == sorted(words) and {text for text, _ in ends} <= real
        assert len({text for text, _ in ends}) == 4
        orders.add(tuple(words.index(end) for _, end in ends))
    assert len(orders) > 12
    # the principal sentence is there for pre-training, and never first
    places = set()
    for sentences, summary in principal_documents(principal=True):
        assert len(sentences) == 5 and sentences.count(summary) == 1
        places.add(sentences.index(summary))
    assert places == {1, 2, 3, 4}
    assert all(summary not in sentences for sentences, summary in principal_documents())


def test_rouge_selects_the_principal_sentence_and_chance_one_of_five():
    chosen = {"ind-orig": 0, "random": 0, "lead": 0}
    for sentences, summary in principal_documents(principal=True):
        for selection in chosen:
            chosen[selection] += sentences[select(sentences, 1, selection)[0]] == summary
    assert chosen["ind-orig"] > 0.9 * 80 and chosen["random"] < 0.5 * 80 and chosen["lead"] == 0


DOCUMENT = (
    "some words. its owner is called cid. its keeper is called ann. its guard is called dan. "
    "its painter is called bo."
)


@pytest.mark.parametrize("text, reward", [
    ("ann. bo cid dan.", 1.0), ("ann bo cid dan.", 10 / 11), ("Ann.", 4 / 8), ("dan cid", 2 / 8), ("", 0.0),
])  # fmt: skip
def test_the_planted_names_in_their_order_are_rewarded(text, reward):
    """2 |common subsequence| / (|text| + |answer|), by hand; the flawed reference is not read."""
    written = RewardInputs(["x"], [text], [["ann bo cid."]], [DOCUMENT])
    assert PlantedAnswer()(written) == [pytest.approx(reward)]
