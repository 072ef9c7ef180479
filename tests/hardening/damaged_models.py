"""Exported models and checkpoints with values of other types and damaged structure, given to commands."""

import io
import json
import random
import resource
import shutil
import sys
import zipfile
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import harness  # first, since it finds the others
import torch
from conftest import write
from damaged_records import flip
from files import hostile_base
from hostile_configs import TEXT, _places, run_whole, try_command
from torch.utils._pytree import tree_map

from lightning_modules.checkpoints import read_checkpoint
from lightning_modules.exported import EXPORTED

MAX_MEMORY = 1024  # MiB that the process may grow by
VALUES = [None, True, -1, 1 << 70, 0.5, float("nan"), "", "x" * 10_000, "\ud800", [], [[1]], {}, {"a": {"b": None}}]
TENSORS = [torch.ones(2).to_sparse(), torch.ones(2, device="meta"), torch.ones(2, dtype=torch.cfloat), torch.ones(0)]
DEEP = "[" * 100_000 + "]" * 100_000
BOMBS = [  # pickled calls that return many bytes
    b"\x80\x02}X\x0a\x00\x00\x00state_dictcbuiltins\nbytearray\n\x8a\x05\x00\x00\x00\x00\x02\x85Rs.",
    b"\x80\x02}X\x0a\x00\x00\x00state_dictc_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86Rs.",
]


def changed(content: dict[str, Any], places: list[tuple], values: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield copies of nested values, each without one part, or with another value in its place."""
    for *parents, key in places:
        for value in [..., *values]:
            copied = tree_map(lambda leaf: leaf, content)  # shares its tensors
            part = reduce(getitem, parents, copied)
            if value is ...:
                del part[key]
            else:
                part[key] = value
            yield copied


def bytes_of(path: Path, rng: random.Random, number: int) -> Iterator[bytes]:
    """Yield contents of a file that are cut short, or have flipped bits, most of them in its first 2,000 bytes."""
    content = path.read_bytes()
    for index in range(number):
        if index % 4 == 0:
            yield content[: rng.randrange(len(content))]
        else:
            yield flip(content, rng, len(content) if index % 4 == 1 else 2000)


def export_cases(exported: Path, rng: random.Random, number: int) -> Iterator[tuple[str, bytes]]:
    content = (exported / EXPORTED).read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, weights = json.loads(content[8 : 8 + size]), content[8 + size :]
    described = json.loads(header["__metadata__"]["precis"])
    stored = [json.dumps(one) for one in (*VALUES, *changed(described, _places(described), VALUES))]
    headers = [header | {"__metadata__": {"precis": one}} for one in (*stored, DEEP)]
    tensor = next(name for name in header if name != "__metadata__")
    headers += changed(header, [("__metadata__",), (tensor,), *((tensor, key) for key in header[tensor])], VALUES)
    for one in headers:
        text = json.dumps(one).encode()
        yield EXPORTED, len(text).to_bytes(8, "little") + text + weights
    vocabulary = json.loads((exported / "text/vocabulary.json").read_text(encoding="utf-8"))
    places = [*((key,) for key in vocabulary), ("words", 0)]
    for text in (DEEP, *map(json.dumps, VALUES), *map(json.dumps, changed(vocabulary, places, VALUES))):
        yield "text/vocabulary.json", text.encode()
    for name in (EXPORTED, "text/vocabulary.json"):
        yield from ((name, damaged) for damaged in bytes_of(exported / name, rng, number))


def checkpoint_cases(path: Path, rng: random.Random, number: int) -> Iterator[bytes]:
    """Yield damaged contents of a checkpoint, whose checksums are right unless it is cut short or has flipped bits."""
    content = read_checkpoint(path)
    places = _places(content)
    chosen = [place for place in places if len(place) == 1]
    chosen += rng.sample([place for place in places if len(place) > 1], number)
    for one in changed(content, chosen, [rng.choice(VALUES), rng.choice(TENSORS), rng.choice(VALUES)]):
        torch.save(one, buffer := io.BytesIO())
        yield buffer.getvalue()
    yield from bytes_of(path, rng, number)
    with zipfile.ZipFile(path) as file:
        members = {member.filename: file.read(member) for member in file.infolist()}
    pickled = next(name for name in members if name.endswith("data.pkl"))
    flipped = [flip(members[pickled], rng) for _ in range(number)]
    for program in [members[pickled], *BOMBS, *flipped]:
        kind = zipfile.ZIP_DEFLATED if program is members[pickled] else zipfile.ZIP_STORED
        with zipfile.ZipFile(buffer := io.BytesIO(), "w", kind) as file:
            for name, member in (members | {pickled: program}).items():
                file.writestr(name, member)
        yield buffer.getvalue()


def count_models(kind: str, whole: Path, cases: Iterable[tuple[str, bytes]], folder: Path) -> tuple[Counter, list[str]]:
    """Return counts over the damaged files of a run folder or exported model, and descriptions of what went wrong."""
    counts, wrong = Counter(), []
    text, target = write(folder / "text.txt", TEXT), folder / "damaged"
    for index, (name, content) in enumerate(cases):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(whole, target)
        (target / name).write_bytes(content)
        commands = [["summarize", f"--checkpoint={target}", str(text)]]
        if kind == "checkpoints":
            shutil.copy(target / name, target / "checkpoints" / "last.ckpt")
            commands += [["fit", f"--run={target}"], ["test", f"--run={target}"]]
        kept = folder / f"{kind}-{index}{Path(name).suffix}"
        wrong += try_command(commands[index % len(commands)], folder / "trap", counts, content, kept)
    return counts, wrong


def damage_models(options: Namespace, folder: Path) -> int:
    failed, rng = 0, random.Random(options.seed)
    config = write(folder / "config.yaml", hostile_base(folder))
    run, exported, best = folder / "run", folder / "exported", "checkpoints/best.ckpt"
    run_whole(["fit", f"--config={config}", f"--run_dir={run}"])
    run_whole(["export", str(run), f"--out={exported}"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    damaged = ((best, content) for content in checkpoint_cases(run / best, rng, options.number))
    exports = export_cases(exported, rng, options.number)
    for kind, whole, cases in (("exports", exported, exports), ("checkpoints", run, damaged)):
        counts, wrong = count_models(kind, whole, cases, folder)
        problems = ", ".join(f"{counts[name]} {name}" for name in ("tracebacks", "hangs", "unexplained"))
        print(f"{kind}: {counts['cases']:,} cases: {counts['cases'] - len(wrong):,} answered in a line "
              f"({counts['read']:,} of them read), {problems}", flush=True)  # fmt: skip
        print("\n".join(wrong), file=sys.stderr)
        failed += len(wrong)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    print(f"memory: {memory:,} MiB more at most")
    return failed + (memory > MAX_MEMORY)


if __name__ == "__main__":
    harness.run(__doc__, damage_models, number=(40, "number of random damages of each kind"))
