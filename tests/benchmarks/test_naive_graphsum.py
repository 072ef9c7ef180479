"""The benchmark's loop, written from the formulas, gives our loss and gradients; its search without a cache ours."""

import pytest
import torch
from model_options import build_model

from benchmarks.graphsum import naive_loss, our_loss, uncached_search
from datamodules.graphsum import GraphSumBatch
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.graphsum.module import GraphSum

V = 50


class SmallText:
    """Special symbols in front, and nothing to read."""

    start, pad, stop, paragraph, sentence = 0, 1, 2, 4, 5

    def __len__(self) -> int:
        return V


def batch() -> GraphSumBatch:
    """Two documents of paragraphs of different lengths, two targets of different lengths."""
    sizes, targets = [[4, 1, 3], [2, 5]], [6, 4]
    mask = torch.zeros(2, 3, 5, dtype=torch.bool)
    for b, row in enumerate(sizes):
        for j, size in enumerate(row):
            mask[b, j, :size] = True
    source = torch.randint(6, V, (2, 3, 5)).masked_fill(~mask, 1)
    real = torch.arange(6) < torch.tensor(targets).unsqueeze(1)
    target = torch.randint(6, V, (2, 6)).masked_fill(~real, 1)
    places = torch.nn.utils.rnn.pad_sequence([row.nonzero().squeeze(1) for row in mask.flatten(1)], batch_first=True)
    return GraphSumBatch(
        ids=["a", "b"], references=[[], []], source=source, source_mask=mask, graph=torch.rand(2, 3, 3),
        places=places, lengths=torch.tensor([8, 7]),
        target_input=torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], 1),
        target=target, target_lengths=torch.tensor(targets), target_rows=real.flatten().nonzero().squeeze(1),
    )  # fmt: skip


def small(**changes) -> GraphSum:
    sizes = {"hidden_size": 16, "heads": 2, "inner_size": 24}
    sizes |= {"token_layers": 2, "paragraph_layers": 1, "decoder_layers": 2}
    model = build_model(GraphSum, {"vocab_size": V} | sizes | changes).eval()
    for name, parameter in model.network.named_parameters():
        if "norm" not in name and "sigma" not in name:
            torch.nn.init.normal_(parameter, std=0.2)
    model.set_tokenizer(SmallText())
    return model


@pytest.mark.parametrize("changes", [{}, {"norm": "post", "learn_sigma": True}, {"in_decoder": False}], ids=str)
def test_the_loop_has_our_loss_and_gradients(changes):
    torch.manual_seed(3)
    model, given = small(**changes).double(), batch()
    given.graph = given.graph.double()
    losses = [loss(model, given) for loss in (our_loss, naive_loss)]
    torch.testing.assert_close(*losses)
    names = [name for name, _ in model.network.named_parameters()]
    found = (torch.autograd.grad(loss, list(model.network.parameters())) for loss in losses)
    for name, ours, theirs in zip(names, *found, strict=True):
        torch.testing.assert_close(ours, theirs, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("encoder", ["graph", "hierarchical", "flat"])
def test_search_without_a_cache_finds_ours(encoder):
    torch.manual_seed(5)
    options = DecodingOptions(beam_size=3, min_length=2, max_length=9, no_repeat_ngram=2)
    model, given = small(kind=encoder), batch()
    ours, theirs = model.generate(given, options), uncached_search(model, given, options)
    assert ours.tokens.equal(theirs.tokens) and ours.lengths.equal(theirs.lengths)
    torch.testing.assert_close(ours.scores, theirs.scores)
