"""`Case`: a model with its DataModule, small enough for a test."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, is_dataclass
from importlib import import_module
from typing import Any

from model_options import build_model, dotted
from pytorch_lightning import Callback

from datamodules.corpora import Files
from precis.config.parsers import provide_parsers


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
        overfit_epochs: epochs of one batch that it gets for that; about four times as many as it takes to get there.
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
    overfit_epochs: int = 110

    @property
    def model_class(self) -> type:
        """The class of the model."""
        return _class(self.model)

    def build_model(self, **changes: Any):
        """The model; its DataModule's text comes to it in `setup`, or by `set_tokenizer`."""
        return build_model(self.model_class, self.model_args | changes)

    def build_data(self, files: dict[str, str], **changes: Any):
        """The DataModule over a corpus of files."""
        data = _class(self.data)(Files(**files), **self.data_args | changes)
        provide_parsers(data)
        return data

    def arguments(self, files: dict[str, str]) -> list[str]:
        """The same as arguments of `precis fit`."""
        given = [f"--model={self.model}", f"--data={self.data}", "--data.corpus=datamodules.corpora.Files"]
        given += [f"--data.corpus.{split}={path}" for split, path in files.items()]
        given += [f"--model.{name}={value}" for name, value in _flat(dotted(self.model_class, self.model_args))]
        # what data and model share is given for the model
        shared = {name: value for name, value in self.data_args.items() if name not in self.model_args}
        return given + [f"--data.{name}={value}" for name, value in _flat(shared)]


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
