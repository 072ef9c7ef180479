"""Packed files: batches of token ids with their tokenizer, for training where no data package is installed.

    python -m benchmarks.gpu.pack --out packs/bertsum.safetensors --train 6000 --val 300 --config CONFIG [arguments]

The other arguments are those of `precis fit`. A packed file is a safetensors file without pickle: the batches of a
config's DataModule, each tensor compressed by zlib; ids, references and other fields, the tokenizer and the arguments
of the model are JSON in its header. With `--weights` it also has the weights of the pretrained encoder or LED that the
config names (a folder, or `minilm`), rounded to bfloat16. Reading it needs neither `datasets` nor downloads. It is
refused if it is larger than `--max-mib`.
"""

import argparse
import json
import os
import sys
import zlib
from collections.abc import Iterable
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save
from torch import Tensor

from benchmarks.gpu.pretrained import compress, decompress, named_in, read_pretrained
from benchmarks.measuring import model_and_data
from datamodules.batch import Batch

MAX_MIB = 60.0


class Pack(NamedTuple):
    """Content of a packed file.

    Attributes:
        batches: batches of each split.
        tokenizer: vocabulary or tokenizer of the data.
        model: class path and arguments of the model, as in a config.
        pretrained: config and weights of the pretrained model that the arguments name, None if it is not included.
    """

    batches: dict[str, list[Batch]]
    tokenizer: Any
    model: dict[str, Any]
    pretrained: tuple[dict[str, Any], dict[str, Tensor]] | None = None


def _class_path(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _class(path: str) -> type:
    """Return a class of the suite.

    Raises:
        ValueError: if the file names another one.
    """
    module, name = path.rsplit(".", 1)
    if module.split(".")[0] not in ("datamodules", "lightning_modules", "benchmarks"):
        raise ValueError(f"a packed file names {path}, which is not a class of the suite")
    return getattr(import_module(module), name)


def write_pack(path: Path, pack: Pack, max_mib: float = MAX_MIB) -> int:
    """Write a packed file as a whole; return its size in bytes.

    Raises:
        ValueError: if it would be larger than `max_mib`.
    """
    tensors, splits = {}, {}
    for split, batches in pack.batches.items():
        splits[split] = []
        for number, batch in enumerate(batches):
            values = {f.name: getattr(batch, f.name) for f in fields(batch)}
            shapes = {}
            for name, value in values.items():
                if isinstance(value, Tensor):
                    array = value.contiguous().numpy()
                    compressed = zlib.compress(array.tobytes(), 9)
                    tensors[f"{split}.{number}.{name}"] = np.frombuffer(compressed, np.uint8)
                    shapes[name] = [array.dtype.str, list(array.shape)]
            plain = {name: value for name, value in values.items() if name not in shapes}
            splits[split].append({"class": _class_path(batch), "tensors": shapes, "fields": plain})
    tokenizer = {"class": _class_path(pack.tokenizer), "state": pack.tokenizer.state()}
    header = {"splits": splits, "tokenizer": tokenizer, "model": pack.model}
    if pack.pretrained is not None:
        contents, described = compress(pack.pretrained[1])
        tensors |= {f"pretrained.{name}": content for name, content in contents.items()}
        header["pretrained"] = {"config": pack.pretrained[0], "tensors": described}
    tensors["header"] = np.frombuffer(zlib.compress(json.dumps(header).encode(), 9), np.uint8)
    content = save(tensors)
    if len(content) > max_mib * 2**20:
        size = f"{len(content) / 2**20:.1f} MiB, more than {max_mib:g}"
        raise ValueError(f"{path} would have {size}: lower --train or --data.max_source")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)
    return len(content)


def read_pack(path: Path) -> Pack:
    """Read a packed file."""
    with safe_open(path, "np") as file:
        header = json.loads(zlib.decompress(file.get_tensor("header").tobytes()))
        batches = {}
        for split, rows in header["splits"].items():
            batches[split] = []
            for number, row in enumerate(rows):
                values = dict(row["fields"])
                for name, (dtype, shape) in row["tensors"].items():
                    raw = zlib.decompress(file.get_tensor(f"{split}.{number}.{name}").tobytes())
                    values[name] = torch.from_numpy(np.frombuffer(raw, dtype).reshape(shape).copy())
                batches[split].append(_class(row["class"])(**values))
        pretrained = header.get("pretrained")
        if pretrained is not None:
            weights = decompress(pretrained["tensors"], lambda name: file.get_tensor(f"pretrained.{name}"))
            pretrained = pretrained["config"], weights
    kind, state = _class(header["tokenizer"]["class"]), header["tokenizer"]["state"]
    tokenizer = kind.from_state(state) if hasattr(kind, "from_state") else kind(**state)
    return Pack(batches, tokenizer, header["model"], pretrained)


def first_batches(loader: Iterable[Batch], documents: int) -> list[Batch]:
    """Return the first batches of a loader until they have a number of documents."""
    batches, count = [], 0
    for batch in loader:
        if count >= documents:
            break
        batches.append(batch)
        count += batch.batch_size
    return batches


def main() -> int:
    """Pack the data of a config."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--train", type=int, default=6000, help="number of training documents")
    parser.add_argument("--val", type=int, default=300, help="number of validation documents")
    parser.add_argument("--weights", action="store_true", help="include the weights of the pretrained model")
    parser.add_argument("--max-mib", type=float, default=MAX_MIB)
    arguments, of_fit = parser.parse_known_args()
    # the arguments come after the config, so that no more documents are prepared than are packed
    of_fit += [f"--data.max_train={arguments.train}", f"--data.max_eval={arguments.val}"]
    config, _, data = model_and_data(of_fit)
    data.prepare_splits(["train", "val"])
    data.setup("fit")
    loaders = {"train": data.train_dataloader(), "val": data.val_dataloader()}
    batches = {split: first_batches(loader, getattr(arguments, split)) for split, loader in loaders.items()}
    try:
        name = named_in(config["model"]) if arguments.weights else None
        pretrained = None if name is None else read_pretrained(name[1])
        pack = Pack(batches, data.tokenizer, config["model"], pretrained)
        size = write_pack(arguments.out, pack, arguments.max_mib)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    counts = ", ".join(f"{sum(b.batch_size for b in rows):,} documents of {split}" for split, rows in batches.items())
    print(f"{arguments.out}: {size / 2**20:.1f} MiB, {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
