"""The class temperature of a parser: Brier scores of held-out documents, and the command that fits it."""

import json
from dataclasses import replace
from itertools import permutations

import pytest
import torch
import yaml
from made_up_treebank import made_up_treebank

from datamodules.discourse.distributions import tree_ldd
from datamodules.discourse.parses import ParseRequest, nodes_of
from experiments.studies.parser_training.class_temperature import main, squared_errors
from experiments.studies.parser_training.folds import FoldData
from lightning_modules.discourse_parser.parser import DiscourseParser

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    return made_up_treebank(tmp_path_factory.mktemp("treebank") / "trees.jsonl", documents=7)


def test_folds_hold_out_each_training_document_once(treebank):
    options = {"treebanks": [treebank], "licences": ["CC BY 4.0"]}
    folds = [FoldData(fold, 2, **options) for fold in range(2)]
    parts = [[{document.id for document in data.documents(split)} for split in ("train", "held_out")] for data in folds]
    for rest, held_out in parts:
        assert rest and held_out and not rest & held_out
        assert rest | held_out == {f"made-up-{n}" for n in (1, 2, 4, 5)}  # the others may not be used
    assert parts[0][1] == parts[1][0] and parts[1][1] == parts[0][0]


def test_the_command_fits_scores_and_uses_trained_folds_again(treebank, tmp_path, capsys):
    recipe = {
        "model": {"class_path": "lightning_modules.DiscourseParser", "init_args": {"hidden_size": 8, "fit_size": 2}},
        "data": {"class_path": "datamodules.TreebankData", "init_args": {"train": "x", "val": "y", "batch_size": 4}},
        "trainer": {"max_epochs": 1, "gradient_clip_val": 1.0},
        "seed_everything": 1,
    }
    path, out = tmp_path / "recipe.yaml", tmp_path / "folds"
    path.write_text(yaml.safe_dump(recipe))
    main([str(path), str(treebank), "--out", str(out), "--folds", "2", "--grid", "0.6"])
    result = json.loads(capsys.readouterr().out)
    assert result == json.loads((out / "temperature.json").read_text())
    assert (result["documents"], result["epochs"]) == (7, 1)
    scores = result["scores"]
    assert set(scores) == {"0.6", "1.0"} and scores[str(result["temperature"])] == min(scores.values())
    assert len(result["of_other_folds"]) == 2
    # the weights alone decide, and a parser that takes the temperature parses with it
    weights = sorted(out.glob("*/model.safetensors"))
    before = [file.stat().st_mtime_ns for file in weights]
    main([str(path), str(treebank), "--out", str(out), "--folds", "2", "--grid", "0.6"])
    assert json.loads(capsys.readouterr().out) == result
    assert [file.stat().st_mtime_ns for file in weights] == before and len(weights) == 2
    one, other = (DiscourseParser.load(out / "fold-0", class_temperature=value) for value in (1.0, 0.5))
    assert one.fingerprint != other.fingerprint
    other.save(tmp_path / "saved")
    assert DiscourseParser.load(tmp_path / "saved").reader.temperature == 0.5


def test_squared_errors_equal_those_of_the_parses_that_the_parser_gives(treebank):
    torch.manual_seed(0)
    data = FoldData(0, 2, [treebank])
    document = replace(data.documents("held_out")[0], tree=data.documents("held_out")[0].tree.binary())
    request = ParseRequest(document.id, document.text, tuple(document.sentences), tuple(document.paragraphs),
                           tuple(document.edus))  # fmt: skip
    model = DiscourseParser(hidden_size=8, fit_size=2, members=2).eval()
    found = squared_errors(model, document, [0.5, 1.0], max_half_width=2)
    for number, temperature in enumerate((0.5, 1.0)):
        model.reader.temperature, model.band = temperature, 2
        parse, total, pairs = model.parse(request), 0.0, 0
        gold = tree_ldd(nodes_of(document.tree, model.relations), parse.size, len(model.relations))
        for a, b in permutations(range(parse.size), 2):
            if abs(a - b) <= 2:
                errors = parse.band(2)[a, 2 + b - a] - gold[a, parse.size - 1 + b - a]
                total, pairs = total + errors.square().sum().item(), pairs + 1
        assert found[number].item() == pytest.approx(total, rel=0.02)  # parses are kept in one byte a value
        assert found[-1].item() == pairs
    assert found[0] != found[1]
