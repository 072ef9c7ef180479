"""Documents of shuffled paragraphs of several articles: what their summaries follow from."""

import pytest

from datamodules.corpora.texts import Records
from experiments.studies.controls.tasks import MixedArticles, MixedClusters
from experiments.studies.controls.tasks.mixed_articles import WORDS


@pytest.fixture
def articles() -> Records:
    """Articles of three to eight sentences."""
    texts = [" ".join(f"Sentence {k} of article{n}." for k in range(3 + n % 6)) for n in range(30)]
    return Records({"id": f"a{n}", "document": text, "summary": f"S{n}."} for n, text in enumerate(texts))


def number_and_article(sentence: str) -> tuple[int, str]:
    _, number, _, article = sentence.rstrip(".").split()
    return int(number), article


def test_the_summary_is_the_colour_of_the_first_paragraphs_partner(articles):
    records = list(MixedArticles(articles, articles=3, colours=5, max_train=40).records("train"))
    assert len(records) == 40 == len({record.id for record in records})
    partners = set()
    for record in records:
        colours = [part[0].split()[0] for part in record.parts]
        names = [part[0].split()[-1] for part in record.parts]
        assert len(names) == 6 and all(names.count(name) == 2 for name in names)
        partner = names.index(names[0], 1)
        assert record.references == [[colours[partner]]] and set(colours) <= set(WORDS[:5])
        assert all(len(part) == 2 for part in record.parts)
        partners.add(partner)
    assert partners == {1, 2, 3, 4, 5}  # no position tells


@pytest.mark.parametrize("target", ["summary", "lead"])
def test_a_cluster_has_whole_articles_in_random_order_and_asks_for_that_of_the_first_paragraph(articles, target):
    records = list(MixedClusters(articles, target, articles=3, paragraphs=3).records("train"))
    # six sentences are needed
    assert [record.id for record in records] == [f"a{n}" for n in range(30) if n % 6 >= 3]
    openings, leads = set(), set()
    for record in records:
        number = record.id[1:]
        read = [[number_and_article(sentence) for sentence in part] for part in record.parts]
        names = {name for part in read for _, name in part}
        assert len(names) == 3 and f"article{number}" in names
        # two consecutive sentences each, and the first three pairs of each article
        assert sorted(part for part in read) == sorted([(k, a), (k + 1, a)] for a in names for k in (0, 2, 4))
        assert read[0][0][1] == f"article{number}" and read[0][0][0] > 0
        lead = [f"Sentence {k} of article{number}." for k in (0, 1)]
        assert record.references == ([[f"S{number}."]] if target == "summary" else [lead])
        openings.add(read[0][0][0])
        leads.add(record.parts.index(lead))
    assert openings == {2, 4} and len(leads) > 4, "no position tells where the beginning of the article is"
