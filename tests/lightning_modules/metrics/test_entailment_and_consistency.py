import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import write_classifier
from transformers import BertForSequenceClassification, BertTokenizerFast

from lightning_modules.metrics.model_rewards import BertScoreReward, ConsistencyReward, SummaCReward
from lightning_modules.metrics.pair_classifier import ConsistencyModel, source_chunks
from lightning_modules.metrics.reference_scores import bert_score
from lightning_modules.metrics.rewards import RewardInputs
from lightning_modules.metrics.summac import PERCENTILE_EDGES, EntailmentModel, SummaCConv, summac_scores, summac_zs

WORDS = ["a", "b", "c", "the", "storm", "hit", "coast", "town", "night", "."]
NLI = ["CONTRADICTION", "NEUTRAL", "ENTAILMENT"]
SOURCES = [["the storm hit the coast", "a night", "the town"], ["a b c"], ["coast", " ", "town town"]]
SUMMARIES = [["the storm hit", "town"], ["c b a"], []]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_classifier(tmp_path_factory.mktemp("nli"), WORDS, NLI)


@torch.no_grad()
def logits_of(folder: str, premise: str, hypothesis: str) -> torch.Tensor:
    """The output for one pair of texts, without batches or padding."""
    tokenizer = BertTokenizerFast.from_pretrained(folder)
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    return model(**tokenizer(premise, hypothesis, return_tensors="pt")).logits[0]


def one_by_one(folder: str, summary: list[str], source: list[str]) -> torch.Tensor:
    """The pair matrix with the classes in the config's order: [3, M, N]."""
    matrix = torch.zeros(3, len(source), len(summary))
    for m, premise in enumerate(source):
        for n, hypothesis in enumerate(summary):
            contradiction, neutral, entailment = logits_of(folder, premise, hypothesis).softmax(-1)
            matrix[:, m, n] = torch.stack([entailment, contradiction, neutral])
    return matrix


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_matrices_equal_one_pair_at_a_time(folder, batch_size):
    matrices = EntailmentModel(folder, batch_size=batch_size).matrices(SUMMARIES, SOURCES)
    assert matrices[2].shape == (3, 2, 0)
    for matrix, summary, source in zip(matrices[:2], SUMMARIES, SOURCES):
        torch.testing.assert_close(matrix, one_by_one(folder, summary, source))
    assert matrices[0].std() > 0.05  # a model that says the same of everything would prove nothing


@given(st.lists(st.sampled_from([*PERCENTILE_EDGES, 0.5, 0.999]) | st.floats(0, 1, width=32), min_size=1, max_size=9))
def test_histogram_equals_numpys(values):
    column = torch.tensor(values, dtype=torch.float32)
    expected, _ = np.histogram(column.numpy(), np.array(PERCENTILE_EDGES, dtype=np.float32))
    assert SummaCConv().histogram(column.reshape(1, -1, 1).repeat(3, 1, 1))[0].tolist() == expected.tolist()


def authors_weights(bins: int = 23) -> dict[str, torch.Tensor]:
    sizes = {"mlp.weight": (1, bins), "mlp.bias": (1,), "layer_final.weight": (2, 3), "layer_final.bias": (2,)}
    return {name: torch.randn(size) for name, size in sizes.items()}


def test_the_authors_weights_give_the_authors_formula_and_foreign_files_are_refused(tmp_path):
    torch.manual_seed(1)
    weights = authors_weights()
    torch.save(weights, tmp_path / "theirs.bin")
    conv = SummaCConv.load(tmp_path / "theirs.bin")
    matrices = [torch.rand(3, 5, 4), torch.rand(3, 1, 2)]
    for matrix, score in zip(matrices, conv.score(matrices)):
        rows = [np.histogram(column, PERCENTILE_EDGES)[0] for column in matrix[0].T.numpy()]
        mean = (torch.tensor(np.array(rows)).float() @ weights["mlp.weight"].T + weights["mlp.bias"]).mean()
        logits = weights["layer_final.weight"] @ mean.repeat(3) + weights["layer_final.bias"]
        torch.testing.assert_close(score, logits.softmax(-1)[1])
    coarse = SummaCConv(edges=[0, 0.25, 0.5, 1])
    torch.save(coarse.state_dict(), tmp_path / "coarse.pt")
    torch.testing.assert_close(SummaCConv.load(tmp_path / "coarse.pt").score(matrices), coarse.score(matrices))
    for name, content, problem in [
        ("foreign.pt", {"weight": torch.zeros(1)}, "foreign.pt holds no SummaC-Conv weights: weight"),
        ("even50.bin", authors_weights(bins=50), "50 bins"),
    ]:
        torch.save(content, tmp_path / name)
        with pytest.raises(ValueError, match=problem):
            SummaCConv.load(tmp_path / name)


