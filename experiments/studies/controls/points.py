"""Training runs of the controls: each point of a control's sweep, the arms of extraction, and selectors.

A point trains and scores as `precis sweep` does, but many points share one process, which saves the start of Python.
"""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytorch_lightning import LightningDataModule, LightningModule, Trainer, seed_everything
from pytorch_lightning.cli import instantiate_class

from datamodules.corpora.corpus import make_document
from datamodules.text.hashing import text_digest
from experiments.studies.controls.rst_extraction import ARMS, train_arm
from experiments.studies.controls.tasks import PlantedDuplicates
from experiments.studies.controls.tasks.control_sentences import standard_library
from lightning_modules.extractive.baselines import predictions
from lightning_modules.metrics.rouge import rouge_scores
from precis.runs.run_folder import build
from precis.sweeping.composition import compose
from precis.sweeping.grid import read_sweep

SWEEPS = Path(__file__).parents[2] / "sweeps" / "controls"
SEEDS = (1, 2, 3)
SELECTORS = (
    ("top_k", 0.0), ("trigram_blocking", 0.0), *(("mmr", weight) for weight in (0.9, 0.7, 0.5, 0.3, 0.1)),
    *(("triangle", weight) for weight in (0.1, 0.3, 1.0, 3.0)),
)  # fmt: skip
DUPLICATES = {
    "one word": {"variation": "one_word"},
    "every third word": {"variation": "every_third_word"},
    "one word, opening": {"variation": "one_word", "opening": "It should be noted that"},
    "no repetition": {"variation": "none"},
}
QUIET = {
    "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
    "enable_model_summary": False, "use_distributed_sampler": False,
}  # fmt: skip


