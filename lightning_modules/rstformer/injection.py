"""Injection of discourse into attention scores: operations, ablations, relations of heads, and masks.

Pu, Wang and Demberg 2023 (RSTformer) multiply scores by a labeled discourse distribution (LDD), p(a, b, l): the
probability that EDU a is the nucleus of EDU b under relation l. Here a is the EDU of the query and b that of the key.
Every injection is one of three operations on a score S_h(i, j) with a table over pairs of EDUs, so that attention
implements only these three, independently of relations:

    scale    S * t       product: t = p_h           one_plus: t = 1 + p_h
    shift    S + t       bias: t = beta_h p_h       log_bias: t = beta_h log(eps + p_h)
    replace  t           wac: t = p_h, "without attention calculation"

They apply inside the window, before masking, if both tokens are in an EDU. Pairs with a token in no EDU (special
tokens, text beyond the parse) and pairs with a global token keep S. For two tokens of one EDU, p(a, a, l) = 0:
`product` and `wac` give them a score of 0, that is weight e^0 (as the formula of the paper, and as for unrelated EDUs);
`one_plus` and `bias` keep the score. `log_bias` also keeps it, because beta_h log(eps) would discourage attention
within an EDU; `own_edu_neutral=False` adds it, as in the formula.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self, get_args

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from datamodules.discourse.ablations import Ablation
from datamodules.discourse.parses import reach_by_document

Injection = Literal["product", "one_plus", "log_bias", "bias"]
Operation = Literal["scale", "shift", "replace"]

_EPS = 1e-3  # epsilon of `log_bias`, which keeps log(eps + p) finite at p = 0
INJECTIONS = get_args(Injection)
ABLATIONS = get_args(Ablation)


class LearnedFactor(NamedTuple):
    """Learned factor beta_h of a table that shifts scores by beta_h s, where s = sign * (w - neutral), w >= 0."""

    beta: Tensor  # [H]
    weights: Tensor  # w, from which `FactorGradient` computes the gradient of beta, [B, H, E, 2b + 1]
    neutral: float  # w of pairs that keep their score, where s = 0
    sign: int  # 1 or -1


class HeadTable(NamedTuple):
    """Table by which discourse changes the scores of H heads, with E elementary discourse units (EDUs) per document."""

    # [B, H, E, 2b + 1]; column b + d of row a has the values of queries in EDU a with keys in EDU a + d
    values: Tensor
    operation: Operation  # multiply scores by the values, add the values to scores, or replace scores by them
    factor: LearnedFactor | None = None  # set if beta is all that is learned of the values


@dataclass
class View:
    """Masks and elementary discourse units (EDUs) of the tokens of a batch, shared by all layers."""

    token_mask: Tensor  # True at tokens, False at padding, bool [B, T]
    is_global: Tensor  # True at global tokens, which attend to all tokens and all tokens attend to, bool [B, T]
    token_edu: Tensor  # EDU of each token; -1 for none, for global tokens and padding; int64 [B, T]
    global_groups: list[tuple[Tensor, Tensor]]  # documents and positions of their global tokens, see `global_groups`
    block_masks: dict[int, BlockMask] = field(default_factory=dict)  # of fused attention, by window

    @classmethod
    def of(
        cls, attention_mask: Tensor, global_attention_mask: Tensor | None = None, token_edu: Tensor | None = None
    ) -> Self:
        """Build the view, on the device of `attention_mask`, from masks and the EDU of each token, [B, T] each.

        Masks have the form of Hugging Face: not 0 at tokens, or at global tokens. None means no global token, or no
        discourse. Grouping global tokens makes the host wait for a GPU unless their mask is on the CPU. A `ValueError`
        if the shapes differ.
        """
        token_mask = attention_mask != 0
        is_global = torch.zeros_like(token_mask) if global_attention_mask is None else global_attention_mask != 0
        if is_global.device == token_mask.device:  # otherwise (a mask on the CPU) `groups` may include padding
            is_global = is_global & token_mask
        edu = token_mask.new_full(token_mask.shape, -1, dtype=torch.long) if token_edu is None else token_edu.long()
        if is_global.shape != token_mask.shape or edu.shape != token_mask.shape:
            shapes = f"global {list(is_global.shape)}, EDUs {list(edu.shape)}"
            raise ValueError(f"masks and EDUs are of the same tokens: {list(token_mask.shape)}, {shapes}")
        groups = [] if global_attention_mask is None else global_groups(is_global)
        groups = [tuple(x.to(token_mask.device, non_blocking=True) for x in group) for group in groups]
        is_global, edu = (x.to(token_mask.device, non_blocking=True) for x in (is_global, edu))
        is_global = is_global & token_mask  # for a mask that was on the CPU
        return cls(token_mask, is_global, edu.masked_fill(~token_mask | is_global, -1), groups)  # -1: no discourse


def global_groups(is_global: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Group the documents of a batch by their number G > 0 of global tokens, so that no group needs padding.

    `is_global` is bool [B, T]. A group is the indices of documents [N] and the positions of their global tokens [N, G].
    """
    counts = is_global.sum(1)                                                         # [B]
    groups = []
    for count in counts.unique().tolist():
        if count:
            documents = (counts == count).nonzero().flatten()                         # [N]
            groups.append((documents, is_global[documents].nonzero()[:, 1].view(-1, count)))
    return groups


