import math
from itertools import product

import pytest
import torch
from small_extractive import DOCUMENTS, batch_of, bertsum, data
from tiny_models import write_bert
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

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
    batch = batch_of(data(), DOCUMENTS)
    for pooling, scoring in product(POOLINGS, SCORINGS):
        options = SelectionOptions(selector, 3)
        made = model(encoding=encoding, pooling=pooling, scoring=scoring, selection=options)
        assert made.loss_terms(batch)["extraction"].isfinite()
        summaries = made.summarize(batch)
        sizes = [len(summary.sentences) for summary in summaries]
        assert sizes[:2] == [0, 1] and all(1 <= size <= 3 for size in sizes[2:])
        for summary, document in zip(summaries, DOCUMENTS):
            assert summary.positions == sorted(set(summary.positions))
            assert summary.sentences == [document.sentences[at] for at in summary.positions]
            assert len(summary.sentence_scores) == len(document.sentences)
    if selector == "trigram_blocking":
        assert sizes[2] == 1  # four times the same sentence


def scores_of(made: BertSum, document: Document) -> list[float]:
    return made.eval().sentence_scores(batch_of(data(), [document]))[0]


def test_separate_sentences_do_not_see_each_other_joint_ones_do_and_every_token_of_a_long_one_counts():
    documents = [Document("x", [["A storm hit.", end]]) for end in ("Boats sank.", "Nobody slept at all.")]
    for encoding, equal in (("separate", True), ("joint", False)):
        made = model(encoding=encoding, **{"inter_sentence.layers": 0})
        first, second = (scores_of(made, document)[0] for document in documents)
        assert math.isclose(first, second, abs_tol=1e-6) == equal
    documents = [Document("x", [["storm coast town " * 60 + end]]) for end in ("boats", "nobody")]
    for pooling in POOLINGS:
        first, second = (scores_of(model(pooling=pooling), document) for document in documents)
        assert first != second, pooling


def test_windows_read_the_whole_of_a_long_document():
    made, document = model(**{"inter_sentence.layers": 0}), DOCUMENTS[4]
    whole = scores_of(made, document)
    made.network.reader.max_tokens = len(data().encode(document)["tokens"])
    assert scores_of(made, document) == pytest.approx(whole, abs=1e-6)
    made.network.reader.max_tokens = 24  # documents are encoded in windows, and each sentence has its own score
    assert len(set(scores_of(made, document))) == 12
    made.network.encoding, made.network.reader.max_tokens = "separate", 5
    with pytest.raises(ValueError, match=r"lower data\.piece"):
        scores_of(made, document)


@pytest.mark.parametrize("loss", ["labels", "soft_labels"])
def test_losses_equal_their_formulas(loss):
    made, documents = model(loss=loss, temperature=0.5), DOCUMENTS[1:]
    batch = batch_of(data(), documents)
    logits, each = torch.randn(batch.mask.shape), []
    for row, document in enumerate(documents):
        scores, labels, gains = (x[row, : len(document.sentences)] for x in (logits, batch.labels, batch.gains))
        if loss == "labels":
            each.append(binary_cross_entropy_with_logits(scores, labels.float()))
        else:
            each.append(cross_entropy(scores, (gains / 0.5).softmax(0)))
    torch.testing.assert_close(made.extraction_loss(logits, batch), torch.stack(each).mean(), rtol=1e-4, atol=0)


def test_attention_between_sentences_is_a_distribution_and_wrong_arguments_are_named():
    batch = batch_of(data(), DOCUMENTS)
    maps = model(**{"inter_sentence.layers": 2}).sentence_attention(batch)
    assert [found.shape for found in maps] == [(n, n) for n in (0, 1, 4, 4, 12)]
    for found in maps[1:]:
        assert found.sum(1) == pytest.approx(1, abs=1e-5)
    assert model(**{"inter_sentence.layers": 0}).sentence_attention(batch) == []
    for arguments, part in (({"temperature": 0.0}, "temperature"), ({"encoding": "both"}, "joint or separate")):
        with pytest.raises(ValueError, match=part):
            model(**arguments)


@pytest.mark.parametrize("long_input, room", [("windows", 64), ("extend", 200)])
def test_a_pretrained_encoder_reads_windows_or_extended_positions(long_input, room, tmp_path):
    checkpoint = write_bert(tmp_path, [], vocab_size=300, max_position_embeddings=64)
    options = {"checkpoint": checkpoint, "long_input": long_input, "positions": 200, "inter_sentence.layers": 0}
    made = model(**options)
    assert 64 < len(data().encode(DOCUMENTS[4])["tokens"]) <= 200 and made.network.reader.max_tokens == room
    scores = scores_of(made, DOCUMENTS[4])
    assert len(scores) == 12 and len(set(scores[-5:])) > 1
