import pytest
import torch

from lightning_modules.pointer_generator.network import PointerGeneratorNetwork
from tests.lightning_modules.lstm_by_hand import lstm_run


def encode_by_hand(network, words):
    zero, embedded = torch.zeros(network.decoder.hidden_size), [network.embedding.weight[w] for w in words]
    forward, forward_cell = lstm_run(network.encoder, "_l0", embedded, zero, zero)
    backward, backward_cell = lstm_run(network.encoder, "_l0_reverse", embedded[::-1], zero, zero)
    memory = [torch.cat(pair) for pair in zip(forward, backward[::-1])]
    hidden = network.reduce_hidden(torch.cat([forward[-1], backward[-1]])).relu()
    cell = network.reduce_cell(torch.cat([forward_cell, backward_cell])).relu()
    return memory, hidden, cell


def decode_by_hand(network, words, targets, gate):
    """The sheet's equations for one document and one summary: [(features, attention, p_gen, covloss)]."""
    memory, hidden, cell = encode_by_hand(network, words)
    attend, context = network.attention, torch.zeros(2 * network.decoder.hidden_size)
    coverage, rows = torch.zeros(len(words)), []
    for word in targets:
        x = network.feed_word(network.embedding.weight[word]) + network.feed_context(context)
        (hidden,), cell = lstm_run(network.decoder, "", [x], hidden, cell)
        energies = []
        for h, seen in zip(memory, coverage):
            inner = attend.project.weight @ h + attend.query(torch.cat([cell, hidden]))
            inner = inner + (gate * attend.coverage * seen if attend.coverage is not None else 0)
            energies.append(attend.score @ inner.tanh())
        attention = torch.stack(energies).softmax(0)
        overlap = sum(min(a, c) for a, c in zip(attention, coverage))
        coverage = coverage + attention
        context = sum(a * h for a, h in zip(attention, memory))
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
    for b in range(2):
        for k in range(2):
            words = source[b, : lengths[b]].tolist()
            for t, (features, attention, p_gen, overlap) in enumerate(
                decode_by_hand(network, words, targets[b, k].tolist(), gate)
            ):
                torch.testing.assert_close(out.features[b, k, t], features)
                torch.testing.assert_close(out.attention[b, k, t, : len(words)], attention)
                assert out.attention[b, k, t, len(words) :].eq(0).all()
                torch.testing.assert_close(out.overlap[b, k, t], overlap)
                if pointer:
                    torch.testing.assert_close(out.gate[b, k, t], p_gen.squeeze())
    assert (out.gate is None) == (not pointer)


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