def check_band(token_edu: Tensor, window: int, band: Tensor, ids: Sequence[str] = ()) -> None:
    """Check that the bands of a batch, [B, E, 2b + 1, R], include every pair of EDUs inside a window.

    A band has the probabilities of R relations between each of E EDUs and the EDUs up to b before or after it.
    `token_edu` has each token's EDU, -1 for none, [B, T]; if it is on a GPU, the check waits for it. `window` is in
    tokens to each side. A `ValueError` if the shape is wrong, or (with the id) a band is too narrow or lacks an EDU.
    """
    if band.dim() != 4 or band.shape[2] % 2 == 0 or band.shape[0] != token_edu.shape[0]:
        raise ValueError(f"bands of {len(token_edu)} documents are [B, E, 2b + 1, R], got {list(band.shape)}")
    if not token_edu.numel():
        return
    half_width = band.shape[2] // 2
    last_edus = token_edu.amax(1).tolist()
    reaches = reach_by_document(token_edu, window).tolist()
    for n, (last, needed) in enumerate(zip(last_edus, reaches)):
        name = f"document {ids[n]!r}" if ids else f"document {n} of the batch"
        if last >= band.shape[1]:
            raise ValueError(f"{name}: a token is in EDU {last} of {band.shape[1]} in the parse; parse this text")
        if needed > half_width:
            problem = f"the window of {window} tokens to each side reaches {needed} EDUs, the parse holds {half_width}"
            raise ValueError(f"{name}: {problem} to each side; take a band of {needed}, or a smaller window")


def head_relations(heads: int, relations: int, frequency: Sequence[float] | None = None) -> Tensor:
    """Return the weights of relations for each head, [H, R]; a `ValueError` if needed frequencies are missing or wrong.

    Head h uses relation h alone; heads after the last relation use the sum over all relations. With fewer heads than
    relations, heads use the most frequent relations, in the order of their ids, by the `frequency` of each.
    """
    if frequency is not None and len(frequency) != relations:
        raise ValueError(f"there are {len(frequency)} frequencies of {relations} relations")
    weights = torch.ones(heads, relations)
    if heads >= relations:
        weights[:relations] = torch.eye(relations)
        return weights
    if frequency is None:
        raise ValueError(f"{heads} heads for {relations} relations: give the frequency of each relation")
    most_frequent = sorted(range(relations), key=lambda relation: -frequency[relation])[:heads]
    return torch.eye(relations)[sorted(most_frequent)]


