"""Weights & Biases: what a run says of itself there. Offline unless somebody is logged in."""

import json
import os
import secrets
from pathlib import Path
from typing import Any

import wandb
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from callbacks import PredictionWriter
from experiments.prediction_files import read_rows
from experiments.wandb_login import logged_in
from lightning_modules.checkpoints import best_checkpoint

LONGEST_TAG = 64  # what W&B takes
DATA = "WANDB_DATA_DIR"
THEIRS = os.environ.get(DATA)  # what the user has set
ROWS = 1000  # of the table of predictions
BEST_SCORES = "best_scores"  # of a checkpoint: the validation scores of the best one


def run_id(folder: Path) -> str | None:
    """The run's id at W&B: drawn once and kept in the run folder, so that each start of the run, and each command on
    it, is the same W&B run. Only rank 0 has one."""
    if rank_zero_only.rank != 0:
        return None
    path = Path(folder) / "wandb" / "run_id"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(secrets.token_hex(6) + "\n", encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


def sweep_of(folder: Path) -> tuple[str, str]:
    """The sweep that a run is a point of, and what that says of it, without the seed; empty for a run of no sweep."""
    path = Path(folder).parent / "points.json"
    if not path.is_file():
        return "", ""
    described = json.loads(path.read_text(encoding="utf-8"))
    labels = {row["run"]: row["label"] for row in described["points"]}
    words = labels.get(Path(folder).name, "").split(" ")
    return described["sweep"], " ".join(word for word in words if not word.startswith("seed="))


def place(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Where W&B shows a run: its group (the sweep), its job type (the ablation) and its tags (paper, ablation, seed).

    Args:
        folder: the run folder.
        config: of the run.
    """
    paper = str(config["model"]["class_path"]).rsplit(".", 1)[-1]
    group, label = sweep_of(folder)
    tags = [paper, label, f"seed={config.get('seed_everything')}"]
    job_type = label or paper
    return {"group": group or None, "job_type": job_type, "tags": [tag[:LONGEST_TAG] for tag in tags if tag]}


def wandb_logger(folder: Path, mode: str, project: str, config: dict[str, Any]) -> WandbLogger:
    """The logger of a run.

    Args:
        folder: the run folder.
        mode: auto, online or offline.
        project: at W&B.
        config: of the run.
    """
    online = mode == "online" or (mode == "auto" and logged_in())
    # files of artifacts wait for `precis sync` in the run folder, not in somebody's home
    os.environ[DATA] = THEIRS or str(Path(folder).resolve() / "wandb" / "data")
    logger = WandbLogger(
        project=project,
        name=Path(folder).resolve().name,
        id=run_id(folder),
        save_dir=str(folder),
        offline=not online,
        resume="allow" if online else None,
        **place(folder, config),
    )
    vars(logger).get("_wandb_init", {}).pop("anonymous", None)  # wandb warns of it even where it is not set
    return logger


class WandbRecord(Callback):
    """What a dashboard shows beside the logged values: config, environment, ROUGE's signature, the model and the
    predictions as artifacts, and a table of predictions. Nothing where no logger is W&B's.

    The summary of the run holds the validation scores of the best checkpoint (`val/...`) and its step (`best_step`);
    those of the last validation where none was selected.

    Args:
        run: the run folder.
        config: of the run.
        models: whether the best model becomes an artifact; it is not copied before it is uploaded.
    """

    def __init__(self, run: Path, config: dict[str, Any], models: bool = True) -> None:
        self.run, self.config, self.models = Path(run), config, models
        self._best_scores: dict[str, Any] = {}  # of the best checkpoint: what it was selected by, and what is shown

    def _runs(self, trainer: Trainer) -> list[Any]:
        if not trainer.is_global_zero:
            return []
        return [logger.experiment for logger in trainer.loggers if isinstance(logger, WandbLogger)]

    def _signatures(self, pl_module: LightningModule) -> dict[str, str]:
        metric = getattr(pl_module, "rouge", None)
        return dict(metric["test"].signatures) if metric is not None else {}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for run in self._runs(trainer):
            environment = self.run / "environment.json"  # of `RunRecord`, which comes first
            known = json.loads(environment.read_text(encoding="utf-8")) if environment.is_file() else {}
            run.config.update(self.config, allow_val_change=True)
            run.config.update(
                {"environment": known, "signatures": self._signatures(pl_module), "run_folder": str(self.run)},
                allow_val_change=True,
            )

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._best_scores = checkpoint.get(BEST_SCORES, {})

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        # A checkpoint is saved after each validation, the best one first. W&B's own summary is the last value by then.
        best = _best_score(trainer)
        if best is not None and best != self._best_scores.get("score"):
            metrics = trainer.callback_metrics.items()
            values = {name: value.item() for name, value in metrics if name.startswith("val/")}
            self._best_scores = {"score": best, "summary": values | {"best_step": trainer.global_step}}
        if self._best_scores:
            for run in self._runs(trainer):
                run.summary.update(self._best_scores["summary"])
        checkpoint[BEST_SCORES] = self._best_scores

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.models or trainer.interrupted:
            return
        for run in self._runs(trainer):
            artifact = wandb.Artifact(f"model-{run.id}", type="model", metadata={"step": trainer.global_step})
            artifact.add_file(str(best_checkpoint(self.run)), policy="immutable")  # without another copy
            for path in (self.run / "config.yaml", self.run / "environment.json"):
                artifact.add_file(str(path))
            if (self.run / "text").is_dir():
                artifact.add_dir(str(self.run / "text"), name="text")
            run.log_artifact(artifact)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        writer = next((callback for callback in trainer.callbacks if isinstance(callback, PredictionWriter)), None)
        predictions = writer.path if writer is not None else self.run / "predictions.jsonl"
        for run in self._runs(trainer):
            if not predictions.is_file():
                continue
            run.summary.update({f"signature/{name}": said for name, said in self._signatures(pl_module).items()})
            run.log({"predictions": table_of(predictions)})
            artifact = wandb.Artifact(f"predictions-{run.id}", type="predictions")
            for path in (predictions, predictions.with_suffix(".signatures.json")):
                artifact.add_file(str(path))
            run.log_artifact(artifact)


def _best_score(trainer: Trainer) -> float | None:
    """Return the score of the best checkpoint so far, None if there is none."""
    scores = [c.best_model_score for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint)]
    return next((float(score) for score in scores if score is not None), None)


def table_of(predictions: Path) -> wandb.Table:
    """The first documents of a file of predictions: id, reference, summary, and a column a score."""
    rows = read_rows(predictions)[:ROWS]
    names = list(dict.fromkeys(name for row in rows for name in row["scores"]))
    table = wandb.Table(columns=["id", "reference", "summary", *names])
    for row in rows:
        reference = " ".join(row["references"][0]) if row["references"] else ""
        scores = [row["scores"].get(name) for name in names]
        table.add_data(str(row["id"]), reference, " ".join(row["summary"]), *scores)
    return table
