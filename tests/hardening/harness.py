"""What the scripts of `make harden` share: options, a working folder, a small config, and the lines of their tables."""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))  # first, since tests/ has folders of the same names

import torch

HEAD = "| what | tried | as if nothing had been | lost |\n|---|---|---|---|"
SIZES = {"train": 12, "val": 3, "test": 3}  # documents of a small corpus
# six steps, three to an epoch, a validation after each second
SHORT = {"max_epochs": -1, "max_steps": 6, "val_check_interval": 2, "check_val_every_n_epoch": None}
SHORT |= {"num_sanity_val_steps": 0, "log_every_n_steps": 1}
QUIET = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}


def read_options(description: str, **options: tuple[Any, str]) -> argparse.Namespace:
    """Return the options of a script, each with its default value and help, and `seed`."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    for name, (default, text) in {**options, "seed": (1, "seed of all that is random")}.items():
        many = {"nargs": "+", "choices": default or None} if isinstance(default, list) else {"type": type(default)}
        parser.add_argument(f"--{name}", default=default, help=text, **many)
    return parser.parse_args()


def tiny_config(files: dict[str, str], **trainer: Any) -> dict[str, Any]:
    """Return the config of a small pointer-generator over files of made-up documents."""
    decoding = {"beam_size": 2, "min_length": 1, "max_length": 6}
    model = {"vocab_size": 40, "embedding": {"size": 4}, "hidden_size": 4, "decoding": decoding}
    corpus = {"class_path": "datamodules.corpora.Files", "init_args": files}
    data = {"corpus": corpus, "max_source": 30, "max_target": 12, "batch_size": 4}
    return {
        "seed_everything": 3,
        "model": {"class_path": "lightning_modules.PointerGenerator", "init_args": model},
        "data": {"class_path": "datamodules.PointerGeneratorData", "init_args": data},
        "trainer": QUIET | trainer,
        "wandb": "off",
        "previews": 0,
    }


@contextmanager
def prepared_folder() -> Iterator[Path]:
    """Yield a folder to work in, and import all that forked processes need."""
    from precis.command_line.run_command import _quiet
    from precis.config.load_classes import load_classes
    from precis.runs import run_folder

    torch.set_num_threads(1)
    run_folder._git = lambda *arguments: None  # which asks other processes, and changes no file
    _quiet()
    load_classes()
    with tempfile.TemporaryDirectory(prefix="precis-harden-") as place:
        root = str(Path(__file__).parents[2])
        os.environ |= {"PRECIS_CACHE": f"{place}/cache", "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
        os.environ["PYTHONPATH"] = root  # of the processes that a sweep starts
        yield Path(place)


def report(name: str, problems: Iterable[str]) -> int:
    """Print a line of the table, and the problems to standard error; return the number of problems."""
    tried = lost = 0
    for problem in problems:
        tried += 1
        lost += bool(problem)
        if problem:
            print(f"{name}: {problem}", file=sys.stderr, flush=True)
    print(f"| {name} | {tried} | {tried - lost} | {lost} |", flush=True)
    return lost