class DiscourseInjection(nn.Module):
    """Computes the table by which a labeled discourse distribution (LDD) changes the scores of one layer.

    The LDD has the probabilities p(a, b, l) that EDU (elementary discourse unit) a, of the query, is the nucleus of EDU
    b, of the key, under relation l; p_h is their sum over l, weighted for head h. beta_h, in two of the
    formulas, is learned, from 0 (plain attention). The table contains it, so its gradient sums over pairs of EDUs only.

    Args:
        weights: weights of relations for each head, [H, R], see `head_relations`.
        injection: what replaces a score S: `product` S p_h, `one_plus` S (1 + p_h), `bias` S + beta_h p_h, or
            `log_bias` S + beta_h log(eps + p_h).
        ablation: `wac` ("without attention calculation") replaces S by p_h; `no_labels` makes p_h the mean over
            relations; `no_discourse` returns no table. The others change the LDD, in the data, and equal `none` here.
        learn_weights: whether to learn the weights of relations, initialized with `weights`.
        own_edu_neutral: whether `log_bias` keeps the scores of pairs of tokens in the same EDU.

    Raises:
        ValueError: if the injection or ablation does not exist, or a band has another number of relations.
    """

    def __init__(
        self,
        weights: Tensor,
        injection: Injection = "log_bias",
        ablation: Ablation = "none",
        learn_weights: bool = False,
        own_edu_neutral: bool = True,
    ) -> None:
        super().__init__()
        for name, value, choices in (("injection", injection, INJECTIONS), ("ablation", ablation, ABLATIONS)):
            if value not in choices:
                raise ValueError(f"no {name} {value!r}; there are {', '.join(choices)}")
        self.injection = injection
        self.ablation = ablation
        self.own_edu_neutral = own_edu_neutral
        weights = weights.detach().clone().float()                                    # [H, R]
        self.register_parameter("weights", None)  # None unless they are learned
        self.register_parameter("beta", None)  # None for formulas without beta
        self.register_buffer("fixed_weights", weights, persistent=False)  # follows from arguments, so it is not saved
        if ablation == "no_discourse":
            return
        if learn_weights and ablation != "no_labels":  # which uses the mean over relations, without weights
            self.weights = nn.Parameter(weights.clone())
        if injection in ("log_bias", "bias") and ablation != "wac":
            self.beta = nn.Parameter(torch.zeros(len(weights)))                       # [H], 0 is plain attention

    @property
    def learned(self) -> bool:
        """Whether there are parameters; if not, all layers share one table."""
        return self.beta is not None or self.weights is not None

    def probabilities(self, band: Tensor) -> Tensor:
        """Return p_h, the sum of a band over relations, weighted for head h: [B, E, 2b + 1, R] -> [B, H, E, 2b + 1]."""
        weights = self.fixed_weights if self.weights is None else self.weights        # [H, R]
        if band.shape[-1] != weights.shape[1]:
            raise ValueError(f"the parse has {band.shape[-1]} relations, but the model has {weights.shape[1]}")
        if self.ablation == "no_labels":
            return band.mean(-1).unsqueeze(1).expand(-1, len(weights), -1, -1)  # the same for all heads
        return torch.einsum("nabl,hl->nhab", band.to(weights.dtype), weights)  # document n, EDU a, column b, relation l

    def forward(self, band: Tensor) -> HeadTable | None:
        """Return the table for an LDD with p(a, a + d, l) at [n, a, b + d, l], 0 at d = 0; None with `no_discourse`."""
        if self.ablation == "no_discourse":
            return None
        with torch.autocast(band.device.type, enabled=False):  # 1 + p in half precision would lose a small p
            return self.table(self.probabilities(band))

    def table(self, p: Tensor) -> HeadTable:
        """Return the table for p_h, see `probabilities`, [B, H, E, 2b + 1], by the formulas of the class docstring."""
        if self.ablation == "wac":
            return HeadTable(p, "replace")
        if self.injection == "product":
            return HeadTable(p, "scale")
        if self.injection == "one_plus":
            return HeadTable(1 + p, "scale")
        # the shift is beta_h slope; `LearnedFactor` stores slope = sign * (w - neutral_weight) by its w >= 0
        slope, neutral_weight, sign = p, 0.0, 1
        if self.injection == "log_bias":
            slope = (_EPS + p.clamp(min=0)).log()  # learned weights of relations can make p negative
            if self.own_edu_neutral:
                is_same_edu = torch.arange(p.shape[-1], device=p.device) == p.shape[-1] // 2  # distance 0
                slope = slope.masked_fill(is_same_edu, 0.0)
            neutral_weight, sign = math.log1p(_EPS), -1  # slope <= log(1 + eps), as p <= 1, so that w >= 0
        shift = self.beta[:, None, None] * slope                                      # [B, H, E, 2b + 1]
        if slope.requires_grad:  # weights of relations are learned as well, so beta is not the only learned factor
            return HeadTable(shift, "shift")
        return HeadTable(shift, "shift", LearnedFactor(self.beta, sign * slope + neutral_weight, neutral_weight, sign))


def neutral(operation: Operation) -> float:
    """Return the value by which an operation leaves a score unchanged; for `replace`, NaN marks such scores."""
    return {"scale": 1.0, "shift": 0.0, "replace": math.nan}[operation]
