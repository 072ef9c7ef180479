from dataclasses import replace

import pytest
import torch
from cases import CASES
from conftest import read_metrics
from pytorch_lightning.plugins.precision import DoublePrecision
from torch.nn.functional import cross_entropy

from lightning_modules import PointerGenerator
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.sequence_to_sequence import SequenceToSequence
from lightning_modules.summarizer import SCORES, Samples, weighted_sum

ABSTRACTIVE = [case for case in CASES if hasattr(case.model_class, "generate")]
SEQUENCES = [case for case in CASES if issubclass(case.model_class, SequenceToSequence)]


def each(cases):
    return pytest.mark.parametrize("model_and_batch", cases, indirect=True, ids=lambda case: case.name)


@pytest.fixture(scope="module")
def model_and_batch(request, corpus_files):
    """A model with weights that are far from their initial values, and four documents."""
    torch.manual_seed(0)
    # rows of the output layer without a token; where words are copied, their ids begin after the rows
    more = 5 * issubclass(request.param.model_class, SequenceToSequence)
    model, data = request.param.build(corpus_files, vocab_size=request.param.model_args["vocab_size"] + more)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    # in 64 bits, so that rounding is no reason to compare loosely
    return model.double().eval(), DoublePrecision().convert_input(next(iter(data.val_dataloader())))


@each(CASES)
def test_terms_of_the_loss_are_stated(model_and_batch):
    model, batch = model_and_batch
    terms = model.loss_terms(batch)
    assert terms and terms.keys() <= set(model.validation_names)


def test_a_run_logs_the_names_and_no_others(trained):
    logged = {name.removeprefix("val/") for name in read_metrics(trained)[0] if name.startswith("val/")}
    assert logged == {*SCORES, *PointerGenerator.validation_names}


@each(SEQUENCES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_smoothed_cross_entropy_by_document(model_and_batch, smoothing):
    model, batch = model_and_batch
    model.set_label_smoothing(smoothing)
    positions = torch.arange(batch.target.numel())
    log_probs = model.distribution(batch, batch.target.unsqueeze(1))(positions).view(*batch.target.shape, -1)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(batch.target.shape, dtype=log_probs.dtype))
    expected = []
    for row, length, target in zip(log_probs, batch.target_lengths, batch.target):
        # the softmax of log-probabilities is the distribution itself
        expected.append(cross_entropy(row[:length], target[:length], label_smoothing=smoothing))
    losses = weighted_sum(model.loss_terms(batch), model.loss_weights), torch.stack(expected).mean()
    torch.testing.assert_close(*losses)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for ours, theirs in zip(*(torch.autograd.grad(loss, parameters, allow_unused=True) for loss in losses)):
        torch.testing.assert_close(ours, theirs)


@each(ABSTRACTIVE)
@pytest.mark.parametrize("draws", [False, True])
def test_scores_are_log_probs_and_texts_what_summarize_writes(model_and_batch, draws):
    model, batch = model_and_batch
    options = DecodingOptions(beam_size=3, min_length=1, max_length=8, length_penalty="none", sample=draws)
    torch.manual_seed(1)
    found = model.generate(batch, options)
    torch.manual_seed(1)
    samples = model.sample(batch, options)
    assert samples.tokens.equal(found.tokens) and len(model.source_ids(batch)) == batch.batch_size
    if isinstance(model, SequenceToSequence):
        assert (found.tokens < len(model.tokenizer)).all(), "rows of the output layer without a token"
    # without options, of the model's distribution; with them, of that over the tokens that may be drawn
    log_probs = model.log_probs(batch, samples, options if draws else None)
    torch.testing.assert_close(log_probs.sum(-1), found.scores, check_dtype=False)  # sampling has 32 bits
    after = torch.arange(8)[: found.tokens.shape[-1]] >= found.lengths.unsqueeze(-1)
    assert log_probs[after].eq(0).all() and log_probs.isfinite().all() and log_probs.requires_grad
    model.decoding = replace(options, sample=False)
    best = model.generate(batch, model.decoding)
    texts = model.texts(batch, Samples(best.tokens[:, :1], best.lengths[:, :1]))
    summaries = model.summarize(batch)
    assert [" ".join(summary.sentences).split() for summary in summaries] == [text.split() for (text,) in texts]
    nothing = Samples(best.tokens[:, :1], torch.zeros_like(best.lengths[:, :1]))
    assert model.texts(batch, nothing) == [[""]] * batch.batch_size
