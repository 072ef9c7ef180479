"""A parser with a fine-tuned encoder, stored with changes of the encoder at a low rank."""

import numpy as np
import pytest
import torch
from made_up_treebank import made_up_treebank, write_encoder

from datamodules.discourse.features import ParserBatch, parser_features
from datamodules.treebank import TreebankData
from experiments.studies.parser_training.low_rank import copy_to_low_rank, main
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.networks.adapters import add_low_rank_changes
from precis.discourse.score_parser import request_of
from tests.lightning_modules.networks.test_low_rank import network


@pytest.mark.integration
def test_the_stored_parser_parses_like_the_original(tmp_path, capsys):
    path = made_up_treebank(tmp_path / "trees.jsonl", documents=1)
    document = TreebankData(path, path).documents("train")[0]
    encoder = write_encoder(tmp_path / "encoder", [document.text])
    options = {"layers": (0, 2), "window": 16, "frozen": False, "frozen_layers": 1, "hidden_size": 24, "fit_size": 0}
    torch.manual_seed(1)
    parser = DiscourseParser.of_settings(encoder=encoder, **options).eval()
    for parameter in parser.encoder.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn_like(parameter)
    parser.save(tmp_path / "full")
    untuned = DiscourseParser.of_settings(encoder=encoder, **options).eval()
    untuned.scorers.load_state_dict(parser.scorers.state_dict())
    request = request_of(document)
    batch = ParserBatch.of([parser_features(request, document.edus, parser.subwords)])
    main([str(tmp_path / "full"), "--rank", "16", "--temperature", "1", "--out", str(tmp_path / "small")])
    assert "100.0% of the squared change" in capsys.readouterr().out
    small = DiscourseParser.load(tmp_path / "small")
    with torch.no_grad():
        near, far = ((parser.vectors(batch) - other.vectors(batch)).abs().max() for other in (small, untuned))
    assert near < 0.05 < 0.5 < far
    assert small.parse(request).size == len(document.edus)


@torch.no_grad()
@pytest.mark.parametrize("rank", [1, 3, 6])
def test_copies_are_the_nearest_of_their_rank(rank):
    original, tuned, target = network(), network(), network()
    for parameter in tuned.parameters():
        parameter += torch.randn_like(parameter)
    add_low_rank_changes(target, rank, alone=False)
    target.double()
    fraction = copy_to_low_rank(tuned, target)
    retained = total = 0.0
    for layer in (0, 2):
        before, after = (model[layer].weight.numpy() for model in (original, tuned))
        left, sizes, right = np.linalg.svd(after - before, full_matrices=False)
        nearest = before + left[:, :rank] @ np.diag(sizes[:rank]) @ right[:rank]
        np.testing.assert_allclose(target[layer].weight.numpy(), nearest)
        retained, total = retained + (sizes[:rank] ** 2).sum(), total + (sizes**2).sum()
    assert fraction == pytest.approx(retained / total)
    torch.testing.assert_close(target[1].weight, tuned[1].weight)
    torch.testing.assert_close(target[0].bias, tuned[0].bias)
    if rank == 6:  # at full rank, the copy is exact
        x = torch.randn(3, 6, dtype=torch.float64)
        torch.testing.assert_close(target(x), tuned(x))
