
import pytest
import torch
from torch.testing import assert_close

from lightning_modules.discourse_parser.span_scorer import DiscourseScorer, Layout, Units, node_scores, pool_edus

SENTENCE, PARAGRAPH = [0, 0, 1, 1, 1, 2, 3], [0, 0, 0, 0, 0, 1, 1]


def layout_of(*sizes: int) -> Layout:
    width = max(sizes)
    rows = [torch.tensor([unit[:size] + [0] * (width - size) for size in sizes]) for unit in (SENTENCE, PARAGRAPH)]
    tokens = torch.tensor([[3 + i if i < size else 0 for i in range(width)] for size in sizes])
    return Layout(*rows, tokens, torch.tensor(sizes))


def flags(unit: list[int], i: int, j: int) -> list[float]:
    """The sheet's boundary flags of a span, by looking."""
    begins = i == 0 or unit[i - 1] != unit[i]
    ends = j == len(unit) - 1 or unit[j + 1] != unit[j]
    several = unit[i] != unit[j]
    return [float(x) for x in (begins, ends, begins and ends, several, several and not begins, several and not ends)]


@pytest.mark.parametrize("size", [7, 4, 1])
def test_layout_of_spans_is_what_one_sees(size):
    layout = layout_of(7, size)
    for i in range(size):
        for j in range(i, size):
            found = layout.of_spans(*(torch.tensor([n]) for n in (1, i, j)))[0]
            assert found[:6].tolist() == flags(SENTENCE[:size], i, j)
            assert found[7:13].tolist() == flags(PARAGRAPH[:size], i, j)
            assert found[14:16].tolist() == [i == 0, j == size - 1]
            assert_close(found[17].item(), (j - i + 1) / size)
    edus = layout.of_edus()[1, :size]
    for e in range(size):
        assert edus[e, :2].tolist() == flags(SENTENCE[:size], e, e)[:2]
        assert edus[e, 2:4].tolist() == flags(PARAGRAPH[:size], e, e)[:2]


def test_units_of_one_edu_and_runs_of_edus_get_the_scores_of_the_same_spans():
    torch.manual_seed(0)
    scorer, layout = DiscourseScorer(5, 8, classes=4, fit_size=3).eval(), layout_of(7)
    states = scorer.context(torch.randn(1, 7, 5), layout)
    whole = scorer.potentials(states, layout, Units.edus(layout))
    runs = [(0, 1), (2, 4), (5, 6)]
    starts, ends = (torch.tensor([[run[side] for run in runs]]) for side in (0, 1))
    over = scorer.potentials(states, layout, Units(torch.tensor([0]), starts, ends, torch.tensor([3])))
    for i, k, j in [(0, 0, 1), (0, 1, 2), (1, 1, 2)]:
        units = (torch.tensor([n]) for n in (0, i, k, j))
        edus = (torch.tensor([n]) for n in (0, runs[i][0], runs[k][1], runs[j][1]))
        assert_close(node_scores(over, *units), node_scores(whole, *edus))


def test_pooled_vectors_are_first_last_and_mean():
    tokens, edus = torch.randn(7, 2), torch.tensor([-1, 0, 0, 0, 2, 2, -1])
    pooled = pool_edus(tokens, edus, 4)
    assert_close(pooled[0], torch.cat([tokens[1], tokens[3], tokens[1:4].mean(0)]))
    assert_close(pooled[2], torch.cat([tokens[4], tokens[5], tokens[4:6].mean(0)]))
    assert pooled[[1, 3]].eq(0).all()
