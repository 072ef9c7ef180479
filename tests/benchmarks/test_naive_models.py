"""The naive implementations of the benchmarks have the same results as ours, so that the comparison is fair."""

import runpy
from pathlib import Path

import pytest
import torch
from model_options import build_model

from benchmarks.graphsum import naive_loss, our_loss, uncached_search
from datamodules.graphsum import GraphSumBatch
from datamodules.pointer_generator import PointerGeneratorBatch
from datamodules.text.vocabulary import PAD, START, STOP, UNK, Vocabulary
from lightning_modules.copying_summarizer import EmbeddingOptions
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.graphsum.module import GraphSum
from lightning_modules.pointer_generator.module import PointerGenerator

POINTER_GENERATOR = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "pointer_generator.py"))
V = 30
TEXT = Vocabulary([f"w{i}" for i in range(V - 4)])


def pointer_generator(seed: int) -> PointerGenerator:
    torch.manual_seed(seed)
    model = PointerGenerator(V, EmbeddingOptions(5, 1e-4), 4)
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.7)
    model.set_tokenizer(TEXT)
    return model


def copying_batch() -> PointerGeneratorBatch:
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
def test_naive_loss_and_gradients_of_the_pointer_generator_are_ours(gate):
    model, batch = pointer_generator(0), copying_batch()
    model.coverage_gate = gate
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    ours, naive = (POINTER_GENERATOR["LOSSES"][way](model, batch) for way in ("ours", "naive"))
    torch.testing.assert_close(ours, naive)
    for one, other in zip(*(torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (ours, naive))):
        # the naive graph has no closed gate: what it leaves out has a gradient of zero in ours
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_naive_search_of_the_pointer_generator_finds_what_ours_finds(beam_size):
    batch, options = copying_batch(), DecodingOptions(beam_size, min_length=2, max_length=8)
    for seed in range(5):
        model = pointer_generator(seed).eval()
        ours = model.generate(batch, options)
        for i in range(2):
            naive = POINTER_GENERATOR["naive_search"](model, batch, i, options)
            assert ours.tokens[i, 0, : ours.lengths[i, 0]].tolist() == naive


class SmallText:
    start, pad, stop, paragraph, sentence = 0, 1, 2, 4, 5

    def __len__(self) -> int:
        return V


def graphsum_batch() -> GraphSumBatch:
    """Two documents of paragraphs of different lengths, two targets of different lengths."""
    mask = torch.arange(5) < torch.tensor([[4, 1, 3], [2, 5, 0]]).unsqueeze(-1)  # [B, N, T]
    source = torch.randint(6, V, (2, 3, 5)).masked_fill(~mask, 1)
    real = torch.arange(6) < torch.tensor([[6], [4]])
    target = torch.randint(6, V, (2, 6)).masked_fill(~real, 1)
    places = torch.nn.utils.rnn.pad_sequence([row.nonzero().squeeze(1) for row in mask.flatten(1)], batch_first=True)
    return GraphSumBatch(
        ids=["a", "b"], references=[[], []], source=source, source_mask=mask, graph=torch.rand(2, 3, 3),
        places=places, lengths=torch.tensor([8, 7]),
        target_input=torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], 1),
        target=target, target_lengths=torch.tensor([6, 4]), target_rows=real.flatten().nonzero().squeeze(1),
    )  # fmt: skip


def graphsum(**changes) -> GraphSum:
    sizes = {"vocab_size": V, "hidden_size": 16, "heads": 2, "inner_size": 24}
    sizes |= {"token_layers": 2, "paragraph_layers": 1, "decoder_layers": 2}
    model = build_model(GraphSum, sizes | changes).eval()
    for name, parameter in model.network.named_parameters():
        if "norm" not in name and "sigma" not in name:
            torch.nn.init.normal_(parameter, std=0.2)
    model.set_tokenizer(SmallText())
    return model


@pytest.mark.parametrize("changes", [{}, {"norm": "post", "learn_sigma": True}, {"in_decoder": False}], ids=str)
def test_the_loop_from_the_formulas_has_graphsums_loss_and_gradients(changes):
    torch.manual_seed(3)
    model, batch = graphsum(**changes).double(), graphsum_batch()
    batch.graph = batch.graph.double()
    losses = [loss(model, batch) for loss in (our_loss, naive_loss)]
    torch.testing.assert_close(*losses)
    names = [name for name, _ in model.network.named_parameters()]
    gradients = (torch.autograd.grad(loss, list(model.network.parameters())) for loss in losses)
    for name, ours, theirs in zip(names, *gradients, strict=True):
        torch.testing.assert_close(ours, theirs, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("encoder", ["graph", "hierarchical", "flat"])
def test_search_without_a_cache_finds_graphsums(encoder):
    torch.manual_seed(5)
    options = DecodingOptions(beam_size=3, min_length=2, max_length=9, no_repeat_ngram=2)
    model, batch = graphsum(kind=encoder), graphsum_batch()
    ours, theirs = model.generate(batch, options), uncached_search(model, batch, options)
    assert ours.tokens.equal(theirs.tokens) and ours.lengths.equal(theirs.lengths)
    torch.testing.assert_close(ours.scores, theirs.scores)
