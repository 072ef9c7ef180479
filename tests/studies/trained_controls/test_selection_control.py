"""Slow: selectors that look at redundancy take each repeated sentence once, where they can see that it is repeated."""

import sysconfig

import pytest

from datamodules.corpora import Docstrings
from datamodules.corpora.corpus import make_document
from experiments.studies.controls.tasks import PlantedDuplicates
from lightning_modules.extractive.baselines import predictions
from lightning_modules.metrics.rouge import rouge_scores


@pytest.fixture(scope="module")
def docstrings() -> Docstrings:
    """The standard library's: quick to harvest."""
    return Docstrings([sysconfig.get_paths()["stdlib"]], num_proc=1)


def rouge2(docstrings: Docstrings, selector: str, trade_off: float = 0.5, **corpus) -> float:
    """Mean ROUGE-2 F1 x 100 of three sentences, scored by their tf-idf cosine with the document."""
    records = PlantedDuplicates(docstrings, documents=60, **corpus).records("train")
    rows = predictions(map(make_document, records), "zero_shot", selector=selector, trade_off=trade_off)
    scores = [rouge_scores(row["summary"], row["references"], ("rouge2",))["rouge2"].fmeasure for row in rows]
    return 100 * sum(scores) / len(scores)


@pytest.mark.slow
def test_redundancy_is_avoided_where_there_is_any(docstrings):
    """Seeds of 150 documents lie within 5 points of each other; the margins are three times that and more."""
    plain = {name: rouge2(docstrings, name) for name in ("top_k", "trigram_blocking", "mmr")}
    plain["triangle"] = rouge2(docstrings, "triangle", trade_off=1.0)
    assert all(plain[name] > plain["top_k"] + 20 for name in ("trigram_blocking", "mmr", "triangle"))
    # versions without a common trigram: blocking sees nothing, similarity does
    apart = {name: rouge2(docstrings, name, variation="every_third_word") for name in ("trigram_blocking", "mmr")}
    assert apart["mmr"] > apart["trigram_blocking"] + 10
    # an opening that all share: blocking sees repetition where there is none
    opening = "It should be noted that"
    common = {name: rouge2(docstrings, name, opening=opening) for name in ("trigram_blocking", "mmr")}
    assert common["mmr"] > common["trigram_blocking"] + 15


@pytest.mark.slow
def test_without_repetition_selectors_are_alike(docstrings):
    scores = [rouge2(docstrings, name, variation="none") for name in ("top_k", "trigram_blocking", "mmr")]
    assert max(scores) - min(scores) < 8
