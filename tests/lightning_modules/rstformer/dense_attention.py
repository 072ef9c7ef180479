"""Longformer's attention with discourse as the formulas have it, over all pairs: what tests compare with."""

import torch


def made_up_edus(length, generator):
    """EDUs of about three tokens with stretches of -1, [T]."""
    row, edu = [], 0
    while len(row) < length:
        size = int(torch.randint(1, 6, (), generator=generator))
        unknown = torch.rand((), generator=generator) < 0.15
        row += [-1 if unknown else edu] * size
        edu += not unknown
    return torch.tensor(row[:length])


def weights_of(p, heads, ablation):
    """p of each head by the paper's map, one relation a head, surplus heads the sum: [E, E, R] -> [H, E, E]."""
    relations = p.shape[-1]
    if ablation == "no_labels":
        return torch.stack([p.mean(-1)] * heads)
    return torch.stack([p[..., h] if h < relations else p.sum(-1) for h in range(heads)])


def changed(score, p, injection, ablation, beta):
    """The scores of pairs whose EDUs have the weights p."""
    if ablation == "no_discourse":
        return score
    if ablation == "wac":
        return p
    added = {"bias": p, "log_bias": torch.log(1e-3 + p)}
    factor = {"product": p, "one_plus": 1 + p}
    return score + beta * added[injection] if injection in added else score * factor[injection]


def dense_attention(q, k, v, token_mask, is_global, edu, p, window, injection, ablation, beta, own_edu_neutral=True):
    """Attend without global queries: q (divided by sqrt(D)), k, v [H, T, D], p [H, E, E], beta [H] -> [H, T, D]."""
    place = torch.arange(q.shape[1])
    visible = token_mask & (((place[:, None] - place).abs() <= window) | is_global)
    visible = visible | ~token_mask[:, None]  # whatever padding sees is left out below
    with_edu = (edu >= 0) & ~is_global
    changes = with_edu[:, None] & with_edu
    if own_edu_neutral and injection == "log_bias":
        changes = changes & (edu[:, None] != edu)
    plain, of_pairs = q @ k.mT, p[:, edu[:, None], edu]
    score = torch.where(changes, changed(plain, of_pairs, injection, ablation, beta[:, None, None]), plain)
    weights = score.masked_fill(~visible, float("-inf")).softmax(-1)
    return (weights @ v).masked_fill(~token_mask[:, None], 0)


def made_up_ldd(size, relations, generator):
    """Probabilities with many zeros, and a zero diagonal: [E, E, R], in double precision."""
    p = torch.rand(size, size, relations, generator=generator, dtype=torch.double) / relations
    p = p * (torch.rand(p.shape, generator=generator) < 0.6)
    return p * (1 - torch.eye(size, dtype=p.dtype)).unsqueeze(-1)
