"""The config of a run folder, read without the libraries that its classes need."""

from pathlib import Path
from typing import Any

from datamodules.documents import UserError
from lightning_modules.exported import EXPORTED
from precis.files.data_files import read_yaml
from precis.files.nested_values import map_strings

IN_FOLDER = "{run}"  # in the config of an exported model: the folder itself


def read_config(run: Path) -> dict[str, Any]:
    """Return config.yaml of a run folder, or of an exported model, in which `{run}` is replaced by the folder."""
    path = Path(run) / "config.yaml"
    if not path.is_file():
        raise UserError(f"{path}: not found; give the folder of a run that `precis fit` made")
    config = read_yaml(path)
    if not (Path(run) / EXPORTED).is_file():
        return config

    def in_this_folder(text: str) -> str:
        return f"{run}{text.removeprefix(IN_FOLDER)}" if f"{text}/".startswith(f"{IN_FOLDER}/") else text

    return map_strings(config, in_this_folder)
