"""Train every model on two processes by each strategy and precision, resume it, and load it into one process.

Each cell of the printed table is a training of five optimizer steps with accumulated gradients, another one that
resumes after three of them, in the middle of an epoch, and the comparison of their weights, bit by bit.
"""

import os
import traceback
from argparse import Namespace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import harness  # first, since it finds the others
import torch
from cases import CASES, Case
from conftest import free_port, write_corpus
from pytorch_lightning import Callback, Trainer, seed_everything
from quiet_trainer import quiet_trainer
from test_ddp import torchrun_environment

from lightning_modules.checkpoints import read_checkpoint

SAVED, LAST = 3, 5  # optimizer steps; an epoch has two
STRATEGIES, PRECISIONS = ("ddp", "fsdp2"), ("32-true", "bf16-mixed")
SECONDS = 300  # after which a process that is still running is an error
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


def one_rank(case: Case, files: dict[str, str], folder: Path, rank: int, port: int, options: dict[str, Any]) -> None:
    """Target of a process: both trainings as `torchrun` starts them; an error is written to a file."""
    os.environ |= torchrun_environment(rank, 2, port)
    torch.set_num_threads(1)  # threads of OpenMP that the parent has started are not there after a fork
    try:
        train(case, files, folder / "whole", **options)
        train(case, files, folder / "resumed", resume=folder / "whole" / f"{SAVED}.ckpt", **options)
    except BaseException as error:
        (folder / f"{rank}.error").write_text(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        os._exit(1)  # the other process may wait for this one


def outcome(case: Case, files: dict[str, str], folder: Path, **options: Any) -> str:
    """Return `exact` if a resumed training on two processes ends with the same weights, else what failed."""
    folder.mkdir(parents=True)
    context, port = get_context("fork"), free_port()
    ranks = [context.Process(target=one_rank, args=(case, files, folder, rank, port, options)) for rank in (0, 1)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(SECONDS)
    for error in sorted(folder.glob("*.error")):
        return error.read_text().splitlines()[0]
    if running := [process for process in ranks if process.is_alive()]:
        for process in running:
            process.kill()
        return f"no end after {SECONDS} s"
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
            cell = outcome(case, files, place, strategy=strategy, precision=precision)
            cells.append("needs ddp" if "--trainer.strategy ddp" in cell else cell)  # an error with a remedy
        failed += sum(cell not in ("exact", "needs ddp") for cell in cells)
        harness.print_row(case.name, *cells)
    return failed


if __name__ == "__main__":
    harness.run(__doc__, compare_strategies, cases=([case.name for case in CASES], "cases of tests/cases.py"))
