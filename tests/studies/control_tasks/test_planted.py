"""Control corpora of planted names, keys, enumerations, duplicates, principal sentences and mixed articles."""

import re
from itertools import combinations, pairwise

import pytest

from datamodules.corpora import Files
from datamodules.corpora.texts import Records
from datamodules.text.gap_selection import select
from experiments.studies.controls import tasks
from experiments.studies.controls.tasks import MixedArticles, MixedClusters
from experiments.studies.controls.tasks.control_sentences import real_sentences
from experiments.studies.controls.tasks.mixed_articles import WORDS
from experiments.studies.controls.tasks.planted_answer import PlantedAnswer
from experiments.studies.controls.tasks.planted_enumerations import COLOURS
from experiments.studies.controls.tasks.planted_names import ROLES, planted_answer
from lightning_modules.metrics.rewards import RewardInputs

SIZES = (60, 5, 5)


@pytest.fixture
def source(corpus_files) -> Files:
    return Files(**corpus_files)


@pytest.mark.parametrize("split, flawed", [("train", 0.0), ("train", 1.0), ("test", 1.0)])
def test_the_answer_is_planted_once_among_real_sentences(source, split, flawed):
    corpus, real = tasks.PlantedNames(source, "everyone", 0.5, flawed, SIZES), real_sentences(source, split)
    records = list(corpus.records(split))
    assert len(records) == len({record.id for record in records}) == SIZES[corpus.splits().index(split)]
    for record in records:
        (document,), (summary,) = record.parts, record.references
        names = dict(re.findall(r"^Its (\w+) is called (\w+)\.$", "\n".join(document), re.MULTILINE))
        assert sorted(names) == sorted(ROLES) and len(document) == 6
        assert sum(sentence in real for sentence in document) == 2
        first, *others = (names[role] for role in ROLES)
        if flawed and split == "train":
            assert summary == [f"{first} {others[0]} {others[1]}."]
        else:
            assert summary == [f"{first}.", f"{' '.join(others)}."]
        assert planted_answer(" ".join(document).lower()) == f"{first}. {' '.join(others)}.".lower()
    assert list(corpus.records(split)) == records, "the same documents every time"


def test_an_enumeration_is_its_own_summary_and_longer_in_test(source):
    corpus, sizes = tasks.PlantedEnumerations(source, (2, 4), (16, 18), SIZES), {}
    for split in corpus.splits():
        for record in corpus.records(split):
            (_, sentence, _), ((summary,),) = record.parts[0], record.references
            assert sentence == f"The colours are {summary}"
            row = summary.rstrip(".").split()
            assert len(trigrams(summary)) == len(row) - 2 and all(a != b for a, b in pairwise(row))
            assert set(row) <= set(COLOURS)
            sizes.setdefault(split, set()).add(len(row))
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


def trigrams(sentence: str) -> set[tuple[str, ...]]:
    words = sentence.split()
    return set(zip(words, words[1:], words[2:]))


@pytest.mark.parametrize("variation, common_trigram", [("one_word", True), ("every_third_word", False)])
def test_versions_of_three_sentences_among_fillers(variation, common_trigram):
    # each article has a sentence of words that no other one has, and one that is too short
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [" ".join(f"word{letter}x{other}" for other in letters[: 12 + n]) for n, letter in enumerate(letters[:14])]
    articles = Records({"id": text, "document": f"{text}. See a.b().", "summary": "x"} for text in words)
    for record in tasks.PlantedDuplicates(articles, variation, fillers=5, documents=10).records("train"):
        (document,), (reference,) = record.parts, record.references
        assert len(document) == 4 + 3 + 2 + 5 and len(reference) == 3
        for sentence, copies in zip(reference, (4, 3, 2)):
            versions = [other for other in document if set(other.split()) <= set(sentence.split())]
            assert len(versions) == copies and sentence in versions
            left_out = {len(sentence.split()) - len(other.split()) for other in versions if other != sentence}
            third = len(sentence.split()) // 3
            assert left_out <= ({1} if variation == "one_word" else {third, third + 1})
            for one, other in combinations(versions, 2):
                assert one == other or bool(trigrams(one) & trigrams(other)) is common_trigram


