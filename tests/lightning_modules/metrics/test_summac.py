import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import write_classifier
from transformers import BertForSequenceClassification, BertTokenizerFast

from lightning_modules.metrics.summac import PERCENTILE_EDGES, EntailmentModel, SummaCConv, summac_scores, summac_zs

WORDS = ["a", "b", "c", "the", "storm", "hit", "coast", "town", "night"]
SOURCES = [["the storm hit the coast", "a night", "the town"], ["a b c"], ["coast", " ", "town town"]]
SUMMARIES = [["the storm hit", "town"], ["c b a"], []]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_classifier(tmp_path_factory.mktemp("nli"), WORDS, ["CONTRADICTION", "NEUTRAL", "ENTAILMENT"])


def one_by_one(folder: str, summary: list[str], source: list[str]) -> torch.Tensor:
    """The pair matrix without batches or padding, with the classes in the config's order: [3, M, N]."""
    tokenizer = BertTokenizerFast.from_pretrained(folder)
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    matrix = torch.zeros(3, len(source), len(summary))
    for m, premise in enumerate(source):
        for n, hypothesis in enumerate(summary):
            with torch.no_grad():
                contradiction, neutral, entailment = model(
                    **tokenizer(premise, hypothesis, return_tensors="pt")
                ).logits[0].softmax(-1)
            matrix[:, m, n] = torch.stack([entailment, contradiction, neutral])
    return matrix


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_matrices_equal_one_pair_at_a_time(folder, batch_size):
    matrices = EntailmentModel(folder, batch_size=batch_size).matrices(SUMMARIES, SOURCES)
    assert matrices[2].shape == (3, 2, 0)
    for matrix, summary, source in zip(matrices[:2], SUMMARIES, SOURCES):
        torch.testing.assert_close(matrix, one_by_one(folder, summary, source))
    assert matrices[0].std() > 0.05  # a model that says the same of everything would prove nothing


def test_classes_are_found_by_name(folder, tmp_path):
    def probabilities(*labels: str) -> torch.Tensor:
        classifier = EntailmentModel(write_classifier(tmp_path / labels[0], WORDS, labels))
        return classifier.probabilities([("the storm", "a night")])

    named = EntailmentModel(folder).probabilities([("the storm", "a night")])
    torch.testing.assert_close(named, probabilities("REFUTES", "NOT ENOUGH INFO", "SUPPORTS"))
    torch.testing.assert_close(named, probabilities("entailment", "neutral", "contradiction")[:, [1, 0, 2]])
    with pytest.raises(ValueError, match="which class is entailment"):
        probabilities("LABEL_0", "LABEL_1", "LABEL_2")


def test_a_pair_longer_than_the_model_is_cut(folder):
    assert EntailmentModel(folder).probabilities([("storm " * 100, "coast"), ("a", "b " * 100)]).isfinite().all()


def test_zero_shot_by_hand():
    entailment = torch.tensor([[0.9, 0.1], [0.2, 0.3]])
    contradiction = torch.tensor([[0.05, 0.6], [0.5, 0.1]])
    matrix = torch.stack([entailment, contradiction, 1 - entailment - contradiction])
    assert summac_zs(matrix) == pytest.approx(((0.9 - 0.5) + (0.3 - 0.6)) / 2)
    assert summac_zs(torch.zeros(3, 2, 0)) == 0


@given(st.lists(st.sampled_from([*PERCENTILE_EDGES, 0.5, 0.999]) | st.floats(0, 1, width=32), min_size=1, max_size=9))
@settings(deadline=None)
def test_histogram_equals_numpys(values):
    column = torch.tensor(values, dtype=torch.float32)
    matrix = column.reshape(1, -1, 1).repeat(3, 1, 1)
    expected, _ = np.histogram(column.numpy(), np.array(PERCENTILE_EDGES, dtype=np.float32))
    assert SummaCConv().histogram(matrix)[0].tolist() == expected.tolist()


def authors_weights(bins: int = 23) -> dict[str, torch.Tensor]:
    return {
        "mlp.weight": torch.randn(1, bins),
        "mlp.bias": torch.randn(1),
        "layer_final.weight": torch.randn(2, 3),
        "layer_final.bias": torch.randn(2),
    }


def test_the_authors_weights_give_the_authors_formula(tmp_path):
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


def test_weights_come_back_from_a_file_and_foreign_files_are_refused(tmp_path):
    conv = SummaCConv(edges=[0, 0.25, 0.5, 1])
    torch.save(conv.state_dict(), tmp_path / "conv.pt")
    matrices = [torch.rand(3, 4, 2)]
    torch.testing.assert_close(SummaCConv.load(tmp_path / "conv.pt").score(matrices), conv.score(matrices))
    torch.save({"weight": torch.zeros(1)}, tmp_path / "foreign.pt")
    with pytest.raises(ValueError, match=r"foreign.pt holds no SummaC-Conv weights: weight"):
        SummaCConv.load(tmp_path / "foreign.pt")
    torch.save(authors_weights(bins=50), tmp_path / "even50.bin")
    with pytest.raises(ValueError, match="50 bins"):
        SummaCConv.load(tmp_path / "even50.bin")


def test_scores_of_documents_and_bad_input(folder):
    entailment = EntailmentModel(folder)
    expected = [summac_zs(one_by_one(folder, *pair)) for pair in zip(SUMMARIES[:2], SOURCES)]
    assert summac_scores(entailment, None, SUMMARIES, SOURCES) == pytest.approx([*expected, 0], abs=1e-5)
    assert summac_scores(entailment, SummaCConv(), SUMMARIES, SOURCES)[2] == 0
    with pytest.raises(ValueError, match="source 1 is empty"):
        entailment.matrices([["a"], ["b"]], [["a"], [" "]])
    with pytest.raises(ValueError, match="1 summaries but 2 sources"):
        entailment.matrices([["a"]], [["a"], ["b"]])
    assert summac_scores(entailment, None, [], []) == []
