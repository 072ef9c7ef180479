"""Précis from Python: summarize, load a trained run, evaluate, compare; parse the discourse of a text.

    import precis

    print(precis.summarize(text).text)
    run = precis.load("runs/first")
    print(run.summarize(text, beam_size=4).text)

Importing the package loads no library: each name is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datamodules.documents import UserError
    from lightning_modules.summary import Summary
    from precis.api.discourse import Discourse, parse
    from precis.api.runs import Evaluation, Run, load
    from precis.api.scores import compare, rouge
    from precis.api.summaries import summarize

    __version__: str

__all__ = ["Discourse", "Evaluation", "Run", "Summary", "UserError", "compare", "load", "parse", "rouge", "summarize"]

_MODULES = {"UserError": "datamodules.documents", "Summary": "lightning_modules.summary"}  # by name
_MODULES |= dict.fromkeys(("Evaluation", "Run", "load"), "precis.api.runs") | {"summarize": "precis.api.summaries"}
_MODULES |= dict.fromkeys(("Discourse", "parse"), "precis.api.discourse")
_MODULES |= dict.fromkeys(("compare", "rouge"), "precis.api.scores")


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562), since torch and Lightning take seconds to import."""
    if name == "__version__":
        from importlib.metadata import version

        return version("precis-suite")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_MODULES[name]), name)  # the next use does not call this function
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
