"""A parser with a fine-tuned encoder, stored with changes of the encoder at a low rank."""

import pytest
import torch
from made_up_treebank import made_up_treebank, write_encoder

from datamodules.discourse.features import ParserBatch, parser_features
from datamodules.treebank import TreebankData
from experiments.studies.parser_training.low_rank import main
from lightning_modules.discourse_parser.parser import DiscourseParser
from precis.discourse.score_parser import request_of

pytestmark = pytest.mark.integration


@pytest.fixture
def document(tmp_path):
    path = made_up_treebank(tmp_path / "trees.jsonl", documents=1)
    return TreebankData(path, path).documents("train")[0]


@pytest.fixture
def encoder(tmp_path, document) -> str:
    return write_encoder(tmp_path / "encoder", [document.text])


def test_the_stored_parser_parses_like_the_original(tmp_path, encoder, document, capsys):
    options = {"layers": (0, 2), "window": 16, "frozen": False, "frozen_layers": 1, "hidden_size": 24, "fit_size": 0}
    torch.manual_seed(1)
    parser = DiscourseParser.of_settings(encoder=encoder, **options).eval()
    with torch.no_grad():
        for parameter in parser.encoder.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn_like(parameter)
    parser.save(tmp_path / "full")
    untuned = DiscourseParser.of_settings(encoder=encoder, **options).eval()
    untuned.scorers.load_state_dict(parser.scorers.state_dict())
    request = request_of(document)
    batch = ParserBatch.of([parser_features(request, document.edus, parser.subwords)])

    def distance(other: DiscourseParser) -> float:
        with torch.no_grad():
            return float((parser.vectors(batch) - other.vectors(batch)).abs().max())

    main([str(tmp_path / "full"), "--rank", "16", "--temperature", "1", "--out", str(tmp_path / "small")])
    assert "100.0% of the squared change" in capsys.readouterr().out
    small = DiscourseParser.load(tmp_path / "small")
    assert distance(small) < 0.05 < 0.5 < distance(untuned)
    assert small.parse(request).size == len(document.edus)
    with pytest.raises(SystemExit, match="no full-rank changes; name a fine-tuned parser"):
        main([str(tmp_path / "small"), "--out", str(tmp_path / "again")])
    with pytest.raises(SystemExit, match="not a chart parser"):
        main(["right_branching", "--out", str(tmp_path / "again")])