@dataclass(frozen=True)
class ControlPoint:
    """One training, or one selector over one draw of documents.

    Attributes:
        control: name of the control.
        arm: name of the arm within the control.
        seed: seed of the training or of the documents.
        settings: everything that the result depends on.
    """

    control: str
    arm: str
    seed: int
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the file of the result, which changes with the settings."""
        digest = text_digest(json.dumps(self.settings, sort_keys=True, default=str))[:8]
        return f"{self.control}_{self.arm}_{self.seed}_{digest}".replace(" ", "-").replace(",", "")


def sweep_points(control: str) -> Iterator[ControlPoint]:
    """Yield the points of `experiments/sweeps/controls/CONTROL.yaml`."""
    for point in compose(read_sweep(SWEEPS / f"{control}.yaml")):
        seed = point.config["seed_everything"]
        config = {key: point.config[key] for key in ("model", "data", "optimizer", "trainer", "seed_everything")}
        yield ControlPoint(control, point.label.removesuffix(f" seed={seed}"), seed, config)


def pegasus_points() -> Iterator[ControlPoint]:
    """Yield training runs without pre-training and after each pre-training, and lead-1 on the same documents."""
    tuning = {point.seed: point.settings for point in sweep_points("pegasus_summaries")}
    for seed, settings in tuning.items():
        yield ControlPoint("pegasus", "lead-1", seed, {"data": settings["data"]})
    for seed, settings in tuning.items():
        yield ControlPoint("pegasus", "no pre-training", seed, settings)
    for point in sweep_points("pegasus_pretraining"):
        settings = tuning[point.seed] | {"pretraining": point.settings}
        yield ControlPoint("pegasus", point.arm, point.seed, settings)


def extraction_points() -> Iterator[ControlPoint]:
    """Yield arms and seeds of `rst_extraction`."""
    for arm in ARMS:
        for seed in SEEDS:
            yield ControlPoint("rst_extraction", arm.name, seed, {"arm": arm._asdict()})


def selection_points() -> Iterator[ControlPoint]:
    """Yield selectors over documents with near-duplicates."""
    for variation, corpus in DUPLICATES.items():
        for selector, trade_off in SELECTORS:
            for seed in SEEDS:
                settings = {"selector": selector, "trade_off": trade_off, "corpus": corpus | {"documents": 150}}
                name = f"{selector} {trade_off:g}" if trade_off else selector
                yield ControlPoint("selection", f"{variation}: {name}", seed, settings)


def all_points() -> list[ControlPoint]:
    """Return every point of every control."""
    names = [file.stem for file in sorted(SWEEPS.glob("*.yaml")) if not file.stem.startswith("pegasus")]
    sweeps = [point for name in names for point in sweep_points(name)]
    return [*sweeps, *pegasus_points(), *extraction_points(), *selection_points()]


def reduced(point: ControlPoint) -> ControlPoint:
    """Return a point with few steps and documents, to check that it runs; its scores mean nothing."""
    settings = json.loads(json.dumps(point.settings))
    if "data" in settings:
        for config in (settings, settings.get("pretraining", settings)):
            config.get("trainer", {})["max_steps"] = 2
            corpus = config["data"]["init_args"]["corpus"]["init_args"]
            sizes = {"sizes": [40, 4, 4], "train": 40, "held_out": 4, "max_train": 40, "max_eval": 4}
            corpus |= {key: size for key, size in sizes.items() if key in corpus}
    elif "arm" in settings:
        settings |= {"steps": 2, "train": 40, "held_out": 4}
    else:
        settings["corpus"]["documents"] = 3
    return replace(point, settings=settings)


def run_point(point: ControlPoint, cache: Path) -> dict[str, float]:
    """Train and score a point; return its measures by name.

    Args:
        cache: folder of documents and features, which points share.
    """
    if point.control == "selection":
        return _select(point)
    if point.control == "rst_extraction":
        (arm,) = (arm for arm in ARMS if arm.name == point.arm)
        sizes = {key: value for key, value in point.settings.items() if key != "arm"}
        accuracy, loss = train_arm(arm, point.seed, cache, **sizes)
        return {"accuracy": 100 * accuracy, "loss": loss}
    if point.arm == "lead-1":
        return _lead(point.settings["data"])
    return _train(point, cache)


def _train(point: ControlPoint, cache: Path) -> dict[str, float]:
    """Train a point of a sweep; return what its last weights reach on test, and on validation without decoding."""
    settings, pretrained = copy.deepcopy(point.settings), None
    if pretraining := settings.get("pretraining"):
        pretrained, data = _fit(pretraining, point.seed, cache)
        folder = cache / f"tokenizer_{point.name}"
        data.save_tokenizer(folder)
        settings["data"]["init_args"]["tokenizer_dir"] = str(folder)
    model, data = _fit(settings, point.seed, cache, pretrained)
    scores = Trainer(**QUIET).test(model, data, verbose=False)[0]
    model.val_summaries = 0
    scores |= Trainer(**QUIET).validate(model, data, verbose=False)[0]
    return {name: float(value) for name, value in scores.items()}


def _fit(
    settings: dict[str, Any], seed: int, cache: Path, start_from: LightningModule | None = None
) -> tuple[LightningModule, LightningDataModule]:
    """Train the model of a config, from the weights of another one if given; return model and data."""
    config = copy.deepcopy(settings)
    config["data"]["init_args"]["cache_dir"] = str(cache)
    seed_everything(seed, verbose=False)
    model, data = build(config)
    if start_from is not None:
        model.load_state_dict(start_from.state_dict())
    if optimizer := config["optimizer"]:
        model.configure_optimizers = lambda: instantiate_class(model.parameters(), optimizer)
    limits = {name: config["trainer"][name] for name in ("max_steps", "gradient_clip_val")}
    callbacks = [_instantiate(callback) for callback in config["trainer"]["callbacks"] or []]
    Trainer(**limits, **QUIET, callbacks=callbacks, limit_val_batches=0).fit(model, data)
    return model, data


def _lead(data: dict[str, Any]) -> dict[str, float]:
    """Return ROUGE of the first sentences of test documents."""
    corpus = _instantiate(data["init_args"]["corpus"])
    rows = list(predictions(map(make_document, corpus.records("test")), "lead", k=1))
    kinds = ("rouge1", "rouge2", "rougeL")
    scores = [rouge_scores(row["summary"], row["references"], kinds) for row in rows]
    return {f"test/{kind}": 100 * sum(score[kind].fmeasure for score in scores) / len(scores) for kind in kinds}


def _instantiate(description: dict[str, Any]) -> Any:
    """Build an object from a class path and arguments, which may be such descriptions themselves."""
    arguments = description.get("init_args") or {}
    built = {
        name: _instantiate(value) if isinstance(value, dict) and "class_path" in value else value
        for name, value in arguments.items()
    }
    return instantiate_class((), {"class_path": description["class_path"], "init_args": built})


def _select(point: ControlPoint) -> dict[str, float]:
    """Return ROUGE-2 of three sentences scored by their tf-idf cosine with the document."""
    corpus = PlantedDuplicates(standard_library(), seed=point.seed, **point.settings["corpus"])
    documents = map(make_document, corpus.records("train"))
    options = {"selector": point.settings["selector"]}
    if point.settings["trade_off"]:
        options["trade_off"] = point.settings["trade_off"]
    rows = predictions(documents, "zero_shot", **options)
    scores = [rouge_scores(row["summary"], row["references"], ("rouge2",))["rouge2"].fmeasure for row in rows]
    return {"rouge2": 100 * sum(scores) / len(scores)}
