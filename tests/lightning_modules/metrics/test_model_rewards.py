"""Rewards by pretrained models, tiny random ones here, and the classifier of consistency against one pair at a time."""

import copy

import pytest
import torch
from tiny_models import write_classifier
from transformers import BertForSequenceClassification, BertTokenizerFast

from lightning_modules.metrics.consistency import ConsistencyModel, source_chunks
from lightning_modules.metrics.model_rewards import BertScoreReward, ConsistencyReward, SummaCReward
from lightning_modules.metrics.reference_scores import bert_score
from lightning_modules.metrics.rewards import RewardInputs
from lightning_modules.metrics.summac import EntailmentModel, summac_scores

WORDS = ["a", "b", "c", "the", "storm", "hit", "coast", "town", "night", "."]
NLI = ["CONTRADICTION", "NEUTRAL", "ENTAILMENT"]
SOURCES = ["the storm hit the coast. a night. the town.", "a b c."]
INPUTS = RewardInputs(
    ids=["x", "x", "y", "y"],
    texts=["the storm hit. town.", "night", "c b a.", ""],
    references=[["a storm hit", "coast"]] * 2 + [["c"], [" "]],
    sources=[SOURCES[0], SOURCES[0], SOURCES[1], SOURCES[1]],
)


@pytest.mark.parametrize(
    "labels, supported", [(NLI, 2), (["LABEL_0", "LABEL_1"], 1), (["consistent", "inconsistent"], 0), (["LABEL_0"], 1)]
)
def test_consistency_equals_one_pair_at_a_time(labels, supported, tmp_path):
    folder = write_classifier(tmp_path / "model", WORDS, labels)
    tokenizer, model = BertTokenizerFast.from_pretrained(folder), BertForSequenceClassification.from_pretrained(folder)

    def probability(chunk: str, claim: str) -> float:
        with torch.no_grad():
            logits = model.eval()(**tokenizer(chunk, claim, return_tensors="pt")).logits[0]
        return float(logits.sigmoid() if len(labels) == 1 else logits.softmax(-1)[supported])

    sources = [["the storm hit the coast.", " ", "a night."], ["a b c."], ["town"]]
    summaries = [["the storm hit.", "town."], ["c b a."], []]
    classifier = ConsistencyModel(folder, batch_size=2)
    # one chunk for each source, as it is short
    expected = [
        sum(probability(" ".join(s for s in source if s.strip()), claim) for claim in summary) / len(summary)
        for source, summary in zip(sources[:2], summaries)
    ]
    assert classifier.scores(summaries, sources) == pytest.approx([*expected, 0], abs=1e-5)


def test_the_best_chunk_counts(monkeypatch, tmp_path):
    assert source_chunks(["a b", "c", " ", "a b c d e", "b"], most=3) == ["a b c", "a b c d e", "b"]
    classifier = ConsistencyModel(write_classifier(tmp_path / "model", WORDS, NLI))
    monkeypatch.setattr("lightning_modules.metrics.consistency.source_chunks", lambda source: source)
    one_by_one = [classifier.scores([["town."]], [[chunk]])[0] for chunk in ("the storm.", "a night.", "coast.")]
    assert classifier.scores([["town."]], [["the storm.", "a night.", "coast."]]) == pytest.approx([max(one_by_one)])


def test_classes_without_a_clear_meaning_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"which class is a supported claim.*red, green.*rename it to supported"):
        ConsistencyModel(write_classifier(tmp_path / "model", WORDS, ["red", "green"]))


def test_rewards_equal_the_metrics(tmp_path):
    folder = write_classifier(tmp_path / "model", WORDS, NLI)
    split = [["the storm hit.", "town."], ["night"], ["c b a."], []]
    sources = [["the storm hit the coast.", "a night.", "the town."]] * 2 + [["a b c."]] * 2
    options = {"batch_size": 2, "device": "cpu"}
    summac, consistency = SummaCReward(folder, **options), ConsistencyReward(folder, **options)
    assert summac(INPUTS) == pytest.approx(summac_scores(EntailmentModel(folder), None, split, sources), abs=1e-5)
    assert consistency(INPUTS) == pytest.approx(ConsistencyModel(folder).scores(split, sources), abs=1e-5)
    assert summac.loaded is summac.loaded and "loaded" not in vars(copy.copy(summac))


def test_bert_score_as_a_reward_loads_the_model_once(tmp_path, monkeypatch):
    library = pytest.importorskip("bert_score")
    folder = write_classifier(tmp_path / "model", WORDS, NLI)
    loads, scorer = [], library.BERTScorer
    monkeypatch.setattr(library, "BERTScorer", lambda **options: loads.append(1) or scorer(**options))
    reward = BertScoreReward(folder, layer=1, device="cpu")
    values = [reward(INPUTS), reward(INPUTS)]
    expected = bert_score([[text] for text in INPUTS.texts[:3]], [[[r] for r in rs] for rs in INPUTS.references[:3]],
                          folder, layer=1)  # fmt: skip
    assert values[0] == values[1] == pytest.approx([*(value / 100 for value in expected.documents), 0], abs=1e-5)
    assert len(loads) == 2  # one is that of the metric
