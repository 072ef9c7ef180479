"""Reports the validations of a trial to its search, and ends the trial if it is pruned."""

import json
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from datamodules.atomic_write import atomic_write
from precis.files.json_files import read_json
from precis.runs.tracking import best_score
from precis.trials.search_folder import is_search, read_search

FILE = "trial.json"  # in the run folder of a trial


def write_trial(run: Path, number: int) -> None:
    """Mark a run folder, in a sweep folder, as that of a trial."""
    Path(run).mkdir(parents=True, exist_ok=True)
    atomic_write(Path(run) / FILE, json.dumps({"trial": number}) + "\n")


def is_trial(run: Path) -> bool:
    """Return whether a run folder is that of a trial, in the folder of its search."""
    return (Path(run) / FILE).is_file() and is_search(Path(run).parent)


class TrialReport(Callback):
    """Report the monitored value to Optuna after each validation.

    The score of a trial is that of its best checkpoint. If the pruner says so, training ends as by `EarlyStopping`:
    with a checkpoint that has the reason, so that `--resume auto` does not continue it.

    Args:
        run: run folder of the trial, in the sweep folder.

    Attributes:
        stopping_reason_message: why training ends; empty if it does not.
    """

    def __init__(self, run: Path) -> None:
        self.search = read_search(Path(run).parent)
        self.number = read_json(Path(run) / FILE, trial=int)["trial"]
        self.validations = 0
        self.stopping_reason_message = ""

    def state_dict(self) -> dict[str, Any]:
        return {"validations": self.validations}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.validations = state_dict["validations"]

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report a validation, and stop if the trial is pruned."""
        if trainer.sanity_checking:
            return
        self.validations += 1
        value = trainer.callback_metrics.get(self.search.section["metric"])
        prune = False
        if trainer.is_global_zero and value is not None:
            prune = self.search.report(self.number, float(value), self.validations)
        if trainer.strategy.reduce_boolean_decision(prune, all=False) and trainer.fit_loop._can_stop_early:
            self.stopping_reason_message = f"the search prunes the trial after validation {self.validations}"
            trainer.should_stop = True

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the score of the best checkpoint, or of the last validation if none was selected."""
        if not trainer.is_global_zero or trainer.interrupted:
            return
        last = trainer.callback_metrics.get(self.search.section["metric"])
        best = best_score(trainer)
        score = best if best is not None else last
        if score is not None:
            self.search.record(self.number, score=float(score))
