"""Slow: where a mechanism is needed, models with it find the answer, and matched controls do not."""

from pathlib import Path

import pytest

from datamodules.corpora.corpus import make_document
from experiments.studies.controls.points import pegasus_points, run_point, sweep_points
from experiments.studies.controls.rst_extraction import ARMS, train_arm
from experiments.studies.controls.tasks import PlantedDuplicates
from experiments.studies.controls.tasks.control_sentences import standard_library
from lightning_modules.extractive.baselines import predictions
from lightning_modules.metrics.rouge import rouge_scores

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("controls")


def scores(sweep: str, measure: str, cache: Path, *arms: str) -> dict[str, float]:
    """A test score of arms of a control's sweep, trained with seed 1 as the sweep says."""
    points = [point for point in sweep_points(sweep) if point.arm in arms and point.seed == 1]
    assert {point.arm for point in points} == set(arms)
    return {point.arm: run_point(point, cache)[f"test/{measure}"] for point in points}


def test_an_agent_that_reads_the_values_needs_a_message_from_the_agent_that_reads_the_key(cache):
    """A guess among three values is right in 33 % of the documents; the standard error of 200 documents is 3.3."""
    right = scores("agents", "rouge1", cache, "mean-3", "silent-3")
    assert right["silent-3"] < 50 and right["mean-3"] > 80


def test_only_the_right_graph_tells_the_answer(cache):
    """Three seeds of the sweep lie within 5 points of each other; the margins here are twice that and more."""
    right = scores("graphsum", "rouge1", cache, "scaled", "permuted", "none")
    assert right["scaled"] > 65
    assert right["scaled"] > right["permuted"] + 12 and right["scaled"] > right["none"] + 12


def test_principal_sentences_are_the_best_to_predict(cache):
    """Random sentences differ between seeds, with 65 to 93 ROUGE-1 and 0.36 to 0.88 nats; the others hardly do."""
    measured = {point.arm: run_point(point, cache) for point in pegasus_points() if point.seed == 1}
    rouge = {arm: measures["test/rouge1"] for arm, measures in measured.items()}
    assert rouge["ind-orig"] > 40 + max(rouge[arm] for arm in ("lead-1", "no pre-training", "lead"))
    assert rouge["ind-orig"] > rouge["random"]
    assert measured["ind-orig"]["val/nll"] < measured["random"]["val/nll"] - 0.15


def test_rare_names_are_copied_only_by_a_pointer(cache):
    rouge = scores("pointer", "rouge1", cache, "on", "off")
    assert rouge["on"] > 80
    assert rouge["off"] < 55, "half of the names are in no vocabulary"


def test_likelihood_keeps_the_flaw_of_its_references_and_rewards_mend_it(cache):
    """Four of five references lack the last name, which costs a summary 14 points of ROUGE-L."""
    rouge = scores("self_critical", "rougeL", cache, "likelihood", "greedy", "leave_one_out")
    assert rouge["likelihood"] < 88 and rouge["greedy"] > 95 and rouge["leave_one_out"] > 95


def test_coverage_keeps_attention_from_going_round_in_circles(cache):
    """The three seeds of the sweep differ by 6.6 to 7.9 points of ROUGE-2."""
    rouge = scores("coverage", "rouge2", cache, "start", "off")
    assert rouge["start"] > rouge["off"] + 3


def test_only_the_document_s_own_tree_tells_the_summary(cache):
    rouge = scores("rstformer", "rouge1", cache, "led", "log_bias", "other")
    assert rouge["log_bias"] > max(rouge["led"], rouge["other"]) + 25


def test_a_distribution_tells_more_than_its_best_tree(cache):
    """A perfect reader of the best tree is right in 56 % of the documents, with 1.38 nats (`rst_bounds`)."""
    names = {f"16 candidates, agreement 0.7: {name}": name for name in ("distribution", "best tree")}
    outcomes = {names[arm.name]: train_arm(arm, 1, cache) for arm in ARMS if arm.name in names}
    distribution, best_tree = outcomes["distribution"], outcomes["best tree"]
    assert distribution.loss < best_tree.loss - 0.15 and distribution.accuracy > best_tree.accuracy + 0.05


# Selectors that look at redundancy take each repeated sentence once, where they can see that it is repeated


def rouge2(selector: str, trade_off: float = 0.5, **corpus) -> float:
    """Mean ROUGE-2 F1 x 100 of three sentences, scored by their tf-idf cosine with the document."""
    records = PlantedDuplicates(standard_library(), documents=60, **corpus).records("train")
    rows = predictions(map(make_document, records), "zero_shot", selector=selector, trade_off=trade_off)
    scores = [rouge_scores(row["summary"], row["references"], ("rouge2",))["rouge2"].fmeasure for row in rows]
    return 100 * sum(scores) / len(scores)


def test_redundancy_is_avoided_where_there_is_any():
    """Seeds of 150 documents lie within 5 points of each other; the margins are three times that and more."""
    plain = {name: rouge2(name) for name in ("top_k", "trigram_blocking", "mmr")}
    plain["triangle"] = rouge2("triangle", trade_off=1.0)
    assert all(plain[name] > plain["top_k"] + 20 for name in ("trigram_blocking", "mmr", "triangle"))
    # versions without a common trigram: blocking sees nothing, similarity does
    apart = {name: rouge2(name, variation="every_third_word") for name in ("trigram_blocking", "mmr")}
    assert apart["mmr"] > apart["trigram_blocking"] + 10
    # an opening that all share: blocking sees repetition where there is none
    opening = "It should be noted that"
    common = {name: rouge2(name, opening=opening) for name in ("trigram_blocking", "mmr")}
    assert common["mmr"] > common["trigram_blocking"] + 15
    # without repetition, selectors are alike
    scores = [rouge2(name, variation="none") for name in ("top_k", "trigram_blocking", "mmr")]
    assert max(scores) - min(scores) < 8
