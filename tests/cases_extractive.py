"""Extractive models, small enough for a test, over documents whose summaries are sentences of theirs."""

import json
import os
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from case import Case

from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.extractive.selection import SelectionOptions


def own_sentences(files: dict[str, str]) -> dict[str, str]:
    """Return copies of corpus files in which the summary of each document is one of its sentences."""
    found = {}
    for split, path in files.items():
        target = Path(path).with_name(f"sentences-{split}.jsonl")
        if not target.exists():
            rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
            for row in rows:
                sentences = row["document"].split(". ")[:2]
                row["summary"] = sentences[int(row["id"].split("-")[1]) % 2].rstrip(".") + "."
            building = target.with_name(f"{target.name}.{os.getpid()}")
            building.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            building.replace(target)  # two processes may be at it
        found[split] = str(target)
    return found


@dataclass(frozen=True)
class ExtractiveCase(Case):
    """A case over documents whose summaries are sentences of theirs.

    Attributes:
        injected: arguments of the data that are objects, by their class paths.
    """

    injected: dict[str, str] = field(default_factory=dict)

    def build_data(self, files: dict[str, str], **changes: Any):
        made = {}
        for name, path in self.injected.items():
            module, kind = path.rsplit(".", 1)
            made[name] = getattr(import_module(module), kind)()
        return super().build_data(own_sentences(files), **made, **changes)

    def arguments(self, files: dict[str, str]) -> list[str]:
        given = [argument.replace("=None", "=null") for argument in super().arguments(own_sentences(files))]
        return given + [f"--data.{name}={path}" for name, path in self.injected.items()]


_MODEL = {"vocab_size": 300, "encoder": None, "hidden_size": 16, "heads": 2, "layers": 1, "dropout": 0.1}
_MODEL |= {"schedule": "inverse_root", "warm_up": 5, "learning_rate": 0.005, "val_summaries": 2}
_BERTSUM = _MODEL | {"inter_layers": 1, "inter_heads": 2, "inter_size": 16, "selection": SelectionOptions(k=1)}
_DATA = {"vocab_size": 300, "encoder": None, "batch_size": 4}
_SHORT = DecodingOptions(beam_size=2, min_length=1, max_length=40)
_DECODER = {"decoder_layers": 1, "decoder_heads": 2, "decoder_size": 24}
_BY_HEART = {"hidden_size": 32, "dropout": 0.0}

CASES = [
    ExtractiveCase(
        "bertsum", "lightning_modules.BertSum", "datamodules.ExtractiveData", _BERTSUM, _DATA, {"dropout": 0.0},
        overfit_args=(_BY_HEART, {}),
    ),
    ExtractiveCase(
        "matchsum", "lightning_modules.MatchSum", "datamodules.MatchSumData", _MODEL | {"pooling": "mean"},
        _DATA | {"keep": 3, "sizes": [1, 2]}, {"dropout": 0.0},
        # a candidate that is the whole document matches it best, whatever is learned
        overfit_args=(_BY_HEART, {"sizes": [1]}), overfit_loss=0.02,
        injected={"scorer": "lightning_modules.extractive.zero_shot.ZeroShot"},
    ),
    ExtractiveCase(
        "bertsum-abs", "lightning_modules.BertSumAbs", "datamodules.BertSumAbsData",
        _MODEL | _DECODER | {"encoder_warm_up": 8, "decoding": _SHORT},
        _DATA | {"max_target": 40}, {"dropout": 0.0},
        overfit_args=(
            _BY_HEART | {"decoder_size": 96, "vocab_size": 400, "decoding": DecodingOptions(2, 1, 60)},
            {"vocab_size": 400, "max_target": 60},
        ),
    ),
]  # fmt: skip
