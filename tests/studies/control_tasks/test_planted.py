"""Control corpora: their structure is what their tasks say, and their sentences are real."""

import re
from itertools import pairwise

import pytest

from datamodules.corpora import Files
from experiments.studies.controls.tasks import PlantedEnumerations, PlantedKeys, PlantedNames
from experiments.studies.controls.tasks.control_sentences import real_sentences
from experiments.studies.controls.tasks.planted_enumerations import COLOURS
from experiments.studies.controls.tasks.planted_names import COMMON, ROLES, planted_answer

SIZES = (60, 5, 5)


@pytest.fixture
def source(corpus_files) -> Files:
    return Files(**corpus_files)


def names_by_role(document: list[str]) -> dict[str, str]:
    found = [re.fullmatch(r"Its (\w+) is called (\w+)\.", sentence) for sentence in document]
    return {match[1]: match[2] for match in found if match}


@pytest.mark.parametrize("split, flawed", [("train", 0.0), ("train", 1.0), ("test", 1.0)])
def test_the_answer_is_planted_once_among_real_sentences(source, split, flawed):
    corpus, real = PlantedNames(source, "everyone", 0.5, flawed, SIZES), real_sentences(source, split)
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
    records = list(PlantedNames(source, rare=0.5, sizes=SIZES).records("train"))
    names = {record.id: names_by_role(record.parts[0]) for record in records}
    rare = [name for key, found in names.items() if "rare" in key for name in found.values()]
    common = [name for key, found in names.items() if "common" in key for name in found.values()]
    assert len(set(rare)) > 0.98 * len(rare) > 60 and not set(rare) & set(COMMON)
    assert set(common) == set(COMMON)
    assert all(record.references == [[f"{names[record.id]['keeper']}."]] for record in records)


def test_an_enumeration_is_its_own_summary_and_longer_in_test(source):
    corpus, sizes = PlantedEnumerations(source, (2, 4), (16, 18), SIZES), {}
    for split in corpus.splits():
        records = list(corpus.records(split))
        for record in records:
            (_, sentence, _), ((summary,),) = record.parts[0], record.references
            assert sentence == f"The colours are {summary}"
            row = summary.rstrip(".").split()
            trigrams = [tuple(row[i : i + 3]) for i in range(len(row) - 2)]
            assert len(set(trigrams)) == len(trigrams) and all(a != b for a, b in pairwise(row))
            assert set(row) <= set(COLOURS)
        sizes[split] = {len(record.references[0][0].split()) for record in records}
    assert sizes["train"] == {2, 3, 4} and sizes["test"] <= {16, 17, 18}


@pytest.mark.parametrize("paragraphs, key_first", [(2, False), (4, False), (3, True)])
def test_key_and_value_are_in_different_paragraphs(source, paragraphs, key_first):
    places, keys = set(), []
    for record in PlantedKeys(source, paragraphs, 3, key_first, SIZES).records("train"):
        assert len(record.parts) == paragraphs
        ((key_part, key),) = [
            (number, match[1])
            for number, part in enumerate(record.parts)
            if (match := re.fullmatch(r"The key is (\w+)\.", part[-1]))
        ]
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
