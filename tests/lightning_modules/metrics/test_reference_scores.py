from collections import Counter

import pytest
import torch
from tiny_models import write_bert
from torchmetrics.functional.text import sacre_bleu_score
from transformers import BertModel, BertTokenizerFast

from lightning_modules.metrics.reference_scores import ScoreList, bert_score, bleu, chrf, meteor

WORDS = ["a", "b", "c", "the", "storm", "hit", "coast", "town", "night"]
SIZES = {"num_hidden_layers": 2, "max_position_embeddings": 32, "initializer_range": 1.0}
PREDICTIONS = [["The storm hit the coast.", "Boats sank in the night."], ["The town slept on."], []]
REFERENCES = [
    [["The storm hit the coast at night.", "Boats sank in it."], ["A storm hit the coast. Boats sank in the night."]],
    [["All of the town slept on."]],
    [["Nobody came."], ["It was late."], ["So it goes."]],
]
TEXTS = ["The storm hit the coast. Boats sank in the night.", "The town slept on.", ""]
TARGETS = [[" ".join(target) for target in targets] for targets in REFERENCES]


def of_corpus(scores: ScoreList) -> float:
    return scores.corpus.score(scores.corpus.statistics.sum(0))


def test_bleu_equals_another_implementation():
    pytest.importorskip("sacrebleu")
    scores = bleu(PREDICTIONS[:2], REFERENCES[:2])
    assert of_corpus(scores) == pytest.approx(100 * sacre_bleu_score(TEXTS[:2], TARGETS[:2]).item(), abs=1e-3)
    assert scores.documents[0] == pytest.approx(100 * sacre_bleu_score(TEXTS[:1], TARGETS[:1]).item(), abs=1e-3)
    assert scores.signature.startswith("bleu|nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    equal = bleu([["One two three", "four five."]], [[["One two three four", "five."]]])
    assert of_corpus(equal) == pytest.approx(100)


def chrf_by_hand(text: str, target: str) -> float:
    """Popović 2015: means over orders 1 to 6 of precision and recall of characters, and F with beta = 2."""
    sides = ["".join(side.split()) for side in (text, target)]
    precisions, recalls = [], []
    for n in range(1, 7):
        ours, theirs = (Counter(zip(*(side[start:] for start in range(n)))) for side in sides)
        precisions.append((ours & theirs).total() / ours.total())
        recalls.append((ours & theirs).total() / theirs.total())
    precision, recall = sum(precisions) / 6, sum(recalls) / 6
    return 100 * 5 * precision * recall / (4 * precision + recall)


def test_chrf_equals_its_equations():
    pytest.importorskip("sacrebleu")
    predictions = [["the storm hit", "the coast at night"], ["the town slept on"]]
    references = [[["a storm hit the town"], ["the storm at night", "hit a coast"]], [["all of the town slept"]]]
    scores = chrf(predictions, references)
    for score, text, targets in zip(scores.documents, predictions, references):
        expected = [chrf_by_hand(" ".join(text), " ".join(target)) for target in targets]
        assert score == pytest.approx(max(expected))
    assert min(scores.documents) < of_corpus(scores) < max(scores.documents)
    assert scores.signature.startswith("chrf|nrefs:var|")


def test_meteor_by_hand():
    # All three words match in one chunk ("cats" by its stem): F = 1, penalty 0.5 (1/3)^3.
    one_chunk = meteor([["The cat", "sat."]], [[["the cats sat"]]], synonyms=False).documents
    assert one_chunk == pytest.approx([100 * (1 - 0.5 / 27)])
    # Two of three words match, in two chunks: P = 2/3, R = 1/2, F = PR / (0.9 P + 0.1 R), penalty 0.5 (2/2)^3.
    precision, recall = 2 / 3, 2 / 4
    expected = 100 * precision * recall / (0.9 * precision + 0.1 * recall) * 0.5
    scores = meteor([["storm x coast"], []], [[["coast"], ["storm hit the coast"]], [["a"]]], synonyms=False)
    one_word = 100 * (1 / 3) / (0.9 / 3 + 0.1) * 0.5
    assert scores.documents == pytest.approx([max(expected, one_word), 0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"), WORDS, model_max_length=32, **SIZES)


def f1_by_hand(folder: str, layer: int, prediction: str, reference: str) -> float:
    """Equations 2 to 4 of Zhang et al. 2020: each word takes its most similar token, and only words are averaged."""
    tokenizer, model = BertTokenizerFast.from_pretrained(folder), BertModel.from_pretrained(folder).eval()

    def states(text: str) -> torch.Tensor:
        with torch.no_grad():
            output = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
        return torch.nn.functional.normalize(output.hidden_states[layer][0], dim=-1)

    similarity = states(prediction) @ states(reference).T
    precision, recall = similarity.amax(1)[1:-1].mean(), similarity.amax(0)[1:-1].mean()
    return (2 * precision * recall / (precision + recall)).item()


@pytest.mark.parametrize("layer", [1, 2])
def test_bert_score_equals_its_equations_in_any_batch(folder, layer, tmp_path):
    pytest.importorskip("bert_score")
    predictions = [["the storm"], ["a b c a b c", "town"], [], ["night"]]
    references = [[["a storm hit"], ["coast"]], [["c"]], [["a"]], [["night the town the town the"]]]
    expected = [
        100 * max(f1_by_hand(folder, layer, " ".join(text), " ".join(target)) for target in targets) if text else 0
        for text, targets in zip(predictions, references)
    ]
    for batch_size in (1, 64):
        scores = bert_score(predictions, references, folder, layer, batch_size)
        assert scores.documents == pytest.approx(expected, abs=1e-3)
    assert f"|layer:{layer}|" in scores.signature
    if layer == 2:  # the default of a model of one's own is its last layer
        assert bert_score(predictions, references, folder) == scores
        unlimited = write_bert(tmp_path, WORDS, **SIZES)  # a tokenizer that states no length
        long = [["storm the town " * 20]], [[["storm the town " * 10]]]  # equal in the 30 words that the model reads
        assert bert_score(*long, unlimited).documents == pytest.approx([100], abs=1e-3)


@pytest.mark.parametrize("score", [bleu, chrf, lambda *texts: meteor(*texts, synonyms=False)])
def test_empty_predictions_count_and_bad_references_are_refused(score):
    pytest.importorskip("sacrebleu")
    assert score(PREDICTIONS, REFERENCES).documents[2] == 0
    for predictions, references, problem in [
        ([["a"]], [[["a"], [" "]]], "reference 1 of prediction 0 is empty"),
        ([["a"], ["b"]], [[["a"]], []], "prediction 1 has no reference"),
        ([["a"]], [[["a"]], [["b"]]], "1 predictions but 2"),
    ]:
        with pytest.raises(ValueError, match=problem):
            score(predictions, references)
