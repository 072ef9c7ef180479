def lstm_run(weights, suffix, inputs, hidden, cell):
    """Return the states of an LSTM over a list of inputs, and its last cell."""
    weight_ih, weight_hh, bias_ih, bias_hh = (
        getattr(weights, name + suffix) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    states = []
    for x in inputs:
        i, f, g, o = (weight_ih @ x + bias_ih + weight_hh @ hidden + bias_hh).chunk(4)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        states.append(hidden)
    return states, cell
