"""Exported models on the Hugging Face hub: `precis push`, and how a name of the hub becomes a folder."""

import os
import re
from pathlib import Path

from jsonargparse import ArgumentParser

from datamodules.documents import UserError
from lightning_modules.exported import EXPORTED
from precis.config.shipped import LEXRANK, shipped_folder

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_MODEL_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")  # old names at Hugging Face, such as t5-small, have no user


def push(arguments: list[str]) -> None:
    """`precis push FOLDER NAME/MODEL`: upload what `precis export` wrote to the Hugging Face hub."""
    parser = ArgumentParser(prog="precis push", description=push.__doc__, exit_on_error=False)
    parser.add_argument("folder", type=Path, help="a folder of precis export")
    parser.add_argument("repo", type=str, help="repository: user or organization, slash, name")
    parser.add_argument("--private", type=bool, default=False, help="create a private repository")
    options = parser.parse_args(arguments)
    folder = options.folder
    if not (folder / EXPORTED).is_file():  # the weights
        raise UserError(f"{folder}: not an exported model; make one with `precis export RUN --out FOLDER`")
    if not _NAME.fullmatch(options.repo):
        raise UserError(f"{options.repo}: not a name of the hub; give USER/MODEL")
    import httpx
    from huggingface_hub import HfApi, get_token

    if get_token() is None:
        raise UserError("no Hugging Face token; log in with `hf auth login`, or set HF_TOKEN")
    api, message = HfApi(), "Upload a model exported by Précis"
    try:
        api.create_repo(options.repo, private=options.private, exist_ok=True)
        commit = api.upload_folder(repo_id=options.repo, folder_path=folder, commit_message=message)
    except (httpx.HTTPError, OSError, ValueError) as error:
        remedy = "check name, token and network"
        raise UserError(f"{options.repo}: the hub refuses the upload ({_reason(error)}); {remedy}") from None
    print(commit.repo_url)


def find_run(name: str | Path) -> Path | None:
    """Return the folder of a shipped, trained or exported model, downloaded if need be; None for transformers models.

    `LEXRANK`, a method without weights, has no folder either: None. A path that does not exist is returned for the
    caller to report. A `UserError` if the hub has no such model.
    """
    if name == LEXRANK:
        return None
    if (folder := shipped_folder(name)) is not None:
        return folder
    path = Path(name)
    if path.is_dir():  # transformers writes config.json; runs and exports config.yaml, but an export may have both
        return None if (path / "config.json").is_file() and not (path / "config.yaml").is_file() else path
    is_below_a_folder = len(path.parts) > 1 and path.parent.is_dir()  # a run that is missing, such as runs/one
    if path.exists() or is_below_a_folder or not _MODEL_NAME.fullmatch(str(name)):
        return path
    import httpx
    from huggingface_hub import snapshot_download

    try:
        # only config.yaml at first: without one, it is a model of transformers, which fetches the files it needs
        if not (Path(snapshot_download(str(name), allow_patterns="config.yaml")) / "config.yaml").is_file():
            return None
        return Path(snapshot_download(str(name)))  # all files
    except (httpx.HTTPError, OSError, ValueError) as error:
        raise UserError(f"{name}: no such folder, and no such model on the hub ({_reason(error)})") from None


def _reason(error: Exception) -> str:  # the first line of its message
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    offline = "; HF_HUB_OFFLINE is set" if os.environ.get("HF_HUB_OFFLINE") else ""
    return (lines[0].rstrip(".") if lines else type(error).__name__) + offline
