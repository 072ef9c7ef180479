"""Train every model on two processes by each strategy and precision, resume it, and load it into one process.

Each cell of the printed table is a training of five optimizer steps with accumulated gradients, another one that
resumes after three of them, in the middle of an epoch, and the comparison of their weights, bit by bit.
"""

from argparse import Namespace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import harness  # first, since it finds the others
import test_ddp
import torch
from cases import CASES, Case
from conftest import write_corpus
from pytorch_lightning import Callback, Trainer, seed_everything
from quiet_trainer import quiet_trainer

from lightning_modules.checkpoints import read_checkpoint

SAVED, LAST = 3, 5  # optimizer steps; an epoch has two
STRATEGIES, PRECISIONS = ("ddp", "fsdp2"), ("32-true", "bf16-mixed")
TRAINER = {"devices": 2, "max_steps": LAST, "accumulate_grad_batches": 2}
TRAINER |= {"limit_val_batches": 0, "num_sanity_val_steps": 0}


class Save(Callback):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        step = trainer.global_step
        if step in (SAVED, LAST):
            trainer.save_checkpoint(self.folder / f"{step}.ckpt")


def train(case: Case, files: dict[str, str], folder: Path, resume: Path | None = None, **options: Any) -> None:
    seed_everything(5, verbose=False)
    folder.mkdir(exist_ok=True)
    trainer = quiet_trainer(*case.callbacks(), Save(folder), **TRAINER | options)
    trainer.fit(case.build_model(**case.repeatable), case.build_data(files, batch_size=2), ckpt_path=resume)


def train_twice(case: Case, options: dict[str, Any], files: dict[str, str], folder: Path, *_: int) -> None:
    """Train in one of two processes, and once more from the checkpoint that the first training has saved."""
    torch.set_num_threads(1)  # threads of OpenMP that the parent has started are not there after a fork
    train(case, files, folder / "whole", **options)
    train(case, files, folder / "resumed", resume=folder / "whole" / f"{SAVED}.ckpt", **options)


def outcome(case: Case, files: dict[str, str], folder: Path, **options: Any) -> str:
    """Return `exact` if a resumed training on two processes ends with the same weights, else what failed."""
    folder.mkdir(parents=True)
    test_ddp.run_all = partial(train_twice, case, options)  # what a process calls once it knows of the other
    try:
        test_ddp.run_ranks(get_context("fork"), test_ddp.process, files, folder, [(0, 2), (1, 2)])
    except AssertionError as error:  # an error with a remedy, or another one
        return "needs ddp" if "--trainer.strategy ddp" in str(error) else str(error).splitlines()[-1]
    whole, resumed = (read_checkpoint(folder / name / f"{LAST}.ckpt")["state_dict"] for name in ("whole", "resumed"))
    case.build_model(**case.repeatable).load_state_dict(whole)  # into one process
    different = [name for name, tensor in whole.items() if not torch.equal(tensor, resumed[name])]
    return f"{len(different)} of {len(whole)} weights differ" if different else "exact"


def compare_strategies(options: Namespace, folder: Path) -> int:
    columns = list(product(STRATEGIES, PRECISIONS))
    harness.print_head("model", *(f"{strategy}, {precision}" for strategy, precision in columns))
    failed, files = 0, write_corpus(folder / "corpus", harness.SIZES)
    for case in (case for case in CASES if case.name in options.cases):
        case.build_data(files, batch_size=2).prepare_data()
        cells = []
        for strategy, precision in columns:
            place = folder / f"{case.name}-{strategy}-{precision}"
            cells.append(outcome(case, files, place, strategy=strategy, precision=precision))
        failed += sum(cell not in ("exact", "needs ddp") for cell in cells)
        harness.print_row(case.name, *cells)
    return failed


if __name__ == "__main__":
    harness.run(__doc__, compare_strategies, cases=([case.name for case in CASES], "cases of tests/cases.py"))
