"""Implementation of `precis export`: a trained model as a folder that can be shared, and that `precis.load` reads."""

import inspect
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub import ModelCard, ModelCardData

from datamodules.text.lines import counted
from lightning_modules.checkpoints import best_checkpoint, read_checkpoint, write_exported
from lightning_modules.exported import EXPORTED
from precis.config.run_config import IN_FOLDER, read_config
from precis.files.data_files import read_json
from precis.files.nested_values import get_value, map_strings, set_value
from precis.runs.run_folder import Run, build, load_run

# Keys of a config about the training of a run, which do not define the model.
_LEFT_OUT = ("run_dir", "resume", "ckpt_path", "out", "start_from", "wandb", "wandb_project", "wandb_models")
_OF_THE_MACHINE = ("tokenizer_dir", "cache_dir", "parses")  # arguments of the data


def write_export(
    run: Path,
    folder: Path,
    checkpoint: Path | None = None,
    licence: str | None = None,
    name: str | None = None,
    compact: bool = False,
) -> None:
    """Write a run's model, by default its best checkpoint, to an empty folder.

    `licence` and `name` are for the model card. `compact` writes matrices in 8 bits, and leaves out a frozen encoder
    with its tokenizer, which are loaded by name. A `UserError` if `run` has no summarizer, or an unfit checkpoint.
    """
    path = checkpoint or best_checkpoint(run)
    loaded = load_run(run, path)
    left_out = _frozen_weights(loaded) if compact else set()
    places, note = {}, ""  # subfolder of each pretrained part by config key; why there are none, for the card
    try:
        places = {} if left_out else loaded.model.export(folder)
    except ValueError as error:  # the network cannot be written in the format of transformers
        note = str(error)
    config = _portable(read_config(run), places)
    _export_other_models(loaded, config, folder)
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    data = loaded.data
    frozen_tokenizer = data.tokenizer_type.of_checkpoint(data.checkpoint).state() if left_out else None
    if data.tokenizer is None or data.tokenizer.state() != frozen_tokenizer:  # else it is loaded with the encoder
        shutil.copytree(run / "text", folder / "text")
    metadata = _metadata(loaded, read_checkpoint(path, verify=False))  # `load_run` has verified it
    weights = {name: value for name, value in loaded.model.state_dict().items() if name not in left_out}
    metadata["bits"] = 8 if compact else 32  # of matrices
    write_exported(folder / EXPORTED, weights, metadata, metadata["bits"])
    card = model_card(run, name or run.name, loaded, metadata, licence, note, folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    for path in folder.rglob("*.safetensors"):  # written with permissions for their owner alone
        path.chmod((folder / "config.yaml").stat().st_mode)


def _frozen_weights(loaded: Run) -> set[str]:
    """Return the names of frozen weights if all equal the pretrained encoder that the config names; else no names."""
    weights, names = loaded.model.state_dict(), loaded.model.frozen_weights()
    pretrained = build(loaded.config)[0].state_dict() if names else {}  # a new model, before any training
    return names if all(torch.equal(weights[name], pretrained[name]) for name in names) else set()


def _metadata(loaded: Run, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return `loss_weights` of a model, and `global_step` and `switches` (scheduled values) of a checkpoint."""
    metadata: dict[str, Any] = {}
    loaded.model.on_save_checkpoint(metadata)
    metadata.pop("text", None)  # the tokenizer, which is in the folder text/
    metadata["global_step"] = checkpoint["global_step"]
    metadata["switches"] = checkpoint.get("switches")
    return json.loads(json.dumps(metadata))  # as read from the exported file: tuples become lists


def _portable(config: dict[str, Any], places: dict[str, str]) -> dict[str, Any]:
    """Return an exported model's config without absolute paths; `places`: paths of pretrained parts by config key."""
    config = {key: value for key, value in config.items() if key not in _LEFT_OUT}  # keys about training
    config = map_strings(config, lambda text: os.path.basename(text) if os.path.isabs(text) else text)
    data = config["data"].setdefault("init_args", {})
    data |= dict.fromkeys(data.keys() & _OF_THE_MACHINE)  # to None: paths that other machines lack
    model = config["model"].setdefault("init_args", {})
    for key, place in places.items():
        path = IN_FOLDER if place == "." else f"{IN_FOLDER}/{place}"  # IN_FOLDER: the export's folder
        # The data may have a copy of the argument by the last part of its name: `checkpoint` of `encoder.checkpoint`.
        for arguments, name in ((model, key), (data, key.rpartition(".")[2])):
            if get_value(arguments, name) is not None:
                set_value(arguments, name, path)
    return config


def _export_other_models(loaded: Run, config: dict[str, Any], folder: Path) -> None:
    """Export models that the data of a run reads (MatchSum's sentence scorer, a parser), and set paths in `config`."""
    data, original = config["data"]["init_args"], loaded.config["data"]["init_args"]  # `original` has the run's paths
    scorer = original.get("scorer")  # if it is a `RunScorer`, it has a `run`: the folder of a model
    if isinstance(scorer, dict) and (scorer.get("init_args") or {}).get("run"):
        (folder / "scorer").mkdir()
        write_export(Path(scorer["init_args"]["run"]), folder / "scorer")
        data["scorer"]["init_args"]["run"] = f"{IN_FOLDER}/scorer"  # IN_FOLDER: the export's folder, on loading
    parser = original.get("parser")
    if isinstance(parser, str) and Path(parser).exists():  # a trained parser, not one of `PARSERS`
        from precis.config.parsers import load_parser

        load_parser(parser).save(folder / "parser")
        data["parser"] = f"{IN_FOLDER}/parser"


def model_card(
    run: Path, name: str, loaded: Run, metadata: dict[str, Any], licence: str | None, note: str, folder: Path
) -> str:
    """Return the card as Markdown with a header in YAML; the text, from model_card.md, lists the files in `folder`."""
    model_class = type(loaded.model)
    pretrained = get_value(loaded.config["model"].get("init_args"), "encoder.checkpoint")
    is_name = isinstance(pretrained, str) and pretrained.count("/") == 1 and not Path(pretrained).exists()  # USER/MODEL
    header = ModelCardData(
        library_name="precis",
        pipeline_tag="summarization",
        tags=["precis", model_class.__name__.lower()],
        license=licence,
        base_model=pretrained if is_name else None,
    )
    environment = {"corpus": {}} | _record(run, "environment.json")  # for a run folder without the file
    results, step = _record(run, "results.json"), metadata["global_step"]
    scored_step = _record(run, "predictions.checkpoint.json").get("step", step)  # of the weights that were tested
    if scored_step != step or "--model." in results.get("command", ""):  # other weights, or options such as decoding's
        results = {}
    corpus = read_config(folder)["data"]["init_args"].get("corpus") or {}
    corpus_arguments = {key: value for key, value in (corpus.get("init_args") or {}).items() if value is not None}
    card = ModelCard.from_template(
        header,
        template_path=str(Path(__file__).with_name("model_card.md")),
        name=name,
        kind=model_class.__name__,
        description=(inspect.getdoc(model_class) or "").split("\n\n")[0].replace("\n", " "),
        paper=(inspect.getdoc(sys.modules[model_class.__module__]) or "").split("\n")[0],
        weights=EXPORTED,
        files=[path.name for path in folder.iterdir()],
        note=note,
        corpus=str(corpus.get("class_path", "unknown")).rpartition(".")[2],
        corpus_arguments=json.dumps(corpus_arguments, ensure_ascii=False),
        environment=environment,
        counted=counted,
        results=results,
        signatures=_record(run, "predictions.signatures.json"),
        step=step,
        bits=metadata["bits"],
        licence=licence,
    )
    return f"{card}\n"


def _record(run: Path, name: str) -> dict[str, Any]:  # a JSON file of the run; {} if there is none
    path = run / name
    return read_json(path) if path.is_file() else {}
