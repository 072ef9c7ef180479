"""The naive implementations of the benchmarks have the same results as ours, so that the comparison is fair."""

import runpy
from pathlib import Path

import pytest
import torch
from cases import BY_NAME

from benchmarks.graphsum import naive_loss, our_loss, uncached_search
from lightning_modules.decoding.options import DecodingOptions

POINTER_GENERATOR = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "pointer_generator.py"))
SMALL = {"size": 5, "hidden_size": 4}
LAYERS = {"token_layers": 2, "decoder_layers": 2, "learn_sigma": False}


def model_and_batch(name: str, files: dict[str, str], seed: int, std: float, **changes):
    """Return a model with random weights, and a batch of four documents of different lengths."""
    model, data = BY_NAME[name].build(files, dropout=0.0, **changes)
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and "norm" not in name and "sigma" not in name:
            torch.nn.init.normal_(parameter, std=std)
    return model.eval(), next(iter(data.test_dataloader()))


@pytest.mark.parametrize("gate", [0.0, 1.0])
def test_naive_loss_and_gradients_of_the_pointer_generator_are_ours(gate, corpus_files):
    model, batch = model_and_batch("pointer-coverage", corpus_files, seed=0, std=0.7, **SMALL)
    assert all(batch.oov_words)
    model.coverage_gate = gate
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    ours, naive = (POINTER_GENERATOR["LOSSES"][way](model, batch) for way in ("ours", "naive"))
    torch.testing.assert_close(ours, naive)
    for one, other in zip(*(torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (ours, naive))):
        # the naive graph has no closed gate: what it leaves out has a gradient of zero in ours
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_naive_search_of_the_pointer_generator_finds_what_ours_finds(beam_size, corpus_files):
    options = DecodingOptions(beam_size, min_length=2, max_length=8)
    for seed in range(5):
        model, batch = model_and_batch("pointer-coverage", corpus_files, seed, std=0.7, **SMALL)
        ours = model.generate(batch, options)
        for i in range(batch.batch_size):
            naive = POINTER_GENERATOR["naive_search"](model, batch, i, options)
            assert ours.tokens[i, 0, : ours.lengths[i, 0]].tolist() == naive


@pytest.mark.parametrize("changes", [{}, {"norm": "post", "learn_sigma": True}, {"in_decoder": False}], ids=str)
def test_the_loop_from_the_formulas_has_graphsums_loss_and_gradients(changes, corpus_files):
    model, batch = model_and_batch("graphsum", corpus_files, seed=3, std=0.2, **LAYERS | changes)
    model, batch.graph = model.double(), batch.graph.double()
    losses = [loss(model, batch) for loss in (our_loss, naive_loss)]
    torch.testing.assert_close(*losses)
    names = [name for name, _ in model.network.named_parameters()]
    gradients = (torch.autograd.grad(loss, list(model.network.parameters())) for loss in losses)
    for name, ours, theirs in zip(names, *gradients, strict=True):
        torch.testing.assert_close(ours, theirs, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("encoder", ["graph", "hierarchical", "flat"])
def test_search_without_a_cache_finds_graphsums(encoder, corpus_files):
    options = DecodingOptions(beam_size=3, min_length=2, max_length=9, no_repeat_ngram=2)
    model, batch = model_and_batch("graphsum", corpus_files, seed=5, std=0.2, kind=encoder, **LAYERS)
    ours, theirs = model.generate(batch, options), uncached_search(model, batch, options)
    assert ours.tokens.equal(theirs.tokens) and ours.lengths.equal(theirs.lengths)
    torch.testing.assert_close(ours.scores, theirs.scores)
