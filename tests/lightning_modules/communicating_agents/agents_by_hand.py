"""Reference implementation of communicating agents with loops over agents, tokens and steps."""

import torch

from tests.lightning_modules.lstm_by_hand import lstm_run


def read_part(encoder, inputs):
    """h_i = W [fw; bw] for one agent."""
    zero = torch.zeros(encoder.lstm.hidden_size)
    forward, _ = lstm_run(encoder.lstm, "_l0", inputs, zero, zero)
    backward, _ = lstm_run(encoder.lstm, "_l0_reverse", inputs[::-1], zero, zero)
    return [encoder.project.weight @ torch.cat(pair) for pair in zip(forward, backward[::-1])]


def message_to(layer, a, last):
    """z_a, given the last state of each agent; None without communication."""
    if layer.messages is None:
        return None
    others = [m for m in range(len(last)) if m != a]
    if not others:
        return torch.zeros_like(last[a])
    kind = type(layer.messages).__name__
    if kind == "MeanMessages":
        return sum(last[m] for m in others) / len(others)
    if kind == "FeedForwardMessages":
        net = layer.messages
        heard = [(net.listener(last[a]) + net.sender.weight @ last[m]).tanh() for m in others]
        return net.output.weight @ (sum(heard) / len(others))
    query, key = layer.messages.query.weight, layer.messages.key.weight
    scores = torch.stack([(query @ last[a]) @ (key @ last[m]) / len(last[a]) ** 0.5 for m in others])
    return sum(w * last[m] for w, m in zip(scores.softmax(0), others))


def encode(network, parts):
    """States of every agent of one document: parts is a list of lists of ids."""
    states = [read_part(network.encoder.local, [network.embedding.weight[w] for w in part]) for part in parts]
    for layer in network.encoder.layers:
        last = [agent[-1] for agent in states]
        following = []
        for a, agent in enumerate(states):
            z = message_to(layer, a, last)
            inputs = []
            for h in agent:
                inner = layer.own.weight @ h
                inputs.append((inner if z is None else inner + layer.received.weight @ z).tanh())
            following.append(read_part(layer.encoder, inputs))
        states = following
    return states


def decode(network, agents, inputs):
    """Return (s_t, g, p_a or p, P_voc, [l_a]) of every step."""
    decoder, before, rows = network.decoder, torch.zeros_like(agents[0][0]), []
    words = [network.embedding.weight[w] for w in inputs]
    states, _ = lstm_run(decoder.lstm, "_l0", words, agents[0][-1], torch.zeros_like(agents[0][-1]))
    for s, y in zip(states, words):
        attentions, contexts = [], []
        for agent in agents:
            inner = [(decoder.words.project.weight @ h + decoder.words.query(s)).tanh() for h in agent]
            energies = [decoder.words.score @ x for x in inner]
            attentions.append(torch.stack(energies).softmax(0))
            contexts.append(sum(w * h for w, h in zip(attentions[-1], agent)))
        g = torch.ones(1)
        if decoder.agent_score is not None:
            inner = [(decoder.agent_context.weight @ c + decoder.agent_query(s)).tanh() for c in contexts]
            g = torch.stack([(decoder.agent_score.weight @ x).squeeze() for x in inner]).softmax(0)
        context = sum(w * c for w, c in zip(g, contexts))
        looked = contexts if decoder.multi_agent_pointer else [context] * len(g)
        v_5, v_6, v_7 = decoder.pointer_context, decoder.pointer_state, decoder.pointer_word
        p = torch.cat([(v_5(c) + v_6(s) + v_7(y)).sigmoid() for c in looked])
        inner = decoder.combine(torch.cat([s, context]))
        if decoder.combine_before is not None:
            inner = inner + decoder.combine_before.weight @ before
        rows.append((s, g, p, network.output(inner.tanh()).softmax(0), attentions))
        before = context
    return rows


def distribution(row, parts, size):
    """P(w) = sum_a g_a (p_a P_voc(w) + (1 - p_a) u_a(w)) over `size` extended ids; parts has extended ids."""
    _, g, p, vocabulary, attentions = row
    total = torch.zeros(size)
    for a, part in enumerate(parts):
        total[: len(vocabulary)] += g[a] * p[a] * vocabulary
        for position, word in enumerate(part):
            total[word] += g[a] * (1 - p[a]) * attentions[a][position]
    return total
