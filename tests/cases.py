"""Every model of the suite with its DataModule, small enough for a test."""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from conftest import prepared, read_lines, write_lines
from model_options import build_model, dotted
from pytorch_lightning import Callback

from callbacks import CoverageAnnealing, LengthCurriculum
from datamodules.corpora import Files
from datamodules.graphs import ParagraphRule
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.extractive.selection import SelectionOptions
from precis.config.parsers import provide_parsers


@dataclass(frozen=True)
class Case:
    name: str  # in the tests' ids
    model: str  # class path
    data: str  # class path
    model_args: dict[str, Any] = field(default_factory=dict)  # what makes it small
    data_args: dict[str, Any] = field(default_factory=dict)  # the same, beside the corpus
    # changes of `model_args` without which two processes draw other numbers than one
    repeatable: dict[str, Any] = field(default_factory=lambda: {"dropout": 0.0})
    callbacks: Callable[[], list[Callback]] = list  # those that change something early in its training
    # changes of `model_args` and `data_args` with which it learns a handful of documents by heart
    overfit_args: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    overfit_loss: float = 0.2  # what its loss is then below
    overfit_epochs: int = 110  # epochs of one batch for that; about four times as many as it takes

    @property
    def model_class(self) -> type:
        return _class(self.model)

    def build_model(self, **changes: Any):
        return build_model(self.model_class, self.model_args | changes)

    def build_data(self, files: dict[str, str], **changes: Any):
        data = _class(self.data)(Files(**files), **self.data_args | changes)
        provide_parsers(data)
        return data

    def build(self, files: dict[str, str], **changes: Any):
        """Return the model with the text of its data, and these ready for training and tests."""
        model, data = self.build_model(**changes), prepared(self.build_data(files), "fit")
        data.setup("test")
        model.set_tokenizer(data.tokenizer)
        return model, data

    def arguments(self, files: dict[str, str]) -> list[str]:
        """The same as arguments of `precis fit`."""
        options = [f"--model={self.model}", f"--data={self.data}", "--data.corpus=datamodules.corpora.Files"]
        options += [f"--data.corpus.{split}={path}" for split, path in files.items()]
        options += [f"--model.{name}={value}" for name, value in _flat(dotted(self.model_class, self.model_args))]
        # what data and model share is set in the model
        shared = {name: value for name, value in self.data_args.items() if name not in self.model_args}
        return options + [f"--data.{name}={value}" for name, value in _flat(shared)]


