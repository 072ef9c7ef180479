import math

import pytest
import torch
from small_extractive import DOCUMENTS, batch_of, bertsum, data
from tiny_models import write_bert

from datamodules.documents import Document
from lightning_modules.extractive.bertsum import BertSum
from lightning_modules.extractive.names import POOLINGS, SCORINGS, SELECTORS
from lightning_modules.extractive.selection import SelectionOptions


def model(**arguments) -> BertSum:
    torch.manual_seed(0)
    return bertsum(**arguments)


@pytest.mark.parametrize("encoding", ["joint", "separate"])
@pytest.mark.parametrize("selector", SELECTORS)
def test_documents_of_any_kind_are_summarized(encoding, selector):
    for pooling in POOLINGS:
        for scoring in SCORINGS:
            options = SelectionOptions(selector, 3)
            made = model(encoding=encoding, pooling=pooling, scoring=scoring, selection=options)
            batch = batch_of(data(), DOCUMENTS)
            loss = made.loss_terms(batch)["extraction"]
            assert loss.isfinite()
            summaries = made.summarize(batch)
            sizes = [len(summary.sentences) for summary in summaries]
            assert sizes[:2] == [0, 1] and all(1 <= size <= 3 for size in sizes[2:])
            for summary, document in zip(summaries, DOCUMENTS):
                assert summary.positions == sorted(set(summary.positions))
                assert summary.sentences == [document.sentences[at] for at in summary.positions]
                assert len(summary.sentence_scores) == len(document.sentences)
    if selector == "trigram_blocking":
        assert sizes[2] == 1  # four times the same sentence


def test_a_document_reads_the_same_alone_and_in_a_batch():
    made = model().eval()
    together = made.sentence_scores(batch_of(data(), DOCUMENTS))
    for document, scores in zip(DOCUMENTS, together):
        assert made.sentence_scores(batch_of(data(), [document]))[0] == pytest.approx(scores, abs=1e-5)


def test_separate_sentences_do_not_see_each_other_and_joint_ones_do():
    one, other = (Document("x", [["A storm hit.", end]]) for end in ("Boats sank.", "Nobody slept at all."))
    for encoding, equal in (("separate", True), ("joint", False)):
        made = model(encoding=encoding, **{"inter_sentence.layers": 0}).eval()
        first, second = (made.sentence_scores(batch_of(data(), [document]))[0][0] for document in (one, other))
        assert math.isclose(first, second, abs_tol=1e-6) == equal


def test_every_token_of_a_long_sentence_counts():
    words = "storm coast town " * 60
    for pooling in POOLINGS:
        made = model(pooling=pooling).eval()
        scores = [
            made.sentence_scores(batch_of(data(), [Document("x", [[words + end]])]))[0][0]
            for end in ("boats", "nobody")
        ]
        assert scores[0] != scores[1], pooling


def test_windows_read_the_whole_of_a_long_document():
    made = model(**{"inter_sentence.layers": 0}).eval()
    whole = made.sentence_scores(batch_of(data(), DOCUMENTS[4:]))[0]
    tokens = len(data().encode(DOCUMENTS[4])["tokens"])
    made.network.reader.max_tokens = tokens
    assert made.sentence_scores(batch_of(data(), DOCUMENTS[4:]))[0] == pytest.approx(whole, abs=1e-6)
    made.network.reader.max_tokens = 24  # documents are encoded in windows, and each sentence has its own score
    scores = made.sentence_scores(batch_of(data(), DOCUMENTS[4:]))[0]
    assert len(scores) == 12 and len(set(scores)) == 12
    made.network.encoding, made.network.reader.max_tokens = "separate", 5
    with pytest.raises(ValueError, match=r"lower data\.piece"):
        made.sentence_scores(batch_of(data(), DOCUMENTS[4:]))


def by_hand(loss: str, logits: list[float], labels: list[float], gains: list[float]) -> float:
    """Return the loss of one document by a loop over sentences."""
    if loss == "labels":
        terms = [-math.log(1 / (1 + math.exp(-z if y else z))) for z, y in zip(logits, labels)]
        return sum(terms) / len(terms)
    chances = [math.exp(z) / sum(map(math.exp, logits)) for z in logits]
    wanted = [math.exp(g / 0.5) / sum(math.exp(h / 0.5) for h in gains) for g in gains]
    return -sum(w * math.log(p) for w, p in zip(wanted, chances))


@pytest.mark.parametrize("loss", ["labels", "soft_labels"])
def test_losses_equal_their_formulas(loss):
    made, documents = model(loss=loss, temperature=0.5), DOCUMENTS[1:]
    batch = batch_of(data(), documents)
    logits = torch.randn(batch.mask.shape)
    each = []
    for row, document in enumerate(documents):
        size = len(document.sentences)
        values = (tensor[row, :size].tolist() for tensor in (logits, batch.labels, batch.gains))
        each.append(by_hand(loss, *values))
    assert made.extraction_loss(logits, batch).item() == pytest.approx(sum(each) / len(each), rel=1e-4)


def test_attention_between_sentences_is_a_distribution():
    batch = batch_of(data(), DOCUMENTS)
    maps = model(**{"inter_sentence.layers": 2}).sentence_attention(batch)
    assert [found.shape for found in maps] == [(n, n) for n in (0, 1, 4, 4, 12)]
    for found in maps[1:]:
        assert found.sum(1) == pytest.approx(1, abs=1e-5)
    assert model(**{"inter_sentence.layers": 0}).sentence_attention(batch) == []


@pytest.mark.parametrize("long_input, room", [("windows", 64), ("extend", 200)])
def test_a_pretrained_encoder_reads_windows_or_extended_positions(long_input, room, tmp_path):
    checkpoint = write_bert(tmp_path, [], vocab_size=300, max_position_embeddings=64)
    options = {"checkpoint": checkpoint, "long_input": long_input, "positions": 200, "inter_sentence.layers": 0}
    made, batch = model(**options).eval(), batch_of(data(), DOCUMENTS[4:])
    assert 64 < batch.tokens.shape[1] <= 200 and made.network.reader.max_tokens == room
    scores = made.sentence_scores(batch)[0]
    assert len(scores) == 12 and len(set(scores[-5:])) > 1


def test_wrong_arguments_are_named():
    for arguments, part in (({"temperature": 0.0}, "temperature"), ({"encoding": "both"}, "joint or separate")):
        with pytest.raises(ValueError, match=part):
            model(**arguments)