def test_scores_of_documents_and_bad_input(folder, tmp_path):
    entailment, contradiction = torch.tensor([[[0.9, 0.1], [0.2, 0.3]], [[0.05, 0.6], [0.5, 0.1]]])
    matrix = torch.stack([entailment, contradiction, 1 - entailment - contradiction])
    assert summac_zs(matrix) == pytest.approx(((0.9 - 0.5) + (0.3 - 0.6)) / 2)  # by hand
    entailment = EntailmentModel(folder)
    expected = [summac_zs(one_by_one(folder, *pair)) for pair in zip(SUMMARIES[:2], SOURCES)]
    assert summac_scores(entailment, None, SUMMARIES, SOURCES) == pytest.approx([*expected, 0], abs=1e-5)
    assert summac_scores(entailment, SummaCConv(), SUMMARIES, SOURCES)[2] == 0
    for summaries, problem in (([["a"], ["b"]], "source 1 is empty"), ([["a"]], "1 summaries but 2 sources")):
        with pytest.raises(ValueError, match=problem):
            entailment.matrices(summaries, [["a"], [" "]])
    assert summac_scores(entailment, None, [], []) == []
    # what is longer than the model reads is cut, also a claim, and if the tokenizer states no length
    long = [("storm " * 100, "coast"), ("a", "b " * 100)]
    unlimited = write_classifier(tmp_path, WORDS, NLI, model_max_length=None)
    torch.testing.assert_close(entailment.probabilities(long), EntailmentModel(unlimited).probabilities(long))
    assert ConsistencyModel(folder).scores([["b " * 100]], [["a"]])[0] > 0


@pytest.mark.parametrize("labels, supported", [
    (NLI, 2), (["LABEL_0", "LABEL_1"], 1), (["consistent", "inconsistent"], 0), (["LABEL_0"], 1),
])  # fmt: skip
def test_consistency_equals_one_pair_at_a_time(labels, supported, tmp_path):
    folder = write_classifier(tmp_path / "model", WORDS, labels)

    def probability(chunk: str, claim: str) -> float:
        logits = logits_of(folder, chunk, claim)
        return float(logits.sigmoid() if len(labels) == 1 else logits.softmax(-1)[supported])

    sources = [["the storm hit the coast.", " ", "a night."], ["a b c."], ["town"]]
    summaries = [["the storm hit.", "town."], ["c b a."], []]
    classifier = ConsistencyModel(folder, batch_size=2)
    texts = [" ".join(s for s in source if s.strip()) for source in sources]  # one chunk for each, as it is short
    pairs = zip(texts, summaries[:2])
    expected = [sum(probability(text, claim) for claim in summary) / len(summary) for text, summary in pairs]
    assert classifier.scores(summaries, sources) == pytest.approx([*expected, 0], abs=1e-5)


def test_the_best_chunk_counts_and_classes_are_found_by_name_or_refused(folder, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"which class is a supported claim.*red, green.*rename it to supported"):
        ConsistencyModel(write_classifier(tmp_path / "model", WORDS, ["red", "green"]))
    assert source_chunks(["a b", "c", " ", "a b c d e", "b"], most=3) == ["a b c", "a b c d e", "b"]
    assert source_chunks(["今天。", "明天。", "后天好。"], most=6) == ["今天。明天。", "后天好。"]
    classifier = ConsistencyModel(folder)
    monkeypatch.setattr("lightning_modules.metrics.pair_classifier.source_chunks", lambda source: source)
    one_by_one = [classifier.scores([["town."]], [[chunk]])[0] for chunk in ("the storm.", "a night.", "coast.")]
    assert classifier.scores([["town."]], [["the storm.", "a night.", "coast."]]) == pytest.approx([max(one_by_one)])

    def probabilities(*labels: str) -> torch.Tensor:
        classifier = EntailmentModel(write_classifier(tmp_path / labels[0], WORDS, labels))
        return classifier.probabilities([("the storm", "a night")])

    named = EntailmentModel(folder).probabilities([("the storm", "a night")])
    torch.testing.assert_close(named, probabilities("REFUTES", "NOT ENOUGH INFO", "SUPPORTS"))
    torch.testing.assert_close(named, probabilities("entailment", "neutral", "contradiction")[:, [1, 0, 2]])
    with pytest.raises(ValueError, match="which class is entailment"):
        probabilities("LABEL_0", "LABEL_1", "LABEL_2")
    with pytest.raises(ValueError, match="which class is entailment"):
        probabilities("not_supported", "refuted", "neutral")


INPUTS = RewardInputs(
    ids=["x", "x", "y", "y"],
    texts=["the storm hit. town.", "night", "c b a.", ""],
    references=[["a storm hit", "coast"]] * 2 + [["c"], [" "]],
    sources=["the storm hit the coast. a night. the town."] * 2 + ["a b c."] * 2,
)


def test_rewards_equal_the_metrics(folder):
    split = [["the storm hit.", "town."], ["night"], ["c b a."], []]
    sources = [["the storm hit the coast.", "a night.", "the town."]] * 2 + [["a b c."]] * 2
    options = {"batch_size": 2, "device": "cpu"}
    summac, consistency = SummaCReward(folder, **options), ConsistencyReward(folder, **options)
    assert summac(INPUTS) == pytest.approx(summac_scores(EntailmentModel(folder), None, split, sources), abs=1e-5)
    assert consistency(INPUTS) == pytest.approx(ConsistencyModel(folder).scores(split, sources), abs=1e-5)
    assert summac.loaded is summac.loaded


def test_bert_score_as_a_reward_loads_the_model_once(folder, monkeypatch):
    library = pytest.importorskip("bert_score")
    loads, scorer = [], library.BERTScorer
    monkeypatch.setattr(library, "BERTScorer", lambda **options: loads.append(1) or scorer(**options))
    reward = BertScoreReward(folder, layer=1, device="cpu")
    values = [reward(INPUTS), reward(INPUTS)]
    expected = bert_score([[text] for text in INPUTS.texts[:3]], [[[r] for r in rs] for rs in INPUTS.references[:3]],
                          folder, layer=1)  # fmt: skip
    assert values[0] == values[1] == pytest.approx([*(value / 100 for value in expected.documents), 0], abs=1e-5)
    assert len(loads) == 2  # one is that of the metric
