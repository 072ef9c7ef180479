"""Configs that are damaged or hostile, given to commands in this process, and what became of each."""

import contextlib
import copy
import io
import random
import shutil
import sys
from collections import Counter
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import yaml
from conftest import write
from harness import TimeLimit, time_limit

from precis.command_line.cli import main

SECONDS = 120  # for a command; more is a hang
BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in zip("abcdefgh", "bcdefghi")
)
VALUES = [
    None, -1, 0, 1 << 70, -0.5, 1e308, float("nan"), float("inf"), True, "", " ", "x" * 10_000, "\x1b[2J", "a\nb", [],
    {}, [[]], [None], {"a": {}}, "true", "null", "1e3", "../../etc", "/dev/null", "/", "os.system", "builtins.exec",
    "subprocess.Popen", "torch.load", "{class_path: os.system}", "lightning_modules.BertSum",
]  # fmt: skip
TEXT = "The otter sleeps in the mill."
FOREIGN = ["os.system", "posix.system", "subprocess.call", "builtins.eval", "runpy.run_path", "torch.hub.load"]


def _places(value: Any, where: tuple = ()) -> list[tuple]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, part in items for place in [(*where, key), *_places(part, (*where, key))]]


def hostile_config(base: dict[str, Any], trap: Path, rng: random.Random) -> bytes:
    """A config with one damage, as the content of a file. Only a command of the config makes the file `trap`."""
    config, kind = copy.deepcopy(base), rng.choice(["value", "value", "key", "gone", "call", "bytes", "text"])
    *parents, key = rng.choice(_places(config))
    place = reduce(getitem, parents, config)
    if kind == "value":
        place[key] = rng.choice(VALUES)
    elif kind == "key" and isinstance(place, dict):
        place[rng.choice([str(key) + "s", "", "class_path", "init_args", "dict_kwargs", "ckpt_path"])] = place.pop(key)
    elif kind == "gone":
        del place[key]
    elif kind == "call":
        call = {"class_path": rng.choice(FOREIGN), "init_args": {"command": f"touch {trap}"}}
        place[key] = rng.choice([call, [call], yaml.safe_dump(call), {"class_path": "Lambda", "init_args": call}])
    content = yaml.safe_dump(config).encode()
    if kind == "bytes":
        at = rng.randrange(len(content))
        inserted = rng.choice([b"", rng.randbytes(1), b"\x00", b"\xff", b"!!x ", b"&a *a", b"{"])
        content = content[:at] + inserted + content[at + 1 :]
    elif kind == "text":
        tag = f"!!python/object/apply:os.system ['touch {trap}']".encode()
        texts = [b"", b"[]", b"3", BOMB.encode(), b"a: &a [*a]\n" + content, content + b"x: " + tag, b"[" * 5000]
        texts += [content + content, content.replace(b": ", b":\t"), b"%YAML 9\n" + content]
        content = rng.choice(texts)
    return content


def run_command(arguments: list[str]) -> tuple[int | str, str]:
    """Run a command in this process; return its status or exception, and its messages."""
    messages, before = io.StringIO(), list(sys.argv)
    with contextlib.redirect_stderr(messages), contextlib.redirect_stdout(io.StringIO()):
        try:
            with time_limit(SECONDS):
                status: int | str = main(arguments)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except TimeLimit:
            status = "hang"
        except Exception as error:
            status = f"{type(error).__name__}: {error}"
        finally:
            sys.argv = before
    return status, messages.getvalue()


def run_whole(arguments: list[str]) -> None:
    status, messages = run_command(arguments)
    assert status == 0, messages


def try_command(arguments: list[str], trap: Path, counts: Counter, content: bytes, kept: Path) -> list[str]:
    """Run a command, count it and its end, and return a description of what is wrong with its input, if anything."""
    status, messages = run_command(arguments)
    counts["cases"] += 1
    counts["read" if status == 0 else "refused"] += status in (0, 1, 2)
    if not (problem := problem_of(status, messages, trap)):
        return []
    counts[problem] += 1
    kept.write_bytes(content)
    return [f"{problem}: {arguments[0]} {status}: {' '.join(messages.split())[-400:]} ({kept})"]


def count_configs(base: dict[str, Any], run: Path, number: int, seed: int, folder: Path) -> tuple[Counter, list[str]]:
    """Return counts over hostile variants of a config, a run's config.yaml and a sweep, and what went wrong."""
    counts, wrong = Counter(), []
    trap, whole = folder / "ran", yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    text, axes = write(folder / "text.txt", TEXT), {"model.hidden_size": [8, 12], "optimizer.lr": [0.01, 0.1]}
    sweep = {"base": str(write(folder / "working.yaml", base)), "grid": axes, "seeds": [1, 2], "after": ["test"]}
    sweep["points"] = [{"name": str(steps), "trainer.max_steps": steps} for steps in (1, 2)]
    target, limits = folder / "run", ["--trainer.max_steps=1", "--trainer.limit_val_batches=0", "--data.max_train=4"]
    for index in range(number):
        rng = random.Random(f"config {seed} {index}")
        shutil.rmtree(target, ignore_errors=True)
        if index % 3 == 0:
            config, content = folder / "config.yaml", hostile_config(base, trap, rng)
            arguments = ["fit", f"--config={config}", f"--run_dir={target}", *limits]
        elif index % 3 == 1:
            shutil.copytree(run, target)
            config, content = target / "config.yaml", hostile_config(whole, trap, rng)
            commands = [["test", f"--run={target}"], ["fit", f"--run={target}"]]
            arguments = rng.choice([*commands, ["summarize", f"--checkpoint={target}", str(text)]])
        else:
            config, content = folder / "sweep.yaml", hostile_config(sweep, trap, rng)
            arguments = ["sweep", str(config), "--dry-run"]
        config.write_bytes(content)
        wrong += try_command(arguments, trap, counts, content, folder / f"wrong-{index}.yaml")
    return counts, wrong


def problem_of(status: int | str, messages: str, trap: Path) -> str | None:
    """Return what is wrong with the end of a command, or None."""
    errors = [line for line in messages.splitlines() if line.startswith("precis: error: ")]
    if trap.exists():
        trap.unlink()
        return "ran"
    if isinstance(status, str):
        return "hangs" if status == "hang" else "tracebacks"
    unexplained = status and (len(errors) != 1 or "Namespace(" in errors[0] or len(errors[0]) > 1500)
    return "unexplained" if unexplained else None
