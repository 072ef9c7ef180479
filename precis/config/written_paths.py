"""Where a config or a run folder of unknown origin may write: inside the run folder alone (see SECURITY.md)."""

import inspect
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from datamodules.documents import UserError
from precis.config.trust import FLAG, is_trusted, object_named, strings_in
from precis.files.nested_values import leaves

_SECTIONS = ("out", "checkpoint", "trainer")  # with output paths; models and data only write to caches
_PATHS = ("out", "path", "folder", "dir", "dirpath", "save_dir", "root_dir", "default_root_dir", "output_path")
_PATHS += ("exclude_batches_path", "nvme_path", "tracking_uri")
_NAMES = ("filename", "name", "version", "sub_dir")  # names of files or folders inside a folder in `_PATHS`
_CACHE_OF_WANDB = "wandb"  # folder in a run folder, in which W&B links to log files in the user's cache


def check_written_paths(config: Any, folder: Path | None, arguments: Sequence[str] = ()) -> None:
    """Raise a `UserError` if an untrusted config writes outside of its run folder; see `outside_paths`."""
    for where, value in () if is_trusted() else outside_paths(config, folder, arguments):
        remedy = f"give it on the command line, or pass {FLAG} if you trust whoever wrote the config (see SECURITY.md)"
        raise UserError(f"{where}: a config may only write inside its run folder, not to {value}; {remedy}")


def outside_paths(config: Any, folder: Path | None, arguments: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield (key, path) for each output path in a config that is neither on the command line nor in the run folder."""
    on_command_line = {text for argument in arguments for text in strings_in(argument.partition("=")[2] or argument)}
    values = dict(leaves({name: config.get(name) for name in _SECTIONS}))  # by dotted key
    for where, value in values.items():
        if not isinstance(value, str | os.PathLike) or str(value) in on_command_line:  # chosen by the user
            continue
        parent, _, key = where.rpartition(".")
        text = str(value)
        class_path = values.get(f"{parent.removesuffix('.init_args')}.class_path")  # the class with this argument
        if key in _PATHS and value != _default(class_path, key):  # a default is not a choice of the config
            is_server = text.startswith(("http://", "https://"))  # of a logger: no file is written
            is_inside = is_server or (folder is not None and is_within(Path(text), folder))  # None: no run folder
        else:  # a file or folder name, such as `filename`, must not lead out of its folder
            is_inside = key not in _NAMES or not (os.path.isabs(text) or ".." in PurePath(text).parts)
        if not is_inside:
            yield where.replace(".init_args", ""), text


def _default(class_path: Any, key: str) -> Any:
    """Return the default of the argument `key` of a class; `Parameter.empty` if it has none, or is not found."""
    owner = object_named(class_path) if isinstance(class_path, str) else None
    parameter = inspect.signature(owner).parameters.get(key) if owner is not None else None
    return parameter.default if parameter is not None else inspect.Parameter.empty


def is_within(path: Path, folder: Path) -> bool:
    """Return whether a path is in a folder after all symbolic links are followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def check_links(folder: Path, root: Path | None = None) -> None:
    """Raise a `UserError` if a symbolic link in a run folder leads out of it, or of `root`, its sweep folder."""
    for path in () if is_trusted() else _links(folder):
        if not is_within(path, root or folder):
            remedy = f"remove it, or pass {FLAG} if you made it (see SECURITY.md)"
            raise UserError(f"{path}: a link that leads out of {root or folder}, where a run would write; {remedy}")


def _links(folder: Path) -> Iterator[Path]:
    """Yield the symbolic links in a folder and its subfolders, and the folder itself if it is a link."""
    if folder.is_symlink():
        yield folder
    for parent, folders, files in os.walk(folder):
        yield from (path for name in [*folders, *files] if (path := Path(parent, name)).is_symlink())
        if os.path.basename(parent) == _CACHE_OF_WANDB:  # the folder `wandb` of a run
            folders.clear()  # `os.walk` then skips the subfolders, where W&B links to its log files elsewhere
