"""Calibration of labelled discourse distributions (LDD) against gold trees: calibration error and Brier score."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

KINDS = ("labelled", "summed")
BINS, FLOOR = 15, 0.01
_LEVELS = 1024  # levels of sqrt(p), so that values stored in one byte, 255 sqrt(p), have distinct levels
_SLACK = 1e-4  # rounding beyond 0 and 1


class LDDCalibration(Metric):
    """Calibration of p(a is the nucleus of b under l) against gold trees.

    Cells are compared with the LDD y of the gold tree, zeros and ones (Guo et al. 2017, equation 3; Brier 1950):

        ECE = sum over bins of |sum of p - sum of y| / number of cells
        Brier = sum over labels of (p - y)^2, a mean over ordered pairs a, b with a != b

    Two kinds of cells: `labelled`, one for each ordered pair and relation; `summed`, one for each ordered pair, with
    p(a is the nucleus of b) = sum over l of p(a, b, l), at most 1. Four ways to bin, `KIND/NAME` in `compute`:

    - `ece`: `bins` bins of equal width over [0, 1], all cells. It is small, because most cells are near zero.
    - `ece_mass`: bins with equal numbers of cells, except that equal values share a bin.
    - `ece_probable`, `ece_mass_probable`: the same for cells with p >= `floor`.

    There is also `KIND/brier`. Values are NaN if there is no cell. The state has sums for each level of p, finer than
    bins, so that the result does not depend on the distribution of documents over processes.

    Args:
        bins: number of bins M.
        floor: smallest p of a probable cell.

    Attributes:
        levels: number of cells, sum of p and sum of y for each kind and level of p, [2, 3, B], double precision.

    Raises:
        ValueError: if there is no bin or `floor` is not a probability; in `update`, see there.
    """

    is_differentiable = False
    full_state_update = False

    def __init__(self, bins: int = BINS, floor: float = FLOOR, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if bins < 1 or not 0 <= floor < 1:
            raise ValueError(f"{bins} bins from {floor} on: at least one bin, and a floor between 0 and 1")
        self.bins, self.floor = bins, floor
        self.widths = torch.arange(1, bins, dtype=torch.float64) / bins
        squares = (torch.arange(1, _LEVELS, dtype=torch.float64) / _LEVELS) ** 2
        floor_edge = torch.tensor([floor] if floor else [], dtype=torch.float64)
        self.edges = torch.cat([self.widths, squares, floor_edge]).unique()              # inner ones, [B - 1]
        states = {"levels": (len(KINDS), 3, len(self.edges) + 1), "squares": (len(KINDS),), "pairs": ()}
        for name, shape in states.items():
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")
        self._documents: list[Tensor] = []

    def update(self, p: Tensor, target: Tensor, banded: bool = True) -> None:
        """Add a document.

        Args:
            p: its LDD, as a band [E, 2b + 1, R] whose column b + d is the pair (a, a + d), or dense, [E, E, R]. Values
                on the diagonal and outside the document are ignored.
            target: LDD of its gold tree with the same `rows`, in the same form.
            banded: whether both are bands.

        Raises:
            ValueError: if shapes are wrong or differ, or a value is not a probability.
        """
        within = pairs_within(p.shape, banded).to(p.device)
        if p.shape != target.shape:
            raise ValueError(f"the LDD is {list(p.shape)}, that of the gold tree {list(target.shape)}")
        predicted, truth = (values[within].double().to(self.device) for values in (p, target))   # [P, R]
        if not ((predicted >= -_SLACK) & (predicted <= 1 + _SLACK)).all():  # this form also rejects NaN
            low, high = float(predicted.min()), float(predicted.max())
            raise ValueError(f"an LDD holds probabilities, got values from {low:.4g} to {high:.4g}")
        predicted = predicted.clamp(0, 1)
        # rounding to a byte may bring a sum above 1
        cells = (predicted.flatten(), truth.flatten()), (predicted.sum(-1).clamp(max=1), truth.sum(-1))
        squares = torch.stack([((probability - gold) ** 2).sum() for probability, gold in cells])
        for kind, (probability, gold) in enumerate(cells):
            level = torch.bucketize(probability, self.edges.to(self.device), right=True)
            self.levels[kind].index_add_(1, level, torch.stack([torch.ones_like(probability), probability, gold]))
        self.squares += squares
        self.pairs += len(predicted)
        self._documents.append(torch.cat([squares, squares.new_full((1,), len(predicted))]).cpu())

    def per_document(self) -> Tensor:
        """Return the sums of (p - y)^2 of both kinds and the number of pairs for each document of this process, [D, 3].

        They are the input of a bootstrap over documents.
        """
        return torch.stack(self._documents) if self._documents else torch.zeros(0, 3, dtype=torch.float64)

    def reset(self) -> None:
        """Reset the state to no documents."""
        super().reset()
        self._documents = []

    def compute(self) -> dict[str, Tensor]:
        """Return the errors by name, scalars."""
        scores = {}
        for row, kind in enumerate(KINDS):
            for suffix, floor in (("", 0.0), ("_probable", self.floor)):
                for name, mass in (("ece", False), ("ece_mass", True)):
                    count, mean, share = self.reliability(kind, floor, mass).unbind(1)
                    nonempty = count > 0
                    gaps = (count * (mean - share).abs())[nonempty]
                    scores[f"{kind}/{name}{suffix}"] = gaps.sum() / count.sum()
            scores[f"{kind}/brier"] = self.squares[row] / self.pairs
        return scores

    def reliability(self, kind: str, floor: float = 0.0, mass: bool = False) -> Tensor:
        """Return number of cells, mean p and fraction of true cells for each bin, NaN for empty bins, [M, 3].

        Args:
            kind: `labelled` or `summed`.
            floor: cells below it are left out; 0 or the `floor` of the metric.
            mass: whether bins have equal numbers of cells instead of equal width.

        Raises:
            ValueError: for any other kind or floor.
        """
        if kind not in KINDS or floor not in (0.0, self.floor):
            raise ValueError(f"{kind!r} from {floor} on: choose one of {', '.join(KINDS)}, and 0 or {self.floor}")
        edges, widths = self.edges.to(self.device), self.widths.to(self.device)
        lower_edges = torch.cat([edges.new_zeros(1), edges])                             # of each level, [B]
        levels = self.levels[KINDS.index(kind)] * (lower_edges >= floor)
        if mass:
            middle = levels[0].cumsum(0) - levels[0] / 2
            group = (middle / levels[0].sum() * self.bins).nan_to_num().long().clamp(0, self.bins - 1)
        else:
            group = torch.bucketize(lower_edges, widths, right=True)
        count, p, true = levels.new_zeros(3, self.bins).index_add_(1, group, levels)
        return torch.stack([count, p / count, true / count], 1)


def pairs_within(shape: torch.Size, banded: bool) -> Tensor:
    """Return which entries of an LDD are pairs of two EDUs of the document, bool [E, 2b + 1], or [E, E] if dense.

    Raises:
        ValueError: if the shape is not that of an LDD.
    """
    if len(shape) != 3 or (shape[1] % 2 == 0 if banded else shape[0] != shape[1]):
        raise ValueError(f"an LDD is {'[E, 2b + 1, R]' if banded else '[E, E, R]'}, got {list(shape)}")
    first, column = torch.arange(shape[0])[:, None], torch.arange(shape[1])
    second = first + column - shape[1] // 2 if banded else column
    return (second >= 0) & (second < shape[0]) & (second != first)
