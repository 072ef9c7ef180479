"""Run folders made by hand, for tests of what reads them."""

import copy
import csv
import hashlib
import json
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from cases import BY_NAME, ExtractiveCase, own_sentences
from model_options import dotted

from precis.files.nested_values import set_value
from precis.runs.run_folder import build

MODEL = {"vocab_size": 40, "pointer": True, "coverage": True}
CONFIG = {
    "model": {"class_path": "lightning_modules.PointerGenerator", "init_args": MODEL},
    "data": {"class_path": "datamodules.PointerGeneratorData", "init_args": {"batch_size": 4, "seed": 0}},
    "trainer": {"max_epochs": 2, "callbacks": [{"class_path": "callbacks.CoverageAnnealing"}]},
    "wandb": "off",
}
SIGNATURES = {name: f"{name}|stem:porter|tok:rouge|split:given|refs:best|precis:0.1.0" for name in ("rouge1", "rouge2")}


def prediction(number: int, summary: str, scores: dict[str, float]) -> dict[str, Any]:
    return {"id": f"doc-{number}", "summary": [summary], "references": [[f"reference {number}"]], "scores": scores}


def make_run(folder: Path, rows: list[dict], seed: int = 1, signatures=SIGNATURES, curve=None, **changes: Any) -> Path:
    """A run folder with what `precis fit` and `precis test` leave; `changes` are arguments of the model."""
    config = copy.deepcopy(CONFIG) | {"seed_everything": seed, "run_dir": str(folder)}
    config["model"]["init_args"] |= changes
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps({"seed": seed, "git_commit": "0" * 40}), encoding="utf-8")
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "predictions.jsonl").write_text(lines, encoding="utf-8")
    if signatures is not None:
        digest = {"sha256": hashlib.sha256(lines.encode("utf-8")).hexdigest()}
        (folder / "predictions.signatures.json").write_text(json.dumps(digest | signatures), encoding="utf-8")
    if curve is not None:
        with (folder / "metrics.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["epoch", "step", *curve])
            for step, values in enumerate(zip(*curve.values())):
                writer.writerow([0, 10 * step, *values])
    return folder


def write_sweep_folder(folder: Path, points: dict[str, list[dict[str, Any]]], missing: str) -> Path:
    """Write a sweep folder with a run for each label, whose settings are in its config; `missing` has no run."""
    described = []
    for label, rows in points.items():
        name, seed = label.rsplit(" seed=", 1)
        run = label.replace(" ", "-").replace("=", "-")
        make_run(folder / run, rows, seed=int(seed), vocab_size=len(name))
        described.append({"run": run, "label": label, "config": {}})
    described.append({"run": missing.replace(" ", "-"), "label": missing, "config": {}})
    (folder / "points.json").write_text(json.dumps({"after": [], "points": described}), encoding="utf-8")
    return folder


def plain(values: dict) -> dict:
    return {name: asdict(value) if is_dataclass(value) else value for name, value in values.items()}


def write_run(folder: Path, name: str, files: dict[str, str], **changes: object) -> Path:
    """A run folder of a model with random weights, without training it; `changes` are for model and data."""
    case = BY_NAME[name]
    files = own_sentences(files) if isinstance(case, ExtractiveCase) else files
    data = plain(case.data_args) | {"corpus": {"class_path": "datamodules.corpora.Files", "init_args": files}}
    model = dict(case.model_args)
    for key, value in changes.items():
        for part, its in (("model", model), ("data", data)):
            if key.startswith(f"{part}_"):
                its[key.removeprefix(f"{part}_")] = value
    arguments = {}
    for key, value in plain(dotted(case.model_class, model)).items():
        set_value(arguments, key, value)
    config = {"model": {"class_path": case.model, "init_args": arguments}}
    config["data"] = {"class_path": case.data, "init_args": data}
    torch.manual_seed(1)
    module, built = build(config)
    built.prepare_splits(["train"])
    module.set_tokenizer(built.tokenizer)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    (folder / "checkpoints").mkdir(parents=True)
    built.save_tokenizer(folder / "text")
    content = {"state_dict": module.state_dict(), "global_step": 3}
    module.on_save_checkpoint(content)
    torch.save(content, folder / "checkpoints" / "best.ckpt")
    (folder / "config.yaml").write_text(yaml.safe_dump({"run_dir": str(folder), **config}), encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps({"seed": 1, "git_commit": "0" * 40}), encoding="utf-8")
    return folder
