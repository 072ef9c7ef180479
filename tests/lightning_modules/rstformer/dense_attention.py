"""Longformer's attention with discourse written out pair by pair, as the formulas have it: what tests compare with."""

import torch


def made_up_edus(length, generator, mean=3, unknown=0.15):
    """EDUs of about `mean` tokens with stretches of -1, [T]."""
    row, edu = [], 0
    while len(row) < length:
        size = int(torch.randint(1, 2 * mean, (), generator=generator))
        if torch.rand((), generator=generator) < unknown:
            row += [-1] * size
        else:
            row += [edu] * size
            edu += 1
    return torch.tensor(row[:length])


def weights_of(p, heads, ablation):
    """p of each head by the paper's map, one relation a head, surplus heads the sum: [E, E, R] -> [H, E, E]."""
    relations = p.shape[-1]
    if ablation == "no_labels":
        return torch.stack([p.mean(-1)] * heads)
    return torch.stack([p[..., h] if h < relations else p.sum(-1) for h in range(heads)])


def changed(score, p, injection, ablation, beta, eps, same_edu=False):
    """The score of a pair; `same_edu` where both tokens are in one EDU and `log_bias` leaves those as they are."""
    if ablation == "no_discourse":
        return score
    if ablation == "wac":
        return p
    if injection == "product":
        return score * p
    if injection == "one_plus":
        return score * (1 + p)
    if injection == "bias":
        return score + beta * p
    if same_edu:
        return score
    return score + beta * torch.log(eps + p)


def dense_attention(
    q, k, v, token_mask, is_global, edu, p, window, injection, ablation, beta, eps, own_edu_neutral=True
):
    """Attend without global queries: q (divided by sqrt(D)), k, v [H, T, D], p [H, E, E], beta [H] -> [H, T, D]."""
    heads, length, _ = q.shape
    rows = []
    for h in range(heads):
        for i in range(length):
            scores, values = [], []
            for j in range(length):
                if not token_mask[j] or (abs(i - j) > window and not is_global[j]):
                    continue
                score = q[h, i] @ k[h, j]
                if edu[i] >= 0 and edu[j] >= 0 and not is_global[i] and not is_global[j]:
                    same_edu = own_edu_neutral and edu[i] == edu[j]
                    score = changed(score, p[h, edu[i], edu[j]], injection, ablation, beta[h], eps, same_edu)
                scores.append(score)
                values.append(v[h, j])
            if token_mask[i] and scores:
                total = sum(s.exp() for s in scores)
                rows.append(sum(s.exp() / total * x for s, x in zip(scores, values)))
            else:
                rows.append(q.new_zeros(v.shape[-1]))
    return torch.stack(rows).view(heads, length, -1)


def made_up_ldd(size, relations, generator):
    """Probabilities with many zeros, and a zero diagonal: [E, E, R], in double precision."""
    p = torch.rand(size, size, relations, generator=generator, dtype=torch.double) / relations
    p = p * (torch.rand(p.shape, generator=generator) < 0.6)
    return p * (1 - torch.eye(size, dtype=p.dtype)).unsqueeze(-1)