def _flat(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return names and values; those of a dataclass (such as decoding options) with a dotted name."""
    for name, value in values.items():
        if is_dataclass(value):
            yield from ((f"{name}.{inner}", option) for inner, option in asdict(value).items())
        else:
            yield name, value


def _class(path: str) -> type:
    module, name = path.rsplit(".", 1)
    return getattr(import_module(module), name)


def own_sentences(files: dict[str, str]) -> dict[str, str]:
    """Return copies of corpus files in which the summary of each document is one of its sentences."""
    paths = {}
    for split, path in files.items():
        target = Path(path).with_name(f"sentences-{split}.jsonl")
        if not target.exists():
            rows = read_lines(path)
            for row in rows:
                sentences = row["document"].split(". ")[:2]
                row["summary"] = sentences[int(row["id"].split("-")[1]) % 2].rstrip(".") + "."
            building = write_lines(target.with_name(f"{target.name}.{os.getpid()}"), rows)
            building.replace(target)  # two processes may be at it
        paths[split] = str(target)
    return paths


@dataclass(frozen=True)
class ExtractiveCase(Case):
    """A case over documents whose summaries are sentences of theirs."""

    injected: dict[str, str] = field(default_factory=dict)  # arguments of the data that are objects, by class path

    def build_data(self, files: dict[str, str], **changes: Any):
        made = {name: _class(path)() for name, path in self.injected.items()}
        return super().build_data(own_sentences(files), **made, **changes)

    def arguments(self, files: dict[str, str]) -> list[str]:
        options = [argument.replace("=None", "=null") for argument in super().arguments(own_sentences(files))]
        return options + [f"--data.{name}={path}" for name, path in self.injected.items()]


_WORDS = {"vocab_size": 40, "max_source": 30, "max_target": 12, "batch_size": 4}
_LSTM = {"vocab_size": 40, "size": 12, "hidden_size": 12, "dropout": 0.1, "val_summaries": 2}
_LSTM |= {"decoding": DecodingOptions(beam_size=2, min_length=1, max_length=12)}


def _copying(name: str, model: str, size: int, **settings: Any) -> Case:
    """A model that copies words; the size is the one with which it learns by heart."""

    def moving() -> list[Callback]:
        annealing = [CoverageAnnealing(start_step=2, ramp_steps=8)] if settings.get("coverage") else []
        return [*annealing, LengthCurriculum(source=8, target=3, steps=3)]

    by_heart = {"vocab_size": 150, "size": size, "hidden_size": size, "dropout": 0.0}
    data = _WORDS | {key: value for key, value in settings.items() if key == "agents"}
    return Case(
        name, f"lightning_modules.{model}", f"datamodules.{model}Data", _LSTM | settings, data, callbacks=moving,
        overfit_args=(by_heart, {"vocab_size": 150}), overfit_epochs=200,
    )  # fmt: skip


# words that stand more than once in a made-up summary make it cohesive
_MESSAGES = {"messages": "attention", "contextual_agent_attention": True}
_MESSAGES |= {"cohesion": 0.01, "sentence_ends": [".", "the"]}
COPYING = [
    _copying("agents-m1", "CommunicatingAgents", 48, lr=0.01, agents=1),
    _copying("agents-m7", "CommunicatingAgents", 48, lr=0.01, agents=3, **_MESSAGES),
    _copying("seq2seq", "PointerGenerator", 64, std=0.1, pointer=False, coverage=False),
    _copying("pointer", "PointerGenerator", 64, std=0.1, pointer=True, coverage=False),
    _copying("pointer-coverage", "PointerGenerator", 64, std=0.1, pointer=True, coverage=True),
]

_ENCODER = {"vocab_size": 300, "checkpoint": None, "hidden_size": 16, "heads": 2, "layers": 1, "dropout": 0.1}
_ENCODER |= {"schedule": "inverse_root", "warmup_steps": 5, "lr": 0.005, "val_summaries": 2}
_BETWEEN = {"inter_sentence.layers": 1, "inter_sentence.heads": 2, "inter_sentence.inner_size": 16}
_BERTSUM = _ENCODER | _BETWEEN | {"selection": SelectionOptions(k=1)}
_SENTENCES = {"vocab_size": 300, "checkpoint": None, "batch_size": 4}
_LONG = DecodingOptions(beam_size=2, min_length=1, max_length=40)
_DECODER = {"decoder_layers": 1, "decoder_heads": 2, "decoder_inner_size": 24}
_BY_HEART = {"hidden_size": 32, "dropout": 0.0}
EXTRACTIVE = [
    ExtractiveCase("bertsum", "lightning_modules.BertSum", "datamodules.ExtractiveData", _BERTSUM, _SENTENCES,
                   overfit_args=(_BY_HEART, {})),
    ExtractiveCase(
        "matchsum", "lightning_modules.MatchSum", "datamodules.MatchSumData", _ENCODER | {"pooling": "mean"},
        _SENTENCES | {"keep": 3, "sizes": [1, 2]},
        # a candidate that is the whole document matches it best, whatever is learned
        overfit_args=(_BY_HEART, {"sizes": [1]}), overfit_loss=0.02,
        injected={"scorer": "lightning_modules.extractive.zero_shot.ZeroShot"},
    ),
    ExtractiveCase(
        "bertsum-abs", "lightning_modules.BertSumAbs", "datamodules.BertSumAbsData",
        _ENCODER | _DECODER | {"encoder_warmup_steps": 8, "decoding": _LONG},
        _SENTENCES | {"max_target": 40},
        overfit_args=(
            _BY_HEART | {"decoder_inner_size": 96, "vocab_size": 400, "decoding": DecodingOptions(2, 1, 60)},
            {"vocab_size": 400, "max_target": 60},
        ),
    ),
]  # fmt: skip


def _graphsum(name: str, **changes: Any) -> Case:
    """GraphSum or one of its two baselines; sentences are the paragraphs."""
    model = {"vocab_size": 290, "hidden_size": 12, "heads": 2, "inner_size": 16, "token_layers": 1}
    model |= {"paragraph_layers": 1, "decoder_layers": 1, "dropout": 0.1, "warmup_steps": 20, "val_summaries": 2}
    data = {"vocab_size": 290, "paragraphs": ParagraphRule(sentences=1), "max_tokens": 40, "max_target": 40}
    by_heart = {"vocab_size": 400, "hidden_size": 48, "inner_size": 96, "dropout": 0.0, "label_smoothing": 0.0}
    by_heart["norm"] = "pre"  # learns at a rate of 0.01 without a warm-up
    return Case(
        name, "lightning_modules.GraphSum", "datamodules.GraphSumData", model | {"decoding": _LONG} | changes,
        data | {"batch_size": 4}, overfit_args=(by_heart, {"vocab_size": 400}),
    )  # fmt: skip


GRAPHSUM = [
    _graphsum("graphsum", learn_sigma=True),
    _graphsum("hierarchical", kind="hierarchical"),
    _graphsum("flat", kind="flat", norm="post"),
]

_GNMT = DecodingOptions(beam_size=2, min_length=1, max_length=40, length_penalty="gnmt", alpha=0.8)
_PEGASUS = {"vocab_size": 300, "hidden_size": 16, "heads": 2, "layers": 1, "inner_size": 24, "dropout": 0.1}
_PEGASUS |= {"val_summaries": 2, "decoding": _GNMT}
_SUBWORDS = {"vocab_size": 300, "max_source": 64, "max_target": 40, "batch_size": 4}
_LARGER = ({"vocab_size": 400, "hidden_size": 48, "inner_size": 96, "dropout": 0.0}, {"vocab_size": 400})
PEGASUS = [
    Case("pegasus", "lightning_modules.Pegasus", "datamodules.PegasusData", _PEGASUS, _SUBWORDS, overfit_args=_LARGER),
    Case("gap-sentences", "lightning_modules.Pegasus", "datamodules.GapSentenceData", _PEGASUS,
         _SUBWORDS | {"max_source": 100, "ratio": 0.4, "unchanged": 0.2}, overfit_args=_LARGER),
]  # fmt: skip


def _rstformer(name: str, **settings: Any) -> Case:
    model = {"vocab_size": 300, "hidden_size": 18, "heads": 3, "layers": 1, "inner_size": 24, "window": 16}
    model |= {"positions": 64, "target_positions": 48, "dropout": 0.1, "schedule": "constant", "lr": 1e-3}
    data = {"vocab_size": 300, "max_source": 60, "max_target": 40, "half_width": 8, "batch_size": 4}
    data |= {"parser": "right_branching"} | {key: value for key, value in settings.items() if key == "ablation"}
    return Case(
        name, "lightning_modules.RSTformer", "datamodules.RSTformerData",
        model | {"val_summaries": 2, "decoding": _LONG} | settings, data, overfit_args=_LARGER,
    )  # fmt: skip


RSTFORMER = [_rstformer("rstformer", formula="log_bias"), _rstformer("led", ablation="no_discourse")]

CASES: list[Case] = [*COPYING, *EXTRACTIVE, *GRAPHSUM, *PEGASUS, *RSTFORMER]
BY_NAME = {case.name: case for case in CASES}
