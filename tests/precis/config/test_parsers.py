"""Discourse parsers by name."""

import sys
from unittest.mock import Mock

import pytest
import torch
from conftest import write
from pytorch_lightning import Trainer

from datamodules.corpora import Files
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import UserError
from datamodules.rstformer import RSTformerData
from lightning_modules.discourse_parser.parser import DiscourseParser
from precis.config.parsers import load_parser, provide_parsers


@pytest.mark.integration
def test_a_parser_of_a_run(tmp_path, run_folder):
    parser = DiscourseParser(hidden_size=8, fit_size=4)
    trainer = Trainer(accelerator="cpu", logger=False, max_epochs=0, enable_checkpointing=False)
    trainer.strategy.connect(parser)
    trainer.save_checkpoint(tmp_path / "parser" / "checkpoints" / "best.ckpt", weights_only=True)
    parser.save(tmp_path / "saved")
    for place in (tmp_path / "parser", tmp_path / "parser" / "checkpoints" / "best.ckpt", tmp_path / "saved"):
        found = load_parser(str(place), "nucleus", 7)
        assert (found.rows, found.band, found.settings) == ("nucleus", 7, parser.settings) and not found.training
        for name, value in found.state_to_keep().items():
            torch.testing.assert_close(value, parser.state_to_keep()[name], atol=1e-3, rtol=1e-3)
    with pytest.raises(UserError, match="no checkpoint of a discourse parser"):
        load_parser(str(run_folder))


@pytest.mark.integration
def test_a_named_parser_loses_no_probability_whatever_the_rule(tmp_path, corpus_files):
    """Against all nodes one by one: in a long text, nodes of which each is improbable are many."""
    torch.manual_seed(0)
    parser = DiscourseParser(hidden_size=8, fit_size=2)
    parser.save(tmp_path / "saved")
    text = "a b c d . " * 60
    edus = tuple((start, start + 9) for start in range(0, 600, 10))
    request = ParseRequest("long", text, edus, ((0, 600),), edus)
    for rows in ("side", "nucleus"):
        exact = DiscourseParser.load(tmp_path / "saved", rows=rows, band=59, min_prob=0).parse(request).dense()
        named = load_parser(str(tmp_path / "saved"), rows, 59).parse(request)
        data = RSTformerData(Files(**corpus_files), parser=str(tmp_path / "saved"), rows=rows, half_width=59)
        provide_parsers(data)
        for found in (named, data.parser.parse(request)):
            assert found.rows == rows
            assert found.band(59).sum().item() == pytest.approx(exact.sum().item(), rel=0.01)
            assert found.dense().sum((1, 2)).sub(exact.sum((1, 2))).abs().max() < 0.02 * exact.sum((1, 2)).max()


def test_what_is_not_there_is_named_with_a_remedy(precis, tmp_path, monkeypatch):
    monkeypatch.setattr(DiscourseParser, "load", Mock(side_effect=OSError("We couldn't connect")))
    with pytest.raises(UserError, match=r"all-mpnet-base-v2, which is not in the cache .* or use --parser default"):
        load_parser("mpnet")
    monkeypatch.setitem(sys.modules, "isanlp_rst.parser", None)
    text = write(tmp_path / "a.txt", "It rains.")
    done = precis("parse", text, "--out", tmp_path / "out", "--parser", "isanlp_rst")
    done.failed_in_one_line("--parser isanlp_rst", "pip install")
