import itertools

import pytest
import torch

from lightning_modules.discourse_parser.boundary_network import LinearChainCRF

INSTALL = "pip install --no-deps -r allennlp.txt"
LENGTHS = [5, 1, 3]


def made_up(tags: int = 3) -> tuple[LinearChainCRF, torch.Tensor, torch.Tensor]:
    """A field with random parameters, scores [3, 5, K] with impossible tags, and the mask of three chains."""
    torch.manual_seed(0)
    crf = LinearChainCRF(tags).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    emissions = torch.randn(3, 5, tags, dtype=torch.float64)
    emissions[0, 0, 0] = emissions[0, 3, 1] = emissions[2, 2, 0] = float("-inf")
    return crf, emissions, torch.arange(5) < torch.tensor(LENGTHS)[:, None]


def score(crf: LinearChainCRF, emissions: torch.Tensor, tags: tuple[int, ...]) -> torch.Tensor:
    total = crf.start_transitions[tags[0]] + crf.end_transitions[tags[-1]]
    for t, tag in enumerate(tags):
        total = total + emissions[t, tag]
    for one, next_one in itertools.pairwise(tags):
        total = total + crf.transitions[one, next_one]
    return total


def test_likelihood_and_decoding_equal_those_of_all_sequences():
    crf, emissions, mask = made_up()
    best, tags, expected = crf.decode(emissions, mask), torch.full((3, 5), 2), 0
    for row, length in enumerate(LENGTHS):
        tags[row, :length] = torch.tensor([2, 1, 0, 2, 1][:length])
        scores = {tags: score(crf, emissions[row], tags) for tags in itertools.product(range(3), repeat=length)}
        everything = torch.logsumexp(torch.stack(list(scores.values())), 0)
        expected = expected + scores[tuple(tags[row, :length].tolist())] - everything
        assert tuple(best[row, :length].tolist()) == max(scores, key=lambda tags: scores[tags].item())
        assert best[row, length:].eq(0).all()
    likelihood = crf.log_likelihood(emissions, tags, mask)
    torch.testing.assert_close(likelihood, expected)
    gradients = (torch.autograd.grad(x, tuple(crf.parameters()), retain_graph=True) for x in (likelihood, expected))
    torch.testing.assert_close(*gradients)
    likelihood.backward()
    assert all(parameter.grad.isfinite().all() for parameter in crf.parameters()), "impossible tags have none"


def test_log_likelihood_and_tags_equal_those_of_allennlp():
    library = pytest.importorskip("allennlp_light.modules.conditional_random_field", reason=INSTALL)
    crf, emissions, mask = made_up()
    allen = library.ConditionalRandomField(3).double()
    allen.load_state_dict(crf.state_dict(), strict=False)
    tags, finite = torch.full((3, 5), 2), emissions.clamp(min=-1e4)  # its masks multiply -inf by 0
    torch.testing.assert_close(allen(finite, tags, mask), crf.log_likelihood(emissions, tags, mask))
    for ours, length, (theirs, _) in zip(crf.decode(emissions, mask), LENGTHS, allen.viterbi_tags(finite, mask)):
        assert ours[:length].tolist() == theirs