def test_the_principal_sentence_is_never_first_and_is_selected_by_rouge_and_in_one_document_of_five_by_chance():
    animals = ("Otters", "Herons", "Badgers", "Stoats", "Falcons", "Beavers", "Weasels", "Wrens", "Foxes", "Owls")
    short = [f"{animal} swim upstream." for animal in (*animals, "Magpies", "Lynxes")]
    real = [*short, "Six otters swim upstream all day long.", "Otters eat 3 fish."]  # too long, and with a number
    corpus = Records([{"id": "all", "document": [real], "summary": "x"}])
    places, chosen = set(), {"ind-orig": 0, "random": 0, "lead": 0}
    for record in tasks.PlantedPrincipals(corpus, principal=True, sizes=(80, 5, 5)).records("train"):
        sentences, summary = record.parts[0], record.references[0][0]
        assert len(sentences) == 5 and sentences.count(summary) == 1
        places.add(sentences.index(summary))
        for selection in chosen:
            chosen[selection] += sentences[select(sentences, 1, selection)[0]] == summary
    assert places == {1, 2, 3, 4}
    assert chosen["ind-orig"] > 0.9 * 80 and chosen["random"] < 0.5 * 80 and chosen["lead"] == 0


def test_the_planted_names_in_their_order_are_rewarded():
    """2 |common subsequence| / (|text| + |answer|), by hand; the flawed reference is not read."""
    names = {"owner": "cid", "keeper": "ann", "guard": "dan", "painter": "bo"}
    document = "some words. " + " ".join(f"its {role} is called {name}." for role, name in names.items())
    texts = ["ann. bo cid dan.", "ann bo cid dan.", "Ann.", "dan cid", ""]
    written = RewardInputs(["x"] * 5, texts, [["ann bo cid."]] * 5, [document] * 5)
    assert PlantedAnswer()(written) == pytest.approx([1.0, 10 / 11, 4 / 8, 2 / 8, 0.0])


@pytest.fixture
def numbered_articles() -> Records:
    texts = [" ".join(f"Sentence {k} of article{n}." for k in range(3 + n % 6)) for n in range(30)]
    return Records({"id": f"a{n}", "document": text, "summary": f"S{n}."} for n, text in enumerate(texts))


def test_the_summary_is_the_colour_of_the_first_paragraphs_partner(numbered_articles):
    records = list(MixedArticles(numbered_articles, articles=3, colours=5, max_train=40).records("train"))
    assert len(records) == 40 == len({record.id for record in records})
    partners = set()
    for record in records:
        colours, names = ([part[0].split()[place] for part in record.parts] for place in (0, -1))
        assert len(names) == 6 and all(names.count(name) == 2 for name in names)
        partner = names.index(names[0], 1)
        assert record.references == [[colours[partner]]] and set(colours) <= set(WORDS[:5])
        assert all(len(part) == 2 for part in record.parts)
        partners.add(partner)
    assert partners == {1, 2, 3, 4, 5}  # no position tells


@pytest.mark.parametrize("target", ["summary", "lead"])
def test_a_cluster_has_whole_articles_in_random_order_and_asks_for_that_of_the_first_one(numbered_articles, target):
    records = list(MixedClusters(numbered_articles, target, articles=3, paragraphs=3).records("train"))
    # six sentences are needed
    assert [record.id for record in records] == [f"a{n}" for n in range(30) if n % 6 >= 3]
    openings, leads = set(), set()
    for record in records:
        number = record.id[1:]
        names = {sentence.split()[-1].rstrip(".") for part in record.parts for sentence in part}
        assert len(names) == 3 and f"article{number}" in names
        # two consecutive sentences each, and the first three pairs of each article
        pairs = {(name, k): [f"Sentence {n} of {name}." for n in (k, k + 1)] for name in names for k in (0, 2, 4)}
        assert sorted(record.parts) == sorted(pairs.values())
        lead = pairs[f"article{number}", 0]
        assert record.references == ([[f"S{number}."]] if target == "summary" else [lead])
        openings.add(next(k for (name, k), pair in pairs.items() if pair == record.parts[0] and name[7:] == number))
        leads.add(record.parts.index(lead))
    assert openings == {2, 4} and len(leads) > 4, "no position tells where the beginning of the article is"
