"""Tracking of runs with Weights & Biases, offline unless the user is logged in."""

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
from lightning_modules.checkpoints import best_checkpoint
from precis.files.data_files import read_json
from precis.runs.prediction_files import table_of_predictions
from precis.runs.run_state import logged_in
from precis.runs.sweep_points import sweep_and_label

MAX_TAG_LENGTH = 64  # limit of W&B
DATA_DIR_VARIABLE = "WANDB_DATA_DIR"
USER_DATA_DIR = os.environ.get(DATA_DIR_VARIABLE)  # read once, since each run replaces the variable
MAX_TABLE_ROWS = 1000  # predictions in the table at W&B
BEST_SCORES = "best_scores"  # key in checkpoints with the validation scores of the best one


def run_id(folder: Path) -> str | None:
    """Return the W&B id of a run, stored in its folder on the first call; None on ranks that do not log (all but 0)."""
    if rank_zero_only.rank != 0:
        return None
    path = Path(folder) / "wandb" / "run_id"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(secrets.token_hex(6) + "\n", encoding="utf-8")  # 48 random bits, unique within a project
    return path.read_text(encoding="utf-8").strip()


def grouping(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Return group (the sweep), job type (label in the sweep) and tags (model, label, seed) of a run at W&B."""
    model = str(config["model"]["class_path"]).rsplit(".", 1)[-1]
    group, label = sweep_and_label(folder)  # empty without a sweep
    tags = [model, label, f"seed={config.get('seed_everything')}"]
    return {"group": group or None, "job_type": label or model, "tags": [tag[:MAX_TAG_LENGTH] for tag in tags if tag]}


def wandb_logger(folder: Path, mode: str, project: str, config: dict[str, Any]) -> WandbLogger:
    """Return the W&B logger of a run; `mode`: online, offline, or auto (online if logged in). Sets `WANDB_DATA_DIR`."""
    online = mode == "online" or (mode == "auto" and logged_in())
    # Files of artifacts wait for `wandb sync` in the run folder, unless the user has set the variable before the start.
    os.environ[DATA_DIR_VARIABLE] = USER_DATA_DIR or str(Path(folder).resolve() / "wandb" / "data")
    logger = WandbLogger(
        project=project, name=Path(folder).resolve().name, id=run_id(folder), save_dir=str(folder),
        offline=not online, resume="allow" if online else None, **grouping(folder, config),  # resume: continue `id`
    )  # fmt: skip
    vars(logger).get("_wandb_init", {}).pop("anonymous", None)  # wandb warns of it even where it is not set
    return logger


class WandbRecord(Callback):
    """Log to W&B more than the logged values: config, environment, signatures of ROUGE, model, and predictions.

    Model (with `models`) and predictions are artifacts; the first predictions are also a table. The summary of W&B
    has the validation scores of the best checkpoint (`val/...`) and its step (`best_step`), or the scores of the last
    validation if no checkpoint was selected. Without a logger of W&B, the callback does nothing.
    """

    def __init__(self, run: Path, config: dict[str, Any], models: bool = True) -> None:
        self.run = Path(run)
        self.config = config
        self.models = models
        self._best_scores: dict[str, Any] = {}  # `score` of the best checkpoint; `summary`: values for W&B
        self._has_config = False  # whether W&B has the config and environment of this start

    def _wandb_runs(self, trainer: Trainer) -> list[Any]:
        if not trainer.is_global_zero:
            return []
        return [logger.experiment for logger in trainer.loggers if isinstance(logger, WandbLogger)]  # wandb.Run

    def _signatures(self, pl_module: LightningModule) -> dict[str, str]:
        metric = getattr(pl_module, "rouge", None)  # models that summarize nothing have none
        return dict(metric["test"].signatures) if metric is not None else {}  # settings of ROUGE, by measure

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Log config and environment at the first batch, before which options of this start may be refused."""
        if self._has_config:
            return
        self._has_config = True
        for run in self._wandb_runs(trainer):
            environment = read_json(self.run / "environment.json")  # written by `RunRecord`, an earlier callback
            extra = {"environment": environment, "signatures": self._signatures(pl_module), "run_folder": str(self.run)}
            run.config.update(self.config | extra, allow_val_change=True)  # a resumed run may differ

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._best_scores = checkpoint.get(BEST_SCORES, {})

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Set the scores of the best checkpoint in the W&B summary; keep them in the checkpoint for a resumed run."""
        # After a validation with a new best score, best.ckpt is written first, so its scores are the present metrics.
        best = best_score(trainer)
        if best is not None and best != self._best_scores.get("score"):
            values = {name: value.item() for name, value in trainer.callback_metrics.items() if name.startswith("val/")}
            self._best_scores = {"score": best, "summary": values | {"best_step": trainer.global_step}}
        if self._best_scores:  # at each checkpoint, because W&B replaces them by the last logged values
            for run in self._wandb_runs(trainer):
                run.summary.update(self._best_scores["summary"])
        checkpoint[BEST_SCORES] = self._best_scores

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the best checkpoint, with config and tokenizer, as an artifact."""
        if not self.models or trainer.interrupted:  # an interrupted run may be resumed and get a better model
            return
        for run in self._wandb_runs(trainer):
            artifact = wandb.Artifact(f"model-{run.id}", type="model", metadata={"step": trainer.global_step})
            artifact.add_file(str(best_checkpoint(self.run)), policy="immutable")  # W&B makes no copy for the upload
            for path in (self.run / "config.yaml", self.run / "environment.json"):
                artifact.add_file(str(path))
            if (self.run / "text").is_dir():
                artifact.add_dir(str(self.run / "text"), name="text")
            run.log_artifact(artifact)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log signatures of ROUGE, a table of the first predictions, and the file of predictions as an artifact."""
        writer = next((callback for callback in trainer.callbacks if isinstance(callback, PredictionWriter)), None)
        if writer is None:  # the model does not summarize
            return
        for run in self._wandb_runs(trainer):  # of each W&B logger; none on ranks other than 0
            signatures = self._signatures(pl_module)
            run.summary.update({f"signature/{name}": signature for name, signature in signatures.items()})
            columns, cells = table_of_predictions(writer.path, MAX_TABLE_ROWS)
            run.log({"predictions": wandb.Table(columns=columns, data=cells)})
            artifact = wandb.Artifact(f"predictions-{run.id}", type="predictions")
            for path in (writer.path, writer.path.with_suffix(".signatures.json")):
                artifact.add_file(str(path))
            run.log_artifact(artifact)


def best_score(trainer: Trainer) -> float | None:
    """Return the monitored score of the best checkpoint so far; None before the first one."""
    scores = [c.best_model_score for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint)]
    return next((float(score) for score in scores if score is not None), None)
