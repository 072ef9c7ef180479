"""The model card of an exported model: how to load it, its data, scores, training and licence."""

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from datamodules.text.lines import counted
from lightning_modules.exported import EXPORTED
from precis.files.json_files import read_json
from precis.runs.run_folder import Run


def model_card(
    run: Path,
    name: str,
    loaded: Run,
    config: dict[str, Any],
    described: dict[str, Any],
    licence: str | None,
    note: str,
    folder: Path,
) -> str:
    """Return the card as Markdown with a header in YAML.

    Args:
        run: the run folder, whose records the card summarizes.
        name: name of the model.
        loaded: the model.
        config: config of the exported model.
        described: plain values of the checkpoint.
        licence: licence of the weights; None if not stated.
        note: reason why the model cannot be loaded by `transformers`; empty if it can.
        folder: folder of the exported model.
    """
    kind = type(loaded.model)
    header = {"library_name": "precis", "pipeline_tag": "summarization", "tags": ["precis", kind.__name__.lower()]}
    header |= {"license": licence} if licence else {}
    if base := _base_model(loaded.config):
        header["base_model"] = base
    paper = (inspect.getdoc(sys.modules[kind.__module__]) or "").split("\n")[0]
    description = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
    sections = [
        f"# {name}\n\n`{kind.__name__}` of Précis (Python package `precis-suite`): {description}\n\n{paper}",
        _use(name, folder, note),
        _data(run, config),
        _scores(run, described),
        _training(run),
        "## Licence\n\n" + (licence or "None is stated, so nobody may use the weights; state one with --license."),
    ]
    return f"---\n{yaml.safe_dump(header, sort_keys=False)}---\n\n" + "\n\n".join(sections) + "\n"


def _base_model(config: dict[str, Any]) -> str | None:
    """Return the hub's name of the pretrained model that training started from."""
    arguments = config["model"].get("init_args") or {}
    pretrained = arguments.get("checkpoint") or arguments.get("encoder")
    return (
        pretrained
        if isinstance(pretrained, str) and pretrained.count("/") == 1 and not Path(pretrained).exists()
        else None
    )


def _use(name: str, folder: Path, note: str) -> str:
    lines = [
        "## Use",
        "",
        "```python",
        "import precis",
        "",
        f'run = precis.load("{name}")  # this folder, or its name on the hub',
        "print(run.summarize(text).text)",
        "```",
        "",
        f"`{EXPORTED}` holds the weights, `config.yaml` the arguments of model and data, `text/` the tokenizer.",
    ]
    if (folder / "config.json").is_file():
        lines.append(f"`AutoModelForSeq2SeqLM.from_pretrained` of transformers loads the network alone: {_HF_CAVEAT}")
    elif (folder / "encoder").is_dir():
        lines.append(
            '`AutoModel.from_pretrained(folder, subfolder="encoder")` of transformers loads the encoder; the layers '
            "on top of it are the suite's own."
        )
    else:
        lines.append(f"transformers has no form of this network{f' ({note})' if note else ''}.")
    return "\n".join(lines)


_HF_CAVEAT = "its decoding options are those of its own config, and what discourse adds to attention is left out."


def _data(run: Path, config: dict[str, Any]) -> str:
    corpus = config["data"]["init_args"].get("corpus") or {}
    arguments = {key: value for key, value in (corpus.get("init_args") or {}).items() if value is not None}
    kind = str(corpus.get("class_path", "unknown")).rpartition(".")[2]
    lines = ["## Data", "", f"Corpus `{kind}` {json.dumps(arguments, ensure_ascii=False)}"]
    for split, record in _record(run, "environment.json").get("corpus", {}).items():
        digest = f", digest {record['digest']}" if "digest" in record else ""
        lines.append(f"- {split}: {counted(record['documents'], 'document')}{digest}")
    return "\n".join(lines)


def _scores(run: Path, described: dict[str, Any]) -> str:
    results, signatures = _record(run, "results.json"), _record(run, "predictions.signatures.json")
    if not results:
        return "## Scores\n\nThe run was not tested: `precis test --run RUN` before the export records its scores."
    lines = ["## Scores", "", f"Means over {counted(results['documents'], 'document')}"]
    lines[-1] += f" of the {results.get('split')} split; ROUGE is F1 x 100."
    lines[-1] += f" Checkpoint of step {described['global_step']:,}."
    lines += ["", "| measure | mean | signature |", "|---|---|---|"]
    for measure, value in results["scores"].items():
        measure = measure.rpartition("/")[2]
        signature = str(signatures.get(measure, "")).replace("|", " ")
        lines.append(f"| {measure} | {value:.2f} | {signature} |")
    return "\n".join(lines)


def _training(run: Path) -> str:
    record = _record(run, "environment.json")
    versions = ", ".join(f"{name} {version}" for name, version in record.get("versions", {}).items())
    facts = {
        "seed": record.get("seed"),
        "commit of the suite": record.get("git_commit"),
        "device": record.get("device"),
        "Python": record.get("python"),
        "versions": versions or None,
    }
    return "## Training\n\n" + "\n".join(f"- {key}: {value}" for key, value in facts.items() if value is not None)


def _record(run: Path, name: str) -> dict[str, Any]:
    path = run / name
    return read_json(path) if path.is_file() else {}
