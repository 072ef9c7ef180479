"""Clusters of shuffled paragraphs, with the summary of the article of the first paragraph."""

import pytest
from conftest import write_lines

from datamodules.corpora import Files
from experiments.studies.controls.tasks import MixedClusters


@pytest.fixture
def articles(tmp_path) -> Files:
    texts = [" ".join(f"Sentence {k} of article{n}." for k in range(4 + n % 5)) for n in range(30)]
    rows = [{"id": f"a{n}", "document": text, "summary": f"S{n}."} for n, text in enumerate(texts)]
    return Files(train=str(write_lines(tmp_path / "train.jsonl", rows)), val=str(tmp_path / "train.jsonl"))


def number_and_article(sentence: str) -> tuple[int, str]:
    _, number, _, article = sentence.rstrip(".").split()
    return int(number), article


@pytest.mark.parametrize("target", ["summary", "lead"])
def test_a_cluster_has_whole_articles_in_random_order_and_asks_for_that_of_the_first_paragraph(articles, target):
    records = list(MixedClusters(articles, target, articles=3, paragraphs=3).records("train"))
    # articles have four to eight sentences; six are needed
    assert [record.id for record in records] == [f"a{n}" for n in range(30) if n % 5 >= 2]
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
