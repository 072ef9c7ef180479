"""Reports the validations of a trial to its search, and ends the trial if it is pruned."""

import re
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from lightning_modules.lightning_internals import may_stop_early
from precis.runs.tracking import best_score
from precis.trials.search_folder import is_search, read_search


def trial_number(run: Path) -> int | None:
    """Return the number of the trial whose run folder it is, `trial-NNN` in the folder of a search; otherwise None."""
    run = Path(run).resolve()
    match = re.fullmatch(r"trial-(\d+)", run.name)
    return int(match[1]) if match and is_search(run.parent) else None


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
        self.search = read_search(Path(run).resolve().parent)
        self.number = trial_number(run)
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
        if trainer.strategy.reduce_boolean_decision(prune, all=False) and may_stop_early(trainer):
            self.stopping_reason_message = f"the search prunes the trial after validation {self.validations}"
            trainer.should_stop = True

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the score of the best checkpoint, or of the last validation if none was selected."""
        if not trainer.is_global_zero or trainer.interrupted:
            return
        score = best_score(trainer)
        if score is None:
            score = trainer.callback_metrics.get(self.search.section["metric"])
        if score is not None:
            self.search.record(self.number, score=float(score))
