"""What discourse does to attention scores: injections, ablations, heads and relations; who sees whom.

Pu, Wang and Demberg 2023 (RSTformer) multiply scores by a labelled discourse distribution (LDD), p(a, b, l): the
probability that EDU a is the nucleus of EDU b under relation l. Here a is the query's EDU and b the key's. Every
injection is one of three operations on a score S_h(i, j) with a table over pairs of EDUs, so that an attention has to
know no more than these three and never sees a relation:

    scale    S * t       product: t = p_h           one_plus: t = 1 + p_h
    shift    S + t       bias: t = beta_h p_h       log_bias: t = beta_h log(eps + p_h)
    replace  t           wac: t = p_h, "without attention calculation"

They apply inside the window, before anything is masked, where both tokens are in an EDU. Pairs with a token in no EDU
(special tokens, text beyond the parse) and pairs with a global token keep S. Two tokens of one EDU are such a pair as
any other, with p(a, a, l) = 0: `product` and `wac` give them a score of 0, that is weight e^0 (as the paper's formula
says, and as for any two EDUs that are unrelated), and `one_plus` and `bias` leave them as they are. `log_bias` leaves
them as they are as well, since beta_h log(eps) would push a token away from its own EDU; `own_edu_neutral=False` adds
it, which is the formula to the letter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

Injection = Literal["product", "one_plus", "log_bias", "bias"]
Ablation = Literal["none", "wac", "ria", "permuted", "other", "no_labels", "one_best", "no_discourse"]
Operation = Literal["scale", "shift", "replace"]

INJECTIONS = ("product", "one_plus", "log_bias", "bias")
ABLATIONS = ("none", "wac", "ria", "permuted", "other", "no_labels", "one_best", "no_discourse")


class HeadTable(NamedTuple):
    """What discourse does to the scores of each head.

    Attributes:
        values: entry [n, h, a, b' + d] is for a query in EDU a and a key in EDU a + d of document n,
            [B, H, E, 2b' + 1].
        operation: what is done with it.
    """

    values: Tensor
    operation: Operation


@dataclass
class View:
    """Who sees whom in a batch, the same in every layer.

    Attributes:
        real: True at tokens, False at padding, bool [B, T].
        is_global: True at tokens that see all and that all see, bool [B, T].
        token_edu: EDU of each token, -1 where there is none, at global tokens and at padding, int64 [B, T].
    """

    real: Tensor
    is_global: Tensor
    token_edu: Tensor

    @classmethod
    def of(
        cls, attention_mask: Tensor, global_attention_mask: Tensor | None = None, token_edu: Tensor | None = None
    ) -> Self:
        """The view that Hugging Face's masks ask for.

        Args:
            attention_mask: not 0 at tokens, [B, T].
            global_attention_mask: not 0 at global tokens, [B, T]; None for no global tokens.
            token_edu: EDU of each token, -1 where there is none, [B, T]; None for no discourse.

        Raises:
            ValueError: if the shapes differ.
        """
        real = attention_mask != 0
        is_global = torch.zeros_like(real) if global_attention_mask is None else (global_attention_mask != 0) & real
        edu = real.new_full(real.shape, -1, dtype=torch.long) if token_edu is None else token_edu.long()
        if is_global.shape != real.shape or edu.shape != real.shape:
            shapes = f"global {list(is_global.shape)}, EDUs {list(edu.shape)}"
            raise ValueError(f"masks and EDUs are of the same tokens: {list(real.shape)}, {shapes}")
        return cls(real, is_global, edu.masked_fill(~real | is_global, -1))


def reach(token_edu: Tensor, window: int) -> int:
    """How many EDUs lie at most between a query's EDU and a key's in its window: the half-width that a band needs.

    Args:
        token_edu: EDU of each token, -1 where there is none, [B, T].
        window: tokens to each side.
    """
    if not token_edu.numel() or not (token_edu >= 0).any():
        return 0
    side = min(window, token_edu.shape[1] - 1)
    edu = token_edu.double().unsqueeze(1)                                             # [B, 1, T]
    highest = nn.functional.max_pool1d(edu, 2 * side + 1, 1, side)
    # looking for the highest alone finds the widest pair, as each pair is in the other one's window as well
    return int((highest - edu)[edu >= 0].max())


def check_band(token_edu: Tensor, window: int, band: Tensor, ids: Sequence[str] = ()) -> None:
    """Checks that a band holds every pair that a window can see. It reads values, so do it once a batch.

    Args:
        token_edu: EDU of each token, -1 where there is none or where it is not asked for, [B, T].
        window: tokens to each side.
        band: [B, E, 2b + 1, R].
        ids: of the documents, for the message.

    Raises:
        ValueError: if the band is none, is too narrow, or tokens lie in EDUs that it does not have.
    """
    if band.dim() != 4 or band.shape[2] % 2 == 0 or band.shape[0] != token_edu.shape[0]:
        raise ValueError(f"bands of {len(token_edu)} documents are [B, E, 2b + 1, R], got {list(band.shape)}")
    half = band.shape[2] // 2
    for n, edus in enumerate(token_edu):
        name = f"document {ids[n]!r}" if ids else f"document {n} of the batch"
        if (last := int(edus.max()) if len(edus) else -1) >= band.shape[1]:
            raise ValueError(f"{name}: a token is in EDU {last}, its discourse has {band.shape[1]}; parse this text")
        if (needed := reach(edus[None], window)) > half:
            problem = f"the window of {window} tokens to each side reaches {needed} EDUs, its discourse holds {half}"
            raise ValueError(f"{name}: {problem} to each side; take a band of {needed}, or a smaller window")


def head_relations(heads: int, relations: int, frequency: Sequence[float] | None = None) -> Tensor:
    """Which relation a head looks at, as weights of the relations, [H, R].

    Head h uses relation h. Surplus heads use the sum over all relations. Fewer heads use the most frequent relations.

    Args:
        frequency: how often each relation occurs; needed with fewer heads than relations.

    Raises:
        ValueError: if frequencies are needed and there are none, or not one a relation.
    """
    if frequency is not None and len(frequency) != relations:
        raise ValueError(f"there are {len(frequency)} frequencies of {relations} relations")
    weights = torch.ones(heads, relations)
    if heads >= relations:
        weights[:relations] = torch.eye(relations)
        return weights
    if frequency is None:
        raise ValueError(f"{heads} heads for {relations} relations: say how frequent each relation is")
    kept = sorted(range(relations), key=lambda relation: -frequency[relation])[:heads]
    return torch.eye(relations)[sorted(kept)]


class DiscourseInjection(nn.Module):
    """From a batch's LDD to the table of one layer, see the module's docstring for the formulas.

    With `log_bias` and `bias`, beta_h is learned and starts at 0, where attention is plain attention. It is a factor of
    the table rather than part of the attention, so that its gradient is gathered by pairs of EDUs.

    Args:
        weights: of the relations for each head, [H, R], see `head_relations`.
        injection: how p enters.
        ablation: `wac` replaces scores by p whatever the injection; `no_labels` gives every head the mean over
            relations; `no_discourse` makes no table. `ria`, `permuted`, `other` and `one_best` are about which LDD is
            given, not about what is done with it, and equal `none` here.
        learn_weights: whether the relations' weights are learned, from `weights` on.
        eps: in `log_bias`.
        own_edu_neutral: whether `log_bias` leaves the scores of two tokens of one EDU as they are.

    Raises:
        ValueError: if there is no such injection or ablation, or eps is not positive.
    """

    def __init__(
        self,
        weights: Tensor,
        injection: Injection = "log_bias",
        ablation: Ablation = "none",
        learn_weights: bool = False,
        eps: float = 1e-3,
        own_edu_neutral: bool = True,
    ) -> None:
        super().__init__()
        for name, value, known in (("injection", injection, INJECTIONS), ("ablation", ablation, ABLATIONS)):
            if value not in known:
                raise ValueError(f"no {name} {value!r}; there are {', '.join(known)}")
        if not eps > 0:
            raise ValueError(f"eps is added to probabilities before their logarithm: it is positive, not {eps}")
        self.injection, self.ablation, self.eps = injection, ablation, eps
        self.own_edu_neutral = own_edu_neutral
        weights = weights.detach().clone().float()
        self.register_parameter("weights", None)
        self.register_parameter("beta", None)
        self.register_buffer("fixed_weights", weights, persistent=False)
        if ablation == "no_discourse":
            return
        if learn_weights and ablation != "no_labels":
            self.weights = nn.Parameter(weights.clone())
        if injection in ("log_bias", "bias") and ablation != "wac":
            self.beta = nn.Parameter(torch.zeros(len(weights)))

    @property
    def learned(self) -> bool:
        """Whether it has parameters: if not, one table serves all layers."""
        return self.beta is not None or self.weights is not None

    def probabilities(self, band: Tensor) -> Tensor:
        """p_h of each head: [B, E, 2b + 1, R] -> [B, H, E, 2b + 1].

        Raises:
            ValueError: if the band has another number of relations.
        """
        weights = self.fixed_weights if self.weights is None else self.weights
        if band.shape[-1] != weights.shape[1]:
            raise ValueError(f"the discourse has {band.shape[-1]} relations, the model {weights.shape[1]}")
        if self.ablation == "no_labels":
            return band.mean(-1).unsqueeze(1).expand(-1, len(weights), -1, -1)
        return torch.einsum("nabl,hl->nhab", band.to(weights.dtype), weights)

    def forward(self, band: Tensor) -> HeadTable | None:
        """The table of a batch's LDD.

        Args:
            band: entry [n, a, b + d, l] is p(a, a + d, l) of document n, zero at d = 0, [B, E, 2b + 1, R].

        Returns:
            Values [B, H, E, 2b + 1] and the operation; None with `no_discourse`.
        """
        if self.ablation == "no_discourse":
            return None
        with torch.autocast(band.device.type, enabled=False):  # 1 + p in half precision would lose a small p
            return self.table(self.probabilities(band))

    def table(self, p: Tensor) -> HeadTable:
        """What attention does with p_h, [B, H, E, 2b + 1]."""
        if self.ablation == "wac":
            return HeadTable(p, "replace")
        if self.injection == "product":
            return HeadTable(p, "scale")
        if self.injection == "one_plus":
            return HeadTable(1 + p, "scale")
        beta = self.beta[:, None, None]                                               # [H, 1, 1]
        if self.injection == "bias":
            return HeadTable(beta * p, "shift")
        shift = beta * (self.eps + p.clamp(min=0)).log()
        if self.own_edu_neutral:
            own_edu = torch.arange(p.shape[-1], device=p.device) == p.shape[-1] // 2  # [2b + 1]
            shift = shift.masked_fill(own_edu, 0.0)
        return HeadTable(shift, "shift")


def neutral(operation: Operation) -> float:
    """The value of a table that leaves a score as it is; nan stands for it with `replace`."""
    return {"scale": 1.0, "shift": 0.0, "replace": math.nan}[operation]
