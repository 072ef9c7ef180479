"""Every model of the suite, small enough for a test. A new paper is one more entry."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, is_dataclass
from importlib import import_module
from typing import Any

from pytorch_lightning import Callback

from callbacks import CoverageAnnealing, LengthCurriculum
from datamodules.corpora import Files
from lightning_modules.decoding.options import DecodingOptions


@dataclass(frozen=True)
class Case:
    """A model with its DataModule.

    Attributes:
        name: in the tests' ids.
        model: class path.
        data: class path.
        model_args: what makes it small.
        data_args: the same, beside the corpus.
        repeatable: changes of `model_args` without which two processes draw other numbers than one.
        callbacks: makes those that change something during its training, with changes early in a short run.
        overfit_args: changes of `model_args` and `data_args` with which it learns a handful of documents by heart.
        overfit_loss: what its loss is then below.
    """

    name: str
    model: str
    data: str
    model_args: dict[str, Any] = field(default_factory=dict)
    data_args: dict[str, Any] = field(default_factory=dict)
    repeatable: dict[str, Any] = field(default_factory=dict)
    callbacks: Callable[[], list[Callback]] = list
    overfit_args: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    overfit_loss: float = 0.2

    def build_model(self, **changes: Any):
        """The model; its DataModule's text comes to it in `setup`, or by `use_text`."""
        return _class(self.model)(**self.model_args | changes)

    def build_data(self, files: dict[str, str], **changes: Any):
        """The DataModule over a corpus of files."""
        return _class(self.data)(Files(**files), **self.data_args | changes)

    def arguments(self, files: dict[str, str]) -> list[str]:
        """The same as arguments of `precis fit`."""
        given = [f"--model={self.model}", f"--data={self.data}", "--data.corpus=datamodules.corpora.Files"]
        given += [f"--data.corpus.{split}={path}" for split, path in files.items()]
        given += [f"--model.{name}={value}" for name, value in _flat(self.model_args)]
        # what data and model share is given for the model
        shared = {name: value for name, value in self.data_args.items() if name not in self.model_args}
        return given + [f"--data.{name}={value}" for name, value in shared.items()]


def _flat(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values, those of a dataclass (such as decoding options) behind a dot."""
    for name, value in values.items():
        if is_dataclass(value):
            yield from ((f"{name}.{inner}", option) for inner, option in asdict(value).items())
        else:
            yield name, value


def _class(path: str) -> type:
    module, name = path.rsplit(".", 1)
    return getattr(import_module(module), name)


def _pointer_generator(name: str, pointer: bool, coverage: bool) -> Case:
    def moving() -> list[Callback]:
        annealing = [CoverageAnnealing(start_step=2, ramp_steps=8)] if coverage else []
        return [*annealing, LengthCurriculum(source=8, target=3, steps=3)]

    model = {"vocab_size": 40, "embedding_size": 12, "hidden_size": 12, "dropout": 0.1, "embedding_std": 0.1}
    model |= {"val_summaries": 2, "decoding": DecodingOptions(beam_size=2, min_length=1, max_length=12)}
    data = {"vocab_size": 40, "max_source": 30, "max_target": 12, "batch_size": 4}
    by_heart = {"vocab_size": 150, "embedding_size": 64, "hidden_size": 64, "dropout": 0.0}
    return Case(
        name,
        "lightning_modules.PointerGenerator",
        "datamodules.PointerGeneratorData",
        model | {"pointer": pointer, "coverage": coverage},
        data,
        {"dropout": 0.0},
        moving,
        (by_heart, {"vocab_size": 150}),
    )


CASES = [
    _pointer_generator("seq2seq", pointer=False, coverage=False),
    _pointer_generator("pointer", pointer=True, coverage=False),
    _pointer_generator("pointer-coverage", pointer=True, coverage=True),
    _pointer_generator("seq2seq-coverage", pointer=False, coverage=True),
]
