"""Slow: GraphSum finds by its graph what only the graph knows, and by nothing else."""

import sysconfig
from pathlib import Path

import pytest
import yaml
from pytorch_lightning import Trainer, seed_everything

from datamodules.corpora import Docstrings, MixedArticles
from experiments.run_folder import build

CONFIG = Path(__file__).parents[2] / "experiments" / "configs" / "graphsum" / "control.yaml"
QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "use_distributed_sampler": False}


@pytest.fixture(scope="module")
def corpus() -> MixedArticles:
    """Articles of the standard library alone: quick to harvest."""
    return MixedArticles(Docstrings([sysconfig.get_paths()["stdlib"]], num_proc=1), max_train=6000, max_eval=400)


def share_right(corpus: MixedArticles, folder: Path, model: dict, data: dict) -> float:
    """Share of documents whose one-word summary is right, in percent, after the config's training."""
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    config["model"]["init_args"] |= model
    config["data"]["init_args"] |= data | {"cache_dir": str(folder)}
    seed_everything(1, verbose=False)
    built, documents = build(config)
    documents.corpus = corpus
    trainer = Trainer(**config["trainer"], **QUIET, enable_checkpointing=False, enable_model_summary=False,
                      limit_val_batches=0)  # fmt: skip
    trainer.fit(built, documents)
    return Trainer(**QUIET).test(built, documents, verbose=False)[0]["test/rouge1"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_only_the_right_graph_tells_the_answer(corpus, tmp_path):
    """Three seeds of the sweep lie within 5 points of each other; the margins here are twice that and more."""
    arms = {
        "scaled": ({}, {}),
        "permuted": ({}, {"graph": {"class_path": "datamodules.graphs.PermutedSimilarity"}}),
        "none": ({}, {"graph": "none"}),
    }
    right = {name: share_right(corpus, tmp_path, *changes) for name, changes in arms.items()}
    print(right)  # shown where an assertion fails
    assert right["scaled"] > 65
    assert right["scaled"] > right["permuted"] + 12 and right["scaled"] > right["none"] + 12
