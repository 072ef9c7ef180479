"""Documents of paragraphs of several articles, whose summary follows only from the articles."""

import pytest
from conftest import write_lines

from datamodules.corpora import Files
from experiments.studies.controls.tasks import MixedArticles
from experiments.studies.controls.tasks.mixed_articles import WORDS


@pytest.fixture
def articles(tmp_path) -> Files:
    rows = [
        {"id": f"a{n}", "document": " ".join(f"Sentence {k} of article{n}." for k in range(2 + n % 4)), "summary": "x"}
        for n in range(12)
    ]
    return Files(train=str(write_lines(tmp_path / "train.jsonl", rows)), val=str(tmp_path / "train.jsonl"))


def article_of(part: list[str]) -> str:
    return part[0].split()[-1]


def test_the_summary_is_the_colour_of_the_first_paragraphs_partner(articles):
    records = list(MixedArticles(articles, articles=3, colours=5, max_train=40).records("train"))
    assert len(records) == 40 == len({record.id for record in records})
    for record in records:
        colours = [part[0].split()[0] for part in record.parts]
        names = [article_of(part) for part in record.parts]
        assert len(names) == 6 and all(names.count(name) == 2 for name in names)
        partner = names.index(names[0], 1)
        assert record.references == [[colours[partner]]] and set(colours) <= set(WORDS[:5])
        assert all(len(part) == 2 for part in record.parts)
    partners = [[article_of(part) for part in record.parts].index(article_of(record.parts[0]), 1) for record in records]
    assert set(partners) == {1, 2, 3, 4, 5}  # no position tells
