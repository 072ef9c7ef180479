from itertools import pairwise

import pytest
import torch
from torch.nn.functional import cosine_similarity

from lightning_modules.communicating_agents.cohesion import cohesion


@pytest.mark.parametrize("ends", [[], [3], [0, 1], [1, 4, 6], [0, 2, 3, 5, 7]], ids=str)
def test_equals_a_plain_loop(ends):
    torch.manual_seed(0)
    states, marks = torch.randn(2, 8, 5), torch.zeros(2, 8, dtype=torch.bool)
    marks[1, ends] = True
    expected = sum(
        (cosine_similarity(states[1, one], states[1, other], dim=0) for one, other in pairwise(ends)),
        start=torch.zeros(()),
    )
    found = cohesion(states, marks)
    torch.testing.assert_close(found, torch.stack([torch.zeros(()), expected]))


def test_the_gradient_equals_that_of_the_two_sentences():
    states = torch.randn(1, 4, 3, dtype=torch.float64, requires_grad=True)
    ends = torch.tensor([[True, False, True, False]])
    assert torch.autograd.gradcheck(lambda x: cohesion(x, ends), states)
    cohesion(states, ends).sum().backward()
    assert states.grad[0].ne(0).any(1).tolist() == [True, False, True, False]
