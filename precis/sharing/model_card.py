"""The model card of an exported model: how to load it, its data, scores, training and licence."""

import inspect
import json
import sys
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from datamodules.text.lines import counted
from lightning_modules.exported import EXPORTED
from precis.files.json_files import read_json
from precis.files.nested_values import get_value
from precis.runs.run_folder import Run


def model_card(
    run: Path, name: str, loaded: Run, config: dict[str, Any], step: int, licence: str | None, note: str, folder: Path
) -> str:
    """Return the card as Markdown with a header in YAML; its text is in model_card.md.

    Args:
        run: the run folder, whose records the card summarizes.
        name: name of the model.
        loaded: the model.
        config: config of the exported model.
        step: step of the checkpoint.
        licence: licence of the weights; None if not stated.
        note: reason why the model cannot be loaded by `transformers`; empty if it can.
        folder: folder of the exported model.
    """
    kind = type(loaded.model)
    header = ModelCardData(
        library_name="precis",
        pipeline_tag="summarization",
        tags=["precis", kind.__name__.lower()],
        license=licence,
        base_model=_base_model(loaded.config),
    )
    environment = {"corpus": {}} | _record(run, "environment.json")
    corpus = config["data"]["init_args"].get("corpus") or {}
    corpus_arguments = {key: value for key, value in (corpus.get("init_args") or {}).items() if value is not None}
    versions = ", ".join(f"{package} {version}" for package, version in environment.get("versions", {}).items())
    training = {
        "seed": environment.get("seed"),
        "commit of the suite": environment.get("git_commit"),
        "device": environment.get("device"),
        "Python": environment.get("python"),
        "versions": versions or None,
    }
    card = ModelCard.from_template(
        header,
        template_path=str(Path(__file__).with_name("model_card.md")),
        name=name,
        kind=kind.__name__,
        description=(inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " "),
        paper=(inspect.getdoc(sys.modules[kind.__module__]) or "").split("\n")[0],
        weights=EXPORTED,
        has_network=(folder / "config.json").is_file(),
        has_encoder=(folder / "encoder").is_dir(),
        has_text=(folder / "text").is_dir(),
        note=note,
        corpus=str(corpus.get("class_path", "unknown")).rpartition(".")[2],
        corpus_arguments=json.dumps(corpus_arguments, ensure_ascii=False),
        environment=environment,
        counted=counted,
        results=_record(run, "results.json"),
        signatures=_record(run, "predictions.signatures.json"),
        step=step,
        training=training,
        licence=licence,
    )
    return f"{card}\n"


def _base_model(config: dict[str, Any]) -> str | None:
    """Return the hub's name of the pretrained model that training started from."""
    arguments = config["model"].get("init_args") or {}
    pretrained = get_value(arguments, "encoder.checkpoint")
    is_name = isinstance(pretrained, str) and pretrained.count("/") == 1 and not Path(pretrained).exists()
    return pretrained if is_name else None


def _record(run: Path, name: str) -> dict[str, Any]:
    path = run / name
    return read_json(path) if path.is_file() else {}
