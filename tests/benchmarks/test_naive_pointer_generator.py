"""The naive implementation of the benchmark has the same results as ours, so that the comparison is fair."""

import runpy
from pathlib import Path

import pytest
import torch

from datamodules.pointer_generator import PointerGeneratorBatch
from datamodules.text.vocabulary import PAD, START, STOP, UNK, Vocabulary
from lightning_modules.copying_summarizer import EmbeddingOptions
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.pointer_generator.module import PointerGenerator

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "pointer_generator.py"))
V = 30


def build(seed, **arguments):
    torch.manual_seed(seed)
    model = PointerGenerator(V, EmbeddingOptions(5, 1e-4), 4, **arguments)
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.7)
    model.set_tokenizer(Vocabulary([f"w{i}" for i in range(V - 4)]))
    return model


@pytest.fixture
def batch():
    """Return two documents; the second one is shorter and has one OOV word instead of two."""
    extended = torch.tensor([[4, V, 5, V + 1, 4, 9], [7, V, 8, 8, PAD, PAD]])
    target = torch.tensor([[V, 5, 9, V + 1, STOP], [8, V, UNK, STOP, PAD]])
    inputs = torch.cat([torch.full((2, 1), START), target[:, :-1]], 1)
    return PointerGeneratorBatch(
        ids=["a", "b"], references=[[], []], source=extended.masked_fill(extended >= V, UNK),
        source_extended=extended, lengths=torch.tensor([6, 4]),
        target_input=inputs.masked_fill(inputs >= V, UNK), target=target, target_lengths=torch.tensor([5, 4]),
        target_rows=(target != PAD).flatten().nonzero().squeeze(1), oov_words=[["x", "y"], ["z"]],
    )  # fmt: skip


@pytest.mark.parametrize("gate", [0.0, 1.0])
def test_naive_loss_and_gradients_are_ours(batch, gate):
    model = build(0)
    model.coverage_gate = gate
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    ours, naive = (BENCHMARK["LOSSES"][way](model, batch) for way in ("ours", "naive"))
    torch.testing.assert_close(ours, naive)
    for one, other in zip(*(torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (ours, naive))):
        # the naive graph has no closed gate: what it leaves out has a gradient of zero in ours
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_naive_search_finds_what_ours_finds(batch, beam_size):
    options = DecodingOptions(beam_size, min_length=2, max_length=8)
    for seed in range(5):
        model = build(seed).eval()
        ours = model.generate(batch, options)
        for i in range(2):
            naive = BENCHMARK["naive_search"](model, batch, i, options)
            assert ours.tokens[i, 0, : ours.lengths[i, 0]].tolist() == naive
