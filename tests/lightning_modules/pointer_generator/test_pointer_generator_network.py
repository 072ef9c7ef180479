from itertools import product

import pytest
import torch

from lightning_modules.networks.attention import PART_ELEMENTS, _AdditiveEnergy
from lightning_modules.pointer_generator.network import PointerGeneratorNetwork


def decode_by_hand(network, words, targets, gate):
    """The sheet's equations for one document and one summary: [(features, attention, p_gen, covloss)]."""
    memory, (hidden, cell) = network.encoder(network.embedding.weight[words])
    hidden, cell = network.reduce_hidden(hidden.flatten()).relu(), network.reduce_cell(cell.flatten()).relu()
    attend, context = network.attention, torch.zeros(2 * network.decoder.hidden_size)
    coverage, rows = torch.zeros(len(words)), []
    for word in targets:
        x = network.feed_word(network.embedding.weight[word]) + network.feed_context(context)
        hidden, cell = network.decoder(x, (hidden, cell))
        inner = memory @ attend.project.weight.T + attend.query(torch.cat([cell, hidden]))
        if attend.coverage is not None:
            inner = inner + gate * coverage.outer(attend.coverage)
        attention = (inner.tanh() @ attend.score).softmax(0)
        overlap = attention.minimum(coverage).sum()
        coverage = coverage + attention
        context = attention @ memory
        features = network.combine(torch.cat([hidden, context]))
        p_gen = network.pointer(torch.cat([context, cell, hidden, x])) if network.pointer is not None else None
        rows.append((features, attention, p_gen, overlap))
    return rows


@pytest.mark.parametrize("pointer", [True, False])
@pytest.mark.parametrize(("coverage", "gate"), [(True, 1.0), (True, 0.5), (True, 0.0), (False, 0.0)])
def test_equals_a_plain_loop_over_the_equations(pointer, coverage, gate):
    torch.manual_seed(0)
    network = PointerGeneratorNetwork(11, 4, 3, pointer, coverage, embedding_std=0.5)
    for parameter in network.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.6)
    source, lengths = torch.randint(1, 11, (2, 6)), torch.tensor([6, 4])
    source[1, 4:] = 0
    targets = torch.randint(1, 11, (2, 2, 5))
    out = network(source, lengths, targets, gate)
    for b, k in product(range(2), repeat=2):
        words = source[b, : lengths[b]].tolist()
        rows = decode_by_hand(network, words, targets[b, k].tolist(), gate)
        for t, (features, attention, p_gen, overlap) in enumerate(rows):
            torch.testing.assert_close(out.features[b, k, t], features)
            torch.testing.assert_close(out.attention[b, k, t, : len(words)], attention)
            assert out.attention[b, k, t, len(words) :].eq(0).all()
            torch.testing.assert_close(out.overlap[b, k, t], overlap)
            if pointer:
                torch.testing.assert_close(out.gate[b, k, t], p_gen.squeeze())
    assert (out.gate is None) == (not pointer)
    if coverage:  # a closed gate leaves its weights in the graph
        (gradient,) = torch.autograd.grad(out.attention[..., 0].sum(), network.attention.coverage)
        assert gradient.any() == (gate > 0)


@pytest.mark.parametrize(("pointer", "coverage", "extra"), [(False, False, 0), (True, False, 1153), (True, True, 1665)])
def test_parameters_equal_those_of_the_paper(pointer, coverage, extra):
    with torch.device("meta"):
        network = PointerGeneratorNetwork(50_000, pointer=pointer, coverage=coverage)
    assert sum(p.numel() for p in network.parameters() if p.requires_grad) == 21_499_600 + extra


def test_starts_as_tensorflow_s_lstm():
    network = PointerGeneratorNetwork(11, 4, 8)
    for name, parameter in [*network.encoder.named_parameters(), *network.decoder.named_parameters()]:
        if "bias_ih" in name:
            i, f, g, o = parameter.chunk(4)
            assert f.eq(1).all() and all(gate.eq(0).all() for gate in (i, g, o))
        elif "bias_hh" in name:
            assert parameter.eq(0).all() and not parameter.requires_grad
        else:
            assert parameter.abs().max() <= 0.02
    assert network.embedding.weight.abs().max() <= 2e-4


@pytest.mark.parametrize("has_coverage", [True, False])
@pytest.mark.parametrize("summaries", [1, 3])
@pytest.mark.parametrize("room", [1, 24, 2**17])  # summaries one at a time, two (of three), all
def test_the_recomputed_gradient_equals_finite_differences(has_coverage, summaries, room, monkeypatch):
    monkeypatch.setitem(PART_ELEMENTS, "cpu", room)
    torch.manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, requires_grad=True)  # noqa: E731
    coverage = draw(2, summaries, 4) if has_coverage else None
    inputs = (draw(2, 4, 3), draw(2, summaries, 3), coverage, draw(3), draw(3))
    assert torch.autograd.gradcheck(_AdditiveEnergy.apply, inputs)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-15), (torch.float32, 2e-7), (torch.bfloat16, 0)])
def test_tanh_equals_pytorchs_everywhere(dtype, error):
    inputs = torch.cat([torch.linspace(-12, 12, 4001), torch.tensor([0.0, 1e-6, -1e-4, 60, -1e30, torch.inf])])
    query, zero, one = inputs.to(dtype).view(1, -1, 1), torch.zeros(1, 1, 1, dtype=dtype), torch.ones(1, dtype=dtype)
    energies = _AdditiveEnergy.apply(zero, query, None, one, one)  # v^T tanh(x) for v = [1]
    torch.testing.assert_close(energies, query.tanh(), rtol=0, atol=error)
