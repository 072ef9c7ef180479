"""Reads a .wandb file back, as W&B's server would: records of protobuf in the blocks of a LevelDB log."""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

BLOCK = 32 * 1024
HEADER = struct.Struct("<IHB")  # checksum, length, kind: 1 whole, 2 first, 3 middle, 4 last part
PREAMBLE = 7  # ":W&B", magic number, version


def records(path: Path) -> Iterator[Record]:
    content = path.read_bytes()
    assert content[:4] == b":W&B", f"{path}: no file of W&B"
    position, parts = PREAMBLE, b""
    while position < len(content):
        left = BLOCK - position % BLOCK
        if left < HEADER.size:  # too little room for a header: the block ends with zeros
            position += left
            continue
        _, length, kind = HEADER.unpack_from(content, position)
        if kind == 0:
            break
        parts += content[position + HEADER.size : position + HEADER.size + length]
        position += HEADER.size + length
        if kind in (1, 4):
            record, parts = Record(), parts
            record.ParseFromString(parts)
            yield record
            parts = b""


class OfflineRun:
    """Records that the starts of one run, or those of a pattern, left in its wandb folder, merged."""

    def __init__(self, run: Path, start: str = "offline-run-*") -> None:
        self.ids: set[str] = set()  # one if they are one run
        self.history: dict[str, list[Any]] = {}  # values by key; tables and images with their `_type`
        self.config: dict[str, Any] = {}  # by dotted key
        self.summary: dict[str, Any] = {}
        self.artifacts: list[tuple[str, set[str]]] = []  # type and names of files of each
        self.group, self.job_type, self.tags = "", "", []  # of the last start
        for path in sorted((run / "wandb").glob(f"{start}/*.wandb")):
            for record in records(path):
                self._take(record)

    def _take(self, record: Record) -> None:
        kind = record.WhichOneof("record_type")
        if kind == "run":
            self.ids.add(record.run.run_id)
            self.group, self.job_type, self.tags = record.run.run_group, record.run.job_type, list(record.run.tags)
            self._configure(record.run.config)
        elif kind == "config":
            self._configure(record.config)
        elif kind == "history" or record.request.WhichOneof("request_type") == "partial_history":
            history = record.history if kind == "history" else record.request.partial_history
            for item in history.item:
                self.history.setdefault(_key(item), []).append(json.loads(item.value_json))
        elif kind == "summary":
            self.summary |= {_key(item): json.loads(item.value_json) for item in record.summary.update}
        elif kind == "artifact":
            self.artifacts.append((record.artifact.type, {entry.path for entry in record.artifact.manifest.contents}))

    def _configure(self, config: Any) -> None:
        for item in config.update:
            self.config |= _flat(json.loads(item.value_json), _key(item))


def inspect(path: Path) -> dict:
    """Return what W&B's own viewer, `wandb leet`, prints for a start of a run, or for the last one in a folder."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--summary", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _key(item: Any) -> str:
    return item.key or ".".join(item.nested_key)


def _flat(value: Any, prefix: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    return {key: leaf for name, inner in value.items() for key, leaf in _flat(inner, f"{prefix}.{name}").items()}
