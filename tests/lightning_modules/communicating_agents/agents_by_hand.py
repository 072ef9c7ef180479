"""Reference implementation of communicating agents with loops over agents and steps."""

import torch


def read_part(encoder, inputs):
    """h_i = W [fw; bw] for one agent, [n, H]."""
    return encoder.lstm(inputs)[0] @ encoder.project.weight.T


def message_to(messages, a, last):
    """z_a, given the last state of each agent, [A, H]."""
    others = torch.cat([last[:a], last[a + 1 :]])
    if not len(others):
        return torch.zeros_like(last[a])
    kind = type(messages).__name__
    if kind == "MeanMessages":
        return others.mean(0)
    if kind == "FeedForwardMessages":
        heard = (messages.listener(last[a]) + others @ messages.sender.weight.T).tanh()
        return messages.output.weight @ heard.mean(0)
    scores = (others @ messages.key.weight.T) @ (messages.query.weight @ last[a]) / len(last[a]) ** 0.5
    return scores.softmax(0) @ others


def encode(network, parts):
    """States of every agent of one document: parts is a list of lists of ids."""
    states = [read_part(network.encoder.local, network.embedding.weight[part]) for part in parts]
    for layer in network.encoder.layers:
        last, following = torch.stack([agent[-1] for agent in states]), []
        for a, agent in enumerate(states):
            inner = agent @ layer.own.weight.T
            if layer.messages is not None:
                inner = inner + layer.received.weight @ message_to(layer.messages, a, last)
            following.append(read_part(layer.encoder, inner.tanh()))
        states = following
    return states


def decode(network, agents, inputs):
    """Return (s_t, g, p_a or p, P_voc, [l_a]) of every step."""
    decoder, before, rows = network.decoder, torch.zeros_like(agents[0][0]), []
    words, start = network.embedding.weight[inputs], agents[0][-1:]
    states, _ = decoder.lstm(words, (start, torch.zeros_like(start)))
    for s, y in zip(states, words):
        inner = [(agent @ decoder.words.project.weight.T + decoder.words.query(s)).tanh() for agent in agents]
        attentions = [(x @ decoder.words.score).softmax(0) for x in inner]
        contexts = torch.stack([attention @ agent for attention, agent in zip(attentions, agents)])
        g = torch.ones(1)
        if decoder.agent_score is not None:
            inner = (contexts @ decoder.agent_context.weight.T + decoder.agent_query(s)).tanh()
            g = (inner @ decoder.agent_score.weight[0]).softmax(0)
        context = g @ contexts
        looked = contexts if decoder.multi_agent_pointer else context.expand(len(g), -1)
        p = (decoder.pointer_context(looked) + decoder.pointer_state(s) + decoder.pointer_word(y)).sigmoid()
        inner = decoder.combine(torch.cat([s, context]))
        if decoder.combine_before is not None:
            inner = inner + decoder.combine_before.weight @ before
        rows.append((s, g, p.squeeze(1), network.output(inner.tanh()).softmax(0), attentions))
        before = context
    return rows


def distribution(row, parts, size):
    """P(w) = sum_a g_a (p_a P_voc(w) + (1 - p_a) u_a(w)) over `size` extended ids; parts has extended ids."""
    _, g, p, vocabulary, attentions = row
    total = torch.zeros(size)
    total[: len(vocabulary)] = (g * p).sum() * vocabulary
    for a, part in enumerate(parts):
        total.index_add_(0, torch.tensor(part), g[a] * (1 - p[a]) * attentions[a])
    return total
