import random

import pytest
from datasketch import LeanMinHash

from datamodules.corpora.near_copies import clusters, shingles


def words(count, generator, vocabulary=5000):
    return [f"w{generator.randrange(vocabulary)}" for _ in range(count)]


def test_shingles_are_five_words_whatever_the_case():
    assert shingles("One two, THREE four five -- six!") == {"one two three four five", "two three four five six"}
    assert shingles("Just three words") == {"just three words"}


def test_copies_with_a_few_words_changed_go_together():
    generator = random.Random(1)
    texts, family = [], []
    for number in range(120):
        base = words(100, generator)
        for _ in range(number % 3):
            copy = list(base)
            copy[generator.randrange(100)] = "changed"
            texts.append(" ".join(copy))
            family.append(number)
        texts.append(" ".join(base))
        family.append(number)
    order = list(range(len(texts)))
    generator.shuffle(order)
    found = clusters([texts[i] for i in order])
    assert sorted(index for group in found for index in group) == sorted(order)
    for group in found:
        number = {family[order[index]] for index in group}
        assert len(number) == 1 and len(group) == family.count(number.pop())
    assert [group[0] for group in found] == sorted(group[0] for group in found)


@pytest.mark.parametrize("num_proc", [1, 2])
def test_equal_keys_join_groups_in_chains(num_proc):
    generator = random.Random(2)
    texts = [" ".join(words(50, generator)) for _ in range(5)]
    by_summary, by_length = ["a", "b", "a", "c", "d"], [1, 2, 3, 2, 4]
    assert clusters(texts, [by_summary, by_length], num_proc=num_proc) == [[0, 2], [1, 3], [4]]
    assert clusters(texts, [by_summary, ["x", "x", 0, 1, 2]]) == [[0, 1, 2], [3], [4]]


def test_copies_of_one_page_are_compared_in_linear_time(monkeypatch):
    page, compared = [f"w{number}" for number in range(100)], []

    def jaccard(self, other, whole=LeanMinHash.jaccard):
        compared.append(1)
        return whole(self, other)

    monkeypatch.setattr(LeanMinHash, "jaccard", jaccard)
    texts = [" ".join([*page, f"copy {number}"]) for number in range(300)]
    assert clusters([*texts, texts[0], "a page of its own"]) == [list(range(301)), [301]]
    assert len(compared) <= 100 * 301
