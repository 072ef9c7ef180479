"""The Optuna study of a search: how trials are claimed and ended, and its journal with their values and scores.

The locks of the journal are files that only one process can create, which is safe on NFS.
"""

import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from datamodules.documents import UserError
from precis.config.written_paths import check_links
from precis.trials.search_space import JOURNAL, suggest

try:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
    from optuna.trial import FrozenTrial, TrialState
except ImportError:
    raise UserError("a search needs optuna; pip install 'precis-suite[search]'") from None

NAME = "search"  # name of the study in the journal
SEED_STRIDE = 1_000_003  # a prime above any number of trials, so that searches with other seeds share no seed
optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


class Search:
    """The Optuna study of a search in the sweep folder `out`; `section` is the section `search` of its sweep file.

    `base` is the digest of the config that trials change; None skips the check of this digest. Raises a `UserError` if
    the journal is damaged, or was begun with other keys or another base.
    """

    def __init__(self, out: Path, section: dict[str, Any], base: str | None = None) -> None:
        self.out = Path(out)
        self.section = section
        self.path = self.out.resolve() / JOURNAL  # journal of Optuna
        check_links(self.path, self.out)  # a link must not make Optuna write outside the sweep folder
        with _explain_journal_errors(self.path):
            storage = JournalStorage(JournalFileBackend(str(self.path), lock_obj=JournalFileOpenLock(str(self.path))))
            study_names = [summary.study_name for summary in storage.get_all_studies()]  # none in a new journal
            if study_names not in ([], [NAME]):  # NAME: the only study of a search
                raise UserError(f"{self.path}: of another study, {', '.join(study_names)}; pass another --out")
            create = partial(optuna.create_study, direction=section["direction"])
            open_study = optuna.load_study if study_names else create
            self.study = open_study(study_name=NAME, storage=storage, pruner=_pruner(section))
        space = {key: section[key] for key in ("metric", "direction", "keys")}
        if not study_names:
            self.study.set_user_attr("space", space)
            self.study.set_user_attr("base", base)  # `_check` compares both when the journal is opened again
        self._check(space, base)

    def _check(self, space: dict[str, Any], base: str | None) -> None:
        """Raise a `UserError` if the journal was begun with another `space` (metric, direction, keys) or base."""
        recorded = self.study.user_attrs
        remedy = "pass another --out, or restore the sweep file"
        for name, value in space.items():
            old = recorded.get("space", {}).get(name)
            if json.loads(json.dumps(value)) != old:  # as the journal stores it: tuples become lists
                raise UserError(f"{self.path}: is of a search with other {name}, {json.dumps(old)}; {remedy}")
        if base is not None and recorded.get("base") != base:  # with the overrides in `set` of the sweep file
            raise UserError(f"{self.path}: is of a search from another base, or with another set; {remedy}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the search against other workers, on all machines that share the folder."""
        lock = JournalFileOpenLock(str(self.path.with_name("claim")))  # the journal has another lock, for each write
        lock.acquire()
        try:
            yield
        finally:
            lock.release()

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials, in order."""
        with _explain_journal_errors(self.path):
            return self.study.get_trials(deepcopy=False)  # trials are only read here

    @property
    def best(self) -> FrozenTrial | None:
        """The completed trial with the best score; None if there is none."""
        complete = [trial for trial in self.trials if trial.state == TrialState.COMPLETE]
        sign = 1 if self.section["direction"] == "maximize" else -1
        return max(complete, key=lambda trial: sign * trial.value, default=None)

    def claim(self, worker: int) -> tuple[int, dict[str, Any]] | None:
        """Return number and values of a worker's next trial: one that was killed while the worker ran it, or a new one.

        Returns None if the search has as many trials as its section says. Call it while the search is `locked`. A
        worker has one process at a time, so a running trial of this worker is one whose process was killed.
        """
        trials = self.trials
        running = [trial for trial in trials if trial.state == TrialState.RUNNING]
        # A worker that is killed between `ask` and `set_user_attr` leaves a trial without a worker, which any may take.
        unfinished = [trial for trial in running if trial.user_attrs.get("worker", worker) == worker]
        started = len([trial for trial in trials if trial.state != TrialState.WAITING])  # WAITING: enqueued, not begun
        if not unfinished and started >= self.section["trials"]:
            return None
        number = unfinished[0].number if unfinished else started  # numbers start at 0, with those of enqueued trials
        self.study.sampler = self._sampler(number)  # seeded by the number, whichever worker runs the trial
        trial = optuna.Trial(self.study, unfinished[0]._trial_id) if unfinished else self.study.ask()
        trial.set_user_attr("worker", worker)
        return trial.number, suggest(trial, self.section["keys"])

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """Return a sampler seeded by trial number: trials differ, and a continued trial draws the same values again."""
        seed = (self.section["seed"] * SEED_STRIDE + number) % 2**32  # differs between searches; NumPy takes 32 bits
        if self.section["sampler"] == "tpe":
            startup = self.section["startup"]  # random trials before the first of TPE
            # constant_liar: running trials count as bad ones, so that workers do not try the same region
            return optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)
        return optuna.samplers.RandomSampler(seed=seed)

    def report(self, number: int, value: float, step: int) -> bool:
        """Report the score of a validation, `step` from 1, of a running trial; return whether to prune the trial."""
        recorded = self.trials[number]
        if recorded.state != TrialState.RUNNING:  # it has ended
            return False
        trial = optuna.Trial(self.study, recorded._trial_id)
        if step not in recorded.intermediate_values:  # a resumed run repeats its last validations
            trial.report(value, step)
        prune = bool(recorded.user_attrs.get("pruned")) or trial.should_prune()  # a pruned trial stays pruned
        if prune:
            trial.set_user_attr("pruned", True)
        return prune

    def record(self, number: int, name: str, value: Any) -> None:
        """Record a value of a trial by a name, unless the trial has ended."""
        trial = self.trials[number]
        if trial.state == TrialState.RUNNING:
            optuna.Trial(self.study, trial._trial_id).set_user_attr(name, value)

    def end(self, number: int, failure: str | None) -> str:
        """End a trial by its recorded score, or as failed for reason `failure`; return complete, pruned or failed."""
        attributes = self.trials[number].user_attrs  # `TrialReport` recorded them
        if failure is None and attributes.get("pruned"):
            self.study.tell(number, state=TrialState.PRUNED)
            return "pruned"
        score = attributes.get("score")
        if failure is None and (score is None or not math.isfinite(score)):
            failure = f"{self.section['metric']} is {'missing' if score is None else score}"
        if failure is not None:
            self.record(number, "failure", failure)
            self.study.tell(number, state=TrialState.FAIL)
            return "failed"
        self.study.tell(number, score)
        return "complete"


def _pruner(section: dict[str, Any]) -> optuna.pruners.BasePruner:
    """Return the pruner that a section `search` names; its steps are validations, from 1."""
    startup = section["startup"]  # number of trials without pruning
    warmup = section["warmup"]  # number of validations of each trial without pruning
    if section["pruner"] == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=startup, n_warmup_steps=warmup + 1)
    if section["pruner"] == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=warmup + 1)  # `startup` is not used
    return optuna.pruners.NopPruner()  # "none"


@contextmanager
def _explain_journal_errors(path: Path) -> Iterator[None]:
    """Turn errors that Optuna raises on a damaged journal into a `UserError`."""
    try:
        yield
    except UserError:  # a subclass of ValueError, which has its message already
        raise
    except (ValueError, KeyError, AssertionError) as error:  # what Optuna raises for malformed lines
        raise UserError(f"{path}: no journal of Optuna, or a damaged one ({error}); pass another --out") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read or written ({error.strerror or error})") from None
