"""Documents with repeated sentences: the number of versions, and their shared n-grams."""

import pytest
from conftest import write_lines

from datamodules.corpora import Files
from experiments.studies.controls.tasks import PlantedDuplicates

TRIGRAMS = {"one_word": True, "every_third_word": False}


def plain_sentence(number: int) -> str:
    """Words that no other sentence has."""
    return " ".join(f"word{chr(97 + number)}x{chr(97 + place)}" for place in range(12 + number)) + "."


@pytest.fixture
def articles(tmp_path) -> Files:
    rows = [
        {"id": f"a{n}", "document": f"{plain_sentence(n)} See a.b().", "summary": "x"}
        for n in range(14)
    ]
    return Files(train=str(write_lines(tmp_path / "train.jsonl", rows)))


def trigrams(sentence: str) -> set[tuple[str, ...]]:
    words = sentence.split()
    return set(zip(words, words[1:], words[2:]))


@pytest.mark.parametrize("variation", TRIGRAMS)
def test_versions_of_three_sentences_among_fillers(articles, variation):
    for record in PlantedDuplicates(articles, variation, fillers=5, documents=10).records("train"):
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
            assert all(bool(trigrams(one) & trigrams(other)) is TRIGRAMS[variation] for one, other in pairs)


def test_openings_and_documents_without_repetition(articles):
    record = next(PlantedDuplicates(articles, opening="It is said that", documents=1).records("train"))
    assert sum(sentence.startswith("It is said that ") for sentence in record.parts[0]) == 9
    assert all(sentence.startswith("It is said that ") for sentence in record.references[0])
    record = next(PlantedDuplicates(articles, "none", documents=1).records("train"))
    assert len(record.parts[0]) == 9 and set(record.references[0]) <= set(record.parts[0])
