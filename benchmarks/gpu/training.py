"""Part `training`: models trained on packed data (`--data FOLDER`), the same number of steps for each arm.

A packed file NAME.safetensors gives one arm, the model of its config; one of RSTformer gives an arm without discourse
and one for each of two injections (pack the data a second time with `--model.ablation permuted` for matched controls).
Every arm is trained with three seeds, the first seed of all arms first; validation
NLL and ROUGE are those of the packed validation documents.
"""

import atexit
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from torch.utils.data import DataLoader

from benchmarks.gpu.cells import Cell, estimate
from benchmarks.gpu.pack import Pack, read_pack
from benchmarks.gpu.pretrained import named_in, write_folder
from datamodules.batch import Batch

SEEDS, STEPS = (1, 2, 3), 600
DISCOURSE_ARMS = {
    "led": {"ablation": "no_discourse"}, "product": {"injection": "product"}, "log_bias": {"injection": "log_bias"}
}  # fmt: skip


class Rate(pl.Callback):
    """Documents per second of training, without the first steps, which compile and allocate."""

    def __init__(self, skip: int) -> None:
        self.skip, self.documents, self.start, self.seconds = skip, 0, 0.0, 0.0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        if trainer.global_step == self.skip:
            self.start = time.perf_counter()
        elif trainer.global_step > self.skip:
            self.documents += batch.batch_size

    def on_train_end(self, trainer, pl_module) -> None:
        self.seconds = time.perf_counter() - self.start


@cache
def pack_of(path: Path) -> Pack:
    """Return a packed file, read once."""
    return read_pack(path)


@cache
def pretrained_folder(path: Path) -> Path:
    """Return a folder with the pretrained model of a packed file, which is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="precis-pretrained-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_folder(folder, *pack_of(path).pretrained)
    return folder


def loader(batches: list[Batch], shuffle: bool, device: str) -> DataLoader:
    """Return a loader of ready-made batches."""
    return DataLoader(batches, batch_size=None, shuffle=shuffle, pin_memory=device == "cuda")


def train(path: Path, changes: dict[str, Any], seed: int, steps: int, device: str) -> dict[str, Any]:
    """Train an arm in bf16, and return validation scores and speed."""
    import lightning_modules
    from lightning_modules.decoding.options import DecodingOptions
    from lightning_modules.extractive.selection import SelectionOptions

    pack = pack_of(path)
    pl.seed_everything(seed, verbose=False)
    arguments = {k: v for k, v in pack.model["init_args"].items() if v is not None} | changes
    for name, kind in (("decoding", DecodingOptions), ("selection", SelectionOptions)):
        if isinstance(arguments.get(name), dict):
            arguments[name] = kind(**arguments[name])
    if pack.pretrained is not None:
        argument, _ = named_in(pack.model)
        arguments[argument] = str(pretrained_folder(path))
    model = getattr(lightning_modules, pack.model["class_path"].rsplit(".", 1)[-1])(**arguments)
    model.set_tokenizer(pack.tokenizer)
    rate = Rate(skip=min(20, steps - 1))
    trainer = pl.Trainer(
        accelerator="gpu" if device == "cuda" else "cpu", devices=1, precision="bf16-mixed", max_steps=steps,
        gradient_clip_val=2.0, callbacks=[rate], logger=False, enable_checkpointing=False, limit_val_batches=0,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
    )  # fmt: skip
    trainer.fit(model, loader(pack.batches["train"], shuffle=True, device=device))
    loss = trainer.callback_metrics["train/loss"].item()
    trainer.limit_val_batches = 1.0
    (scores,) = trainer.validate(model, loader(pack.batches["val"], shuffle=False, device=device), verbose=False)
    return {"train_loss": loss, "documents_per_second": rate.documents / max(rate.seconds, 1e-9), "scores": scores}


def cells(arguments) -> list[Cell]:
    """Return the cells: for each packed file and arm the first seed, then the others."""
    if arguments.data is None:
        print("training: no packed data (--data FOLDER); benchmarks/gpu/pack.py makes it", flush=True)
        return []
    steps, result = 2 if arguments.tiny else STEPS, []
    for seed in SEEDS[:1] if arguments.tiny else SEEDS:
        for path in sorted(Path(arguments.data).glob("*.safetensors")):
            pack = pack_of(path)
            arms = DISCOURSE_ARMS if "RSTformer" in pack.model["class_path"] else {"": {}}
            for arm, changes in arms.items():
                result.append(Cell(
                    name="-".join(filter(None, [path.stem, arm, str(seed)])),
                    seconds=seconds_of(pack, steps),
                    run=lambda p=path, c=changes, s=seed: train(p, c, s, steps, arguments.device),
                    settings={"data": path.stem, "arm": arm, "seed": seed, "steps": steps},
                ))  # fmt: skip
    return result


def seconds_of(pack: Pack, steps: int) -> float:
    """Return estimated seconds: 100 million parameters, and decoding of each validation batch in three seconds."""
    batch = pack.batches["train"][0]
    elements = sum(value.numel() for value in vars(batch).values() if getattr(value, "dim", int)() == 2)
    return estimate(6 * 100e6 * elements, 2e9, steps, 20 + 3 * len(pack.batches["val"]))


def report(records: list[dict[str, Any]], folder: Path) -> list[str]:
    """Return a table for the summary."""
    head = ["data", "arm", "seed", "steps", "documents/s", "val loss", "ROUGE-1", "ROUGE-2", "ROUGE-Lsum"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for record in records:
        if "result" in record:
            settings, result = record["settings"], record["result"]
            names = ("loss", "rouge1", "rouge2", "rougeLsum")
            scores = [f"{result['scores'].get(f'val/{name}', float('nan')):.2f}" for name in names]
            values = [*settings.values(), f"{result['documents_per_second']:,.1f}", *scores]
            lines.append(f"| {' | '.join(map(str, values))} |")
    return [*lines, ""]
